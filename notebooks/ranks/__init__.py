"""Training loops for several ranks, which notebooks 16 to 18 show: plain PyTorch, a file each: ranks import them."""
