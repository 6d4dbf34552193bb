"""Kernels that begin at once and share what they have in common: forked from one process that has loaded PyTorch."""
