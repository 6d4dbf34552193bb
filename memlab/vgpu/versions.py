"""The PyTorch in use, for rules that differ between its versions."""

import re

import torch

# (2, 13) for 2.13.1 and for nightly builds of it: a rule says ``if TORCH >= (2, 13)``.
TORCH = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
