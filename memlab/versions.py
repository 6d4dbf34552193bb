"""The version of memlab, and those of PyTorch that it was checked on."""

__version__ = "0.1.0"

# The bounds in pyproject.toml follow from these; tests/test_environment.py holds the two together.
CHECKED_TORCH = ("2.11.0", "2.13.0", "2.15.0")
CHECKED = " to ".join(version.rpartition(".")[0] for version in (CHECKED_TORCH[0], CHECKED_TORCH[-1]))  # "2.11 to 2.15"
