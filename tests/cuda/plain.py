"""``python -m tests.cuda.plain MODULE LOOP`` prints what a loop takes on the card without memlab, as JSON."""

import importlib
import json
import os
import sys

import torch

STEPS = 4


def main(module, name):
    loop = getattr(importlib.import_module(module), name)(torch.device("cuda"))
    peaks = []
    for _ in range(STEPS):
        torch.cuda.reset_peak_memory_stats()
        next(loop)
        peaks.append(torch.cuda.max_memory_allocated())
    print(json.dumps([peaks, torch.cuda.max_memory_reserved()]), flush=True)
    # At its end autograd's threads and Python's race, rarely: "terminate called without an active exception".
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
