"""The names of the virtual GPU: for its reader, for PyTorch's dispatcher, and for autograd's engine.

The reader sees "cuda": it is what people write, and what PyTorch's own Python looks for. The dispatcher sees the
private-use slot, under the slot's own name: a kernel registered for CUDA would be there for a real card too, and a slot
that is renamed becomes the accelerator of the process, after which backward on a real card fails
(pytorch/pytorch#161129). The engine is told "lazy": it runs that device in the calling thread, without streams.
"""

import torch

SLOT_NAME = "privateuseone"
SLOT = torch.device(SLOT_NAME, 0)
CARD = torch.device("cuda", 0)
ENGINE = torch.device("lazy", 0)
