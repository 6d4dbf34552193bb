"""Bytes that an operator needs on CUDA only while it runs: what no tensor shows.

Each rule tells what CUDA's kernels allocate beside the operator's results, and in which order. It names the recorded
trace (``tests/allocator/test_real_traces.py``) that shows it or the function of PyTorch that says so.
"""
