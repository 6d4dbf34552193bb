"""Changes of a script's source while it runs, held to the same changes written by hand."""

import pytest
import torch

from memlab.script.edits import Edits

SCRIPT = """
    import functools
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 64)

        def forward(self, x):
            return x + self.second(self.first(x).relu())

    model = nn.Sequential(nn.Linear(64, 64), nn.Sequential(*[Block() for _ in range(4)])).to("cuda")
    {change}
    optimizer = torch.optim.AdamW(model.parameters(){fused})
    for i in range(10):
        x = torch.ones({size}, 64, device="cuda")
        {within}
        loss = out.square().mean()
        loss.backward()
        {step}
"""
PLAIN = {
    "change": "",
    "fused": "",
    "size": 2048,
    "within": "out = model(x)",
    "step": "optimizer.step(); optimizer.zero_grad()",
}
BY_HAND = {
    "autocast": {"change": "model.forward = torch.autocast('cuda', dtype=torch.float16)(model.forward)"},
    "checkpointing": {
        "change": "for block in [*model[1]]: block.forward = "
        "functools.partial(checkpoint, block.forward, use_reentrant=False)"
    },
    "fused": {"fused": ", fused=True"},
    "offload": {"within": "with torch.autograd.graph.save_on_cpu(pin_memory=True): out = model(x)"},
    "accumulate": {"step": "(optimizer.step(), optimizer.zero_grad()) if i % 2 else None"},
}


@pytest.fixture
def peaks(run_script):
    """``peaks(edits, **text)``: of each step, and the lines that were told."""

    def peaks(edits, **text):
        run, edits = run_script(SCRIPT.format(**PLAIN | text)), Edits(edits)
        with edits.applied():
            trace = run.complete()
        return [step.peak_allocated for step in trace.steps], edits.lines

    return peaks


@pytest.mark.parametrize("edit", BY_HAND)
def test_an_edit_is_what_its_line_does(peaks, edit):
    plain, _ = peaks([])
    ours, lines = peaks([edit])
    by_hand, _ = peaks([], **BY_HAND[edit])
    assert ours == by_hand
    assert ours != plain
    assert len(lines) == (edit != "accumulate")


def test_several_at_once(peaks):
    ours, lines = peaks(["autocast", "checkpointing", "fused"])
    by_hand, _ = peaks(
        [], change=f"{BY_HAND['autocast']['change']}\n    {BY_HAND['checkpointing']['change']}", fused=", fused=True"
    )
    assert ours == by_hand
    assert len(lines) == 3


def test_a_line_names_its_place(peaks):
    _, (line,) = peaks(["checkpointing"])
    assert line.startswith("before script.py:20: for block in [*model.1]: block.forward = functools.partial(")


def test_nothing_is_left_behind(peaks):
    init, call = torch.optim.AdamW.__init__, torch.nn.Module.zero_grad
    peaks(["fused", "accumulate"])
    assert torch.optim.AdamW.__init__ is init
    assert torch.nn.Module.zero_grad is call
