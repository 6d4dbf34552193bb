"""Settings that hold for every test."""

import os

# The smallest sizes, for the tests and for the kernels that run the notebooks.
os.environ.setdefault("MEMLAB_SIZE", "ci")
