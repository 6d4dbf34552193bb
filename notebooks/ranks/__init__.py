"""Training loops for several ranks, which notebooks 16 to 18 and 22 show: plain PyTorch, a file each: ranks import them."""
