"""The versions of PyTorch that memlab was checked on. The bounds in pyproject.toml follow from them."""

CHECKED_TORCH = ("2.11.0", "2.13.0", "2.15.0")
