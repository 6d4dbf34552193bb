"""``python -m tests.notebooks.bill`` writes the memory bill that stands at the head of each notebook.

GPT-2 small as published, sixteen sequences of 1,024 tokens, predicted on a T4: each technique is added to those before
it. None changes what is trained. The plain step does not fit the card, so all are predicted on one of endless memory.
The loop and the lines are cells of notebook 19.
"""

import json
from typing import Any
from unittest.mock import patch

from memlab import drawings
from memlab.files import write_atomically
from memlab.nets import GPT2_SMALL
from memlab.run import Run
from memlab.shipped import shipped_folder
from memlab.vgpu.gpu import VirtualGpu
from tests.notebooks.cells import ROOT, code_cells, needed, run

FILE = shipped_folder() / "recorded" / "bill.json"
CARD = "T4"
BATCH = 16


def cells() -> dict[str, Any]:
    """The names that the cells of notebook 19 make, up to its lines."""
    every = code_cells(ROOT / "notebooks" / "19_twenty_times.ipynb")
    wanted = [cell for cell in every if "LADDER = " in cell or "def train(" in cell]
    with patch.object(drawings, "bill"):  # which there may be no record for yet
        return run(needed(every, wanted))[0]


def rungs() -> list[dict[str, Any]]:
    """Every line of the bill."""
    space = cells()
    settings: dict[str, Any] = {"batch_size": BATCH, "sizes": GPT2_SMALL}
    found = []
    for notebook, name, change in space["LADDER"]:
        settings = settings | change
        device = VirtualGpu(CARD, is_endless=True)
        trace = Run(space["train"], settings, device, steps=2).complete()
        taken = {str(category): count for category, count in trace.by_category.items()}
        seconds = {"least_seconds": trace.least_seconds, "likely_seconds": trace.likely_seconds}
        found.append({"notebook": notebook, "name": name, "by_category": taken} | seconds)
    return found


def bill() -> dict[str, Any]:
    """The record that ``memlab/drawings/bill.py`` reads."""
    batch = f"{BATCH} \u00d7 {GPT2_SMALL['context']:,} tokens"
    return {"model": "GPT-2 small", "batch": batch, "card": CARD, "rungs": rungs()}


if __name__ == "__main__":
    write_atomically(FILE, json.dumps(bill(), indent=1).encode() + b"\n")
