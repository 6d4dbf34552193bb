"""The memory of notebook 15's loop: PyTorch's own CUDA code on a stand-in for a card, not measured on a GPU.

``python -m tests.standin T4 -m tests.cuda.caching_allocator`` writes
``notebooks/recorded/standin-caching-allocator.json``, which notebook 15 shows.
"""

import json

import torch

from memlab import measure
from memlab.files import write_atomically
from memlab.nets import GPT2_SMALL
from memlab.shipped import shipped_folder
from tests.notebooks.cells import NOTEBOOKS, code_cells, needed, run

FILE = shipped_folder() / "recorded" / "standin-caching-allocator.json"
SOURCE = "PyTorch's own CUDA code on a stand-in for the card, not measured on a GPU"
CASES = {  # the lengths of the texts, and how many there are in a batch
    "short": (832, 832, 10),
    "long": (1024, 1024, 10),
    "in turn": (832, 1024, 10),
    "long first": (1024, 832, 10),
    "too many": (1024, 1024, 12),
}


def loop():
    """The notebook's loop."""
    cells = code_cells(next(path for path in NOTEBOOKS if path.stem.startswith("15_")))
    space, _ = run(needed(cells, [cell for cell in cells if "def train(" in cell]))
    return space["train"]


def taken(train, case):
    """The most bytes that a run allocated and reserved, and whether it fits."""
    first, second, texts = CASES[case]
    trace = measure(train, device="cuda", first=first, second=second, batch_size=texts, sizes=GPT2_SMALL)
    return {"allocated": trace.peak_allocated, "reserved": trace.peak_reserved, "fits": trace.oom is None}


def all_runs():
    """Every run of the notebook, by the name that it has there."""
    train = loop()

    def emptied(device, **settings):
        for loss in train(device, **settings):
            torch.cuda.empty_cache()
            yield loss

    found = {case: taken(train, case) for case in CASES}
    found |= {f"{case}, emptied": taken(emptied, case) for case in ("in turn", "too many")}
    torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
    return found | {f"{case}, expandable": taken(train, case) for case in ("in turn", "long first")}


if __name__ == "__main__":
    card = torch.cuda.get_device_name()
    told = {"source": SOURCE, "card": card, "torch": torch.__version__, "runs": all_runs()}
    write_atomically(FILE, json.dumps(told, indent=2).encode() + b"\n")
