"""The ladder of notebook 19 for three cards, at size ``gpu``: predicted, and by PyTorch's own CUDA code on a stand-in.

``python -m tests.cuda.twenty_times`` predicts; ``python -m tests.standin A100-80GB -m tests.cuda.twenty_times`` adds
what PyTorch allocates there, which is not measured on a GPU. Both write ``notebooks/recorded/twenty-times.json``, which
the notebook shows. The loop and the ladder are the notebook's own cells.
"""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch

from memlab import measure, predict
from memlab.files import write_atomically
from memlab.shipped import shipped_folder
from memlab.sizes import SIZES
from tests.notebooks.cells import ROOT, code_cells, needed, run

FILE = shipped_folder() / "recorded" / "twenty-times.json"
SIZE = SIZES["gpu"]
GPT2_WORDS = 50257
SHAPE = {"depth": SIZE.depth, "width": SIZE.width, "heads": SIZE.heads, "context": SIZE.context}
BATCHES = {"T4": 4, "A100-80GB": 32, "H200": 56}  # what fits without any technique
LEFT_OUT = {"T4": ("bf16 autocast",)}  # its tensor cores have no bfloat16
SHORT = SHAPE | {"depth": 4, "vocabulary": GPT2_WORDS}  # for all combinations


def cells() -> dict[str, Any]:
    """The names that the notebook's cells make, up to its ladder."""
    every = code_cells(ROOT / "notebooks" / "19_twenty_times.ipynb")
    return run(needed(every, [cell for cell in every if "def rungs(" in cell or "def train(" in cell]))[0]


def told(trace: Any) -> dict[str, Any]:
    """What the notebook shows of a prediction: bytes and seconds."""
    parts = {str(category): count for category, count in trace.by_category.items()}
    return {"peak": trace.peak_allocated, "by_category": parts} | times(trace)


def times(trace: Any) -> dict[str, float]:
    return {"least_seconds": trace.least_seconds, "likely_seconds": trace.likely_seconds}


def ladder(space: dict[str, Any], gpu: str) -> dict[str, dict[str, Any]]:
    """Every rung for one card."""
    shared: dict[str, Any] = {
        "gpu": gpu,
        "steps": 2,
        "batch_size": BATCHES[gpu],
        "sizes": SHAPE | {"vocabulary": GPT2_WORDS},
    }
    rungs = space["rungs"](*LEFT_OUT.get(gpu, ()))
    return {name: told(predict(space["train"], **shared, **settings)) for name, settings in rungs}


def combinations(space: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All combinations of the ladder's changes, in a network of four blocks on an A100."""
    choices: dict[str, list[Any]] = {}
    for name, value in (pair for change in space["LADDER"].values() for pair in change.items()):
        choices.setdefault(name, ["AdamW" if name == "optimizer" else type(value)()]).append(value)
    choices["parts"] = [1, 4]
    for values in product(*choices.values()):
        settings = dict(zip(choices, values, strict=True))
        trace = predict(space["train"], gpu="A100-80GB", steps=2, batch_size=8, sizes=SHORT, **settings)
        yield {"settings": settings, "peak": trace.peak_allocated} | times(trace)


def allocated(space: dict[str, Any], card: str) -> dict[str, int]:
    """What PyTorch allocates at most on the card that this process sees, on the first, a middle and the last rung."""
    rungs = list(space["rungs"](*LEFT_OUT.get(card, ())))
    sizes = SHAPE | {"vocabulary": GPT2_WORDS}
    chosen = (rungs[0], rungs[len(rungs) // 2], rungs[-1])
    shared: dict[str, Any] = {"steps": 2, "batch_size": BATCHES[card], "sizes": sizes}
    return {name: measure(space["train"], **shared, **settings).peak_allocated for name, settings in chosen}


def write(**found: Any) -> None:
    """Put what was found into the file, beside what is there."""
    before = json.loads(FILE.read_text()) if FILE.exists() else {}
    write_atomically(FILE, json.dumps(before | found, indent=1).encode() + b"\n")


if __name__ == "__main__":
    names = cells()
    if torch.cuda.is_available():
        name = next(card for card in BATCHES if card.split("-")[0] in torch.cuda.get_device_name())
        write(**{f"{name}, stand-in": allocated(names, name)})
    else:
        for gpu in BATCHES:
            write(**{gpu: ladder(names, gpu)})
        write(combinations=list(combinations(names)))
