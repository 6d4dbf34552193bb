"""Jupyter's kernels, forked from one process that has loaded PyTorch; it forks the ranks of their runs too."""
