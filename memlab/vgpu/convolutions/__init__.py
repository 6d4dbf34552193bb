"""Convolutions as CUDA runs them: who runs each, in which memory format, and what it needs meanwhile.

The rules are those of ATen, and name the file and the function.
"""
