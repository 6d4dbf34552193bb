"""The same bytes for a torch on every machine: what was predicted once is predicted always.

After a change that is meant to change bytes, ``python -m tests.vgpu.test_versions`` writes the part of the torch in use
again: run it with each of them.
"""

import json
from pathlib import Path

import pytest
import torch

from memlab import predict
from memlab.text import listed
from memlab.versions import CHECKED_TORCH
from memlab.vgpu import versions
from memlab.vgpu.versions import TORCH
from tests.vgpu.test_bytes import train_gpt, train_mlp
from tests.vgpu.test_features import LOOPS

VERSION = ".".join(map(str, TORCH))
FILE = Path(__file__).with_name("expected_bytes.json")
CASES = {
    **{f"{train.__name__} on {gpu}": (train, gpu, {}) for train in LOOPS for gpu in ("T4", "A100-40GB", "H100")},
    "gpt bf16": (train_gpt, "A100-40GB", {"precision": "bf16"}),
    "gpt bf16 checkpointed": (train_gpt, "A100-40GB", {"precision": "bf16", "checkpoint_every": 1}),
    "gpt fused": (train_gpt, "T4", {"optimizer": "AdamW fused"}),
    "mlp momentum": (train_mlp, "L4", {"optimizer": "SGD momentum"}),
}
del CASES["drop_path on T4"], CASES["drop_path on A100-40GB"], CASES["drop_path on H100"]  # random by design


def predicted(name):
    train, gpu, settings = CASES[name]
    trace = predict(train, gpu=gpu, **settings)
    return [trace.peak_allocated, trace.peak_reserved, trace.allocated[0], trace.flops]


@pytest.mark.parametrize("name", CASES)
def test_the_bytes_are_those_of_every_other_machine(name):
    expected = json.loads(FILE.read_text())
    if VERSION not in expected[name]:
        pytest.skip(f"nothing is expected of torch {VERSION} yet")
    assert predicted(name) == expected[name][VERSION]


CHECKED = listed([version.removesuffix(".0") for version in CHECKED_TORCH])


@pytest.mark.parametrize(("here", "told"), [((2, 13), ""), ((2, 12), f"PyTorch {CHECKED}, not with 2.12")])
def test_a_prediction_says_where_it_was_never_checked(monkeypatch, here, told):
    monkeypatch.setattr(versions, "TORCH", here)

    def train(device):
        while True:
            yield torch.ones(8, device=device).sum()

    notes = " ".join(predict(train).notes)
    assert told in notes
    assert ("Predictions were checked" in notes) == bool(told)


if __name__ == "__main__":
    known = json.loads(FILE.read_text())
    found = {name: dict(sorted((known.get(name, {}) | {VERSION: predicted(name)}).items())) for name in CASES}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(found[name])}" for name in CASES)
    FILE.write_text(f"{{\n{lines}\n}}\n")
