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
    "autocast": {
        "change": "model.forward = torch.autocast('cuda', dtype=torch.float16)(model.forward); "
        "model.register_forward_hook(lambda *call: call[-1].float())"
    },
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


NET = """
    import functools
    import torch
    from torch import nn

    class Task:
        def __init__(self):
            self.net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(6)]).to("cuda")
            {change}
            self.optimizer = torch.optim.AdamW(self.net.parameters())

        def loss(self, x):
            return self.net(x).square().mean()

    task = Task()
    for step in range(10):
        for micro_batch in range(3):
            task.loss(torch.ones(4096, 64, device="cuda")).backward()
        task.optimizer.step()
        task.optimizer.zero_grad()
"""


@pytest.mark.parametrize("edit", ["checkpointing", "autocast"])
def test_the_line_runs_once_where_the_model_has_its_name_and_does_what_was_predicted(run_script, edit):
    run, edits = run_script(NET.format(change="")), Edits([edit])
    with edits.applied():
        trace = run.complete()
    (line,) = edits.lines
    place, _, change = line.partition(": ")
    assert place == "before script.py:10"  # the optimizer's
    by_hand = run_script(NET.format(change=change.partition(", and the loss")[0])).complete()
    assert [step.peak_allocated for step in by_hand.steps] == [step.peak_allocated for step in trace.steps]


def test_without_an_optimizer_the_line_stands_where_the_model_is_called(run_script):
    script = NET.replace("torch.optim.AdamW(self.net.parameters())", "[]")
    script = script.replace("task.optimizer.step()", "pass").replace("task.optimizer.zero_grad()", "pass")
    run, edits = run_script(script.format(change="")), Edits(["autocast"])
    with edits.applied():
        run.complete()
    (line,) = edits.lines
    assert line.startswith("before script.py:13: model.forward = ")


def test_a_line_names_its_place(peaks):
    _, (line,) = peaks(["checkpointing"])
    assert line.startswith("before script.py:17: for block in [*model[1]]: block.forward = functools.partial(")


def test_nothing_is_left_behind(peaks):
    init, call = torch.optim.AdamW.__init__, torch.nn.Module.zero_grad
    peaks(["fused", "accumulate"])
    assert torch.optim.AdamW.__init__ is init
    assert torch.nn.Module.zero_grad is call
