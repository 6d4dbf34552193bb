"""Sparse tensors in coordinates: gradients of embeddings, and what optimizers do with them.

A fake sparse tensor of PyTorch's lets go of its indices and values. Here it keeps both, tensors on the card, for as
long as it lives; operators on it are taken apart into those on indices and values, as ATen does for CUDA.
"""
