"""PyTorch's own CUDA build on a machine without a GPU: stand-ins for the CUDA libraries under it."""
