"""The rule of an operator, asked with tensors that have no numbers."""

import torch

from memlab.vgpu import find_card
from memlab.vgpu.scratch.table import scratch


def made(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


def steps(gpu, operator, *args, out=None, **kwargs):
    return list(scratch(find_card(gpu), operator, args, operator(*args, **kwargs) if out is None else out, kwargs))
