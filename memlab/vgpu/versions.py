"""The PyTorch in use, for rules that differ between its versions."""

import re

import torch

from memlab.text import listed
from memlab.versions import CHECKED_TORCH

# (2, 13) for 2.13.1 and for nightly builds of it: a rule says ``if TORCH >= (2, 13)``.
TORCH = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])


def unchecked() -> str:
    """A sentence where predictions were never held to this PyTorch's CUDA build; empty for the others."""
    checked = [version.removesuffix(".0") for version in CHECKED_TORCH]
    here = ".".join(map(str, TORCH))
    if here in checked:
        return ""
    # An L40S with 2.12 took up to 1.5% more or less in reserved bytes, where with 2.13 nothing was missed.
    return (
        f"Predictions were checked with PyTorch {listed(checked)}, not with {here}: reserved bytes may be off by a few "
        "percent."
    )
