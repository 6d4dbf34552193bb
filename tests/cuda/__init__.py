"""The CUDA path, tried with PyTorch's own CUDA build on cards that are not there: `make test-cuda`."""
