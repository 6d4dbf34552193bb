"""``torch.compile`` on the virtual card: PyTorch's own compiler decides, and what it has written is played.

Dynamo, AOTAutograd and Inductor compile a frame as on a machine with such a card, without CUDA and without Triton.
Inductor's wrapper, the Python that allocates each buffer, reuses it and frees it, then runs on the virtual card. Its
kernels allocate nothing, so their launches do nothing.
"""
