"""Of a compiled step a prediction says as much as of an eager one: which module a buffer is for, and what it is."""

import pytest
import torch
from torch import nn
from torch._functorch import config

from memlab import predict
from memlab.categories import Category, Phase
from memlab.nets import GPT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]
SIZES = {"vocabulary": 128, "context": 64, "width": 64, "depth": 2, "heads": 2}
PARTS = [f"blocks.{place}{part}" for place in range(2) for part in ("", ".attention", ".mlp.0", ".mlp.1", ".mlp.2")]


def train(device, *, compiled, recomputing=0.0, sizes=SIZES):
    """Train a GPT that is ``compiled`` as a whole, by block, in a function that calls it, or not."""
    model = GPT(**sizes).to(device)
    run = model
    if compiled == "model":
        run = torch.compile(model)
    elif compiled == "blocks":
        model.blocks = nn.ModuleList(torch.compile(block) for block in model.blocks)
    elif compiled == "blocks in place":
        for block in model.blocks:
            block.compile()
    elif compiled == "function":
        run = torch.compile(lambda *batch: 2 * model(*batch))
    tokens = torch.randint(0, 128, (4, 64), device=device)
    with config.patch(activation_memory_budget=1 - recomputing):
        while True:
            loss = run(tokens, tokens)
            scaled = loss * torch.ones(2**20, device=device)
            scaled.mean().backward()
            model.zero_grad()
            yield loss


def born(trace, phase):
    return [event for event in trace.events if event.bytes > 0 and event.phase is phase]


@pytest.mark.parametrize("compiled", ["model", "blocks", "blocks in place", "function"])
def test_buffers_are_named_after_the_modules_and_operators_that_they_are_for(compiled):
    trace, eager = predict(train, compiled=compiled), predict(train, compiled="")
    modules = {event.module for event in (*trace.events, *eager.events)}
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        at = {event.module for event in born(trace, phase)}
        assert at >= {"blocks.1.mlp.0", "blocks.1.mlp.2", "blocks.0.attention"}
    assert not [name for name in modules if "_orig_mod" in name]
    assert {event.module for event in trace.events} <= {event.module for event in eager.events} | set(PARTS)
    assert {"aten.addmm", "aten.mm", "aten.mul"} <= {event.op for event in born(trace, Phase.FORWARD)}
    assert "aten.empty_strided" not in {event.op for event in trace.events}


@pytest.mark.parametrize("compiled", ["model", "blocks", "function"])
def test_what_backward_needs_is_an_activation_wherever_it_is_compiled(compiled):
    trace = predict(train, compiled=compiled)
    kept = [event for event in born(trace, Phase.FORWARD) if event.module == "blocks.0.mlp.0"]
    assert kept
    assert {event.category for event in kept if event.bytes >= 2**16} - {Category.WORKSPACE} == {Category.ACTIVATION}
    assert Category.INPUT not in {event.category for event in born(trace, Phase.FORWARD)}


def test_after_compiled_code_no_module_is_at_work():
    trace = predict(train, compiled="model")
    (scaled,) = [event for event in born(trace, Phase.FORWARD) if event.op == "aten.mul" and event.bytes == 2**22]
    assert scaled.module == ""


@pytest.mark.parametrize("recomputing", [0, 0.7])
def test_what_a_budget_has_backward_compute_again_is_told_from_what_was_kept(recomputing):
    trace = predict(train, compiled="model", recomputing=recomputing)
    again = [event for event in born(trace, Phase.BACKWARD) if event.category is Category.RECOMPUTED]
    assert {"blocks.0.mlp.1", "blocks.1.mlp.1"} & {event.module for event in again if event.bytes >= 2**16} == (
        {"blocks.0.mlp.1", "blocks.1.mlp.1"} if recomputing else set()
    )


def test_a_model_of_which_the_code_is_known_already_is_named_alike():
    first, second = (predict(train, compiled="model") for _ in range(2))
    assert first == second


def test_where_memory_runs_out_in_compiled_code_its_part_of_the_model_is_named():
    failed = predict(train, compiled="model", budget="3 MiB", sizes=SIZES | {"depth": 6}).oom
    assert failed.phase is Phase.FORWARD
    assert failed.module.startswith("blocks.")
