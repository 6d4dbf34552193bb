"""Settings that hold for every test."""

import os
import tempfile

# The smallest sizes, for the tests and for the kernels that run the notebooks.
os.environ.setdefault("MEMLAB_SIZE", "ci")

# One thread: with one for every core, another busy process (a browser, say) makes small steps tens of times
# slower, because OpenMP's threads spin while they wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What the tests' panels run is no run of a learner.
os.environ.setdefault("MEMLAB_LOGBOOK", os.path.join(tempfile.mkdtemp(), "logbook.jsonl"))
