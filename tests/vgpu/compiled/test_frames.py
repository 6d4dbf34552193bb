"""The isolation of a prediction's compilation: the reader's compiled code stays as it was."""

import logging
import re
import subprocess
import sys
import threading
from functools import partial

import pytest
import torch
from torch import distributed, nn
from torch._inductor.graph import GraphLowering

from memlab import predict

pytestmark = pytest.mark.filterwarnings("ignore")


class Counting:
    """A backend that compiles nothing, but counts the graphs that it is given."""

    def __init__(self):
        self.compiled = 0

    def __call__(self, graph, inputs):
        self.compiled += 1
        return graph.forward


def own_function(**options):
    """A compiled function of its own code object: what PyTorch remembers, it remembers with that."""
    exec("def double(x):\n    return (x * 2).sin()", names := {})
    return torch.compile(names["double"], **options)


def train(device, *, run, sizes=(8,)):
    weight = {size: torch.ones(size, device=device, requires_grad=True) for size in sizes}
    done = 0
    while True:
        loss = run(weight[sizes[done % len(sizes)]]).sum()
        loss.backward()
        done += 1
        yield loss


def test_the_readers_own_compiled_code_stays():
    backend = Counting()
    double = own_function(backend=backend)
    double(torch.ones(3))
    predict(train, run=double)
    assert backend.compiled == 2
    double(torch.ones(3))
    assert backend.compiled == 2


def test_what_a_prediction_compiled_does_not_count_towards_the_limit_of_recompilations():
    backend = Counting()
    double = own_function(backend=backend, dynamic=False)
    for size in range(2, 2 + torch._dynamo.config.recompile_limit + 2):
        predict(train, run=double, sizes=(size,))
    before = backend.compiled
    double(torch.ones(3))
    assert backend.compiled == before + 1


def test_sizes_of_a_prediction_make_nothing_dynamic_for_the_reader():
    dynamic = []

    def backend(graph, inputs):
        dynamic.append(any(isinstance(given, torch.SymInt) for given in inputs))
        return graph.forward

    double = own_function(backend=backend)
    predict(train, run=double, sizes=(8, 16), steps=4)
    assert dynamic == [False, True]  # as in a process of its own, it is compiled for all sizes when they change
    double(torch.ones(3))
    assert dynamic == [False, True, False]
    predict(train, run=double, sizes=(24,))
    assert dynamic == [False, True, False, False]


def test_layers_that_are_alike_are_compiled_once():
    backend = Counting()
    exec("def forward(self, x):\n    return (x * self.weight).sin()", names := {})
    layer = type("Layer", (nn.Module,), {"forward": names["forward"]})
    layers = [layer() for _ in range(12)]
    for layer in layers:
        layer.weight = nn.Parameter(torch.ones(4))
        layer.compile(backend=backend)

    def uses(device):
        x = torch.ones(4, device=device)
        for layer in layers:
            x = layer.to(device)(x)
        yield x.sum()

    assert predict(uses).notes == ()
    assert backend.compiled == 2  # with an input that needs no gradient, and with one that does


def test_a_module_whose_instance_has_a_forward_of_its_own_is_compiled_with_the_others():
    """As libraries replace it (accelerate's hooks, peft): Dynamo then inlines PyTorch's call, which asks for hooks."""
    backend = Counting()
    exec("def forward(self, x):\n    return self.inner(self.first(x)) * 2", names := {})
    outer = type("Outer", (nn.Module,), {"forward": names["forward"]})

    def uses(device):
        model = outer()
        model.first, model.inner = nn.Linear(4, 4), nn.Linear(4, 4)
        model.inner.forward = lambda x: x.sin()
        model.to(device).compile(backend=backend)
        yield model(torch.ones(4, 4, device=device)).sum()

    assert predict(uses).notes == ()
    assert backend.compiled == 1


def test_two_predictions_are_alike():
    double = own_function()
    first, second = (predict(train, run=double, sizes=(1 << 20, 1 << 19), steps=4) for _ in range(2))
    assert first.allocated == second.allocated
    assert [step.peak_allocated for step in first.steps] == [step.peak_allocated for step in second.steps]


def test_another_thread_compiles_for_the_host_meanwhile():
    double, begun, results = own_function(backend="eager"), threading.Event(), []

    def cell():
        begun.wait()
        results.append(double(torch.ones(3)))

    def waits(device):
        run = own_function()
        weight = torch.ones(8, device=device, requires_grad=True)
        begun.set()
        yield run(weight).sum()
        thread.join()
        yield run(weight).sum()

    thread = threading.Thread(target=cell)
    thread.start()
    assert predict(waits, steps=2).oom is None
    assert results[0].tolist() == pytest.approx([0.9093] * 3, abs=1e-4)


def test_out_of_memory_in_compiled_code():
    def large(device):
        model = torch.compile(nn.Sequential(nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 4096)).to(device))
        while True:
            loss = model(torch.ones(4096, 4096, device=device)).sum()
            loss.backward()
            yield loss

    trace = predict(large, gpu="T4", budget="200 MiB")
    assert trace.oom is not None
    assert trace.oom.limit == 200 * 2**20


def test_what_needs_a_clock_is_left_out_in_words():
    plain = predict(train, run=own_function())
    trace = predict(train, run=own_function(mode="max-autotune-no-cudagraphs"))
    assert trace.peak_allocated == plain.peak_allocated
    assert sum("Autotuning" in note for note in trace.notes) == 1


def test_what_cannot_be_compiled_is_predicted_as_it_is_written():
    def backend(graph, inputs):
        raise ValueError("no such thing")

    trace = predict(train, run=own_function(backend=backend))
    (note,) = trace.notes
    assert note.startswith("double could not be compiled for the card")
    assert "no such thing" in note
    assert trace.peak_allocated == predict(train, run=own_function(backend="eager")).peak_allocated


def test_a_region_that_computes_on_the_host_is_predicted_as_it_is_written():
    def on_both(device):
        @torch.compile
        def both(x, y):
            return (x * 2).sum() + (y * 2).sum().to(x.device)

        yield both(torch.ones(100, device=device), torch.ones(100))

    (note,) = predict(on_both).notes
    assert "both could not be compiled" in note
    assert "it computes on the host, too" in note


def test_a_break_that_fullgraph_forbids_is_told_once_with_its_line():
    def broken(device):
        @torch.compile(fullgraph=True)
        def scaled(x):
            y = x * 2
            str(y)
            return (y * 3).sum()

        for _ in range(2):
            yield scaled(torch.ones(8, device=device, requires_grad=True))

    (note,) = predict(broken).notes
    assert re.match(
        r"torch.compile\(fullgraph=True\) raises an error at test_frames.py:\d+, because the graph breaks", note
    )
    assert note.endswith("It is predicted as with fullgraph=False.")


def test_a_function_of_the_loop_may_ask_what_the_virtual_card_answers():
    """The functions that memlab puts in place of PyTorch's own are not traced in their place."""

    def asks(device):
        @torch.compile(fullgraph=True)
        def scaled(x):
            return x * torch.tensor(2.0, device=device) if torch.cuda.is_available() else x

        yield scaled(torch.ones(8, device=device)).sum()

    assert predict(asks).oom is None


@pytest.mark.parametrize("world_size", [None, 2])
def test_the_compiler_knows_all_functions_after_a_process_group(tmp_path, world_size):
    """PyTorch then makes its table of its functions anew, which must not have what stands in their places."""
    called = []

    def backend(graph, inputs):
        called.extend(node.target for node in graph.graph.nodes)
        return graph.forward

    def train(device):
        numbers = torch.ones(3, device=device, requires_grad=True)
        yield torch.compile(module, backend=backend)(numbers).sum()

    exec("def forward(self, x):\n    return x + torch.arange(3, device=x.device)", names := {"torch": torch})
    module = type("Places", (nn.Module,), {"forward": names["forward"]})()
    predict(train)
    whole = called.copy()
    assert torch.arange in whole
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    distributed.destroy_process_group()
    for run in (partial(predict, train, world_size=world_size), partial(next, train("cpu"))):
        called.clear()
        run()
        assert called == whole


FIRST = """
import torch
from memlab import predict
from memlab.patching import behind

def train(device):
    yield torch.compile(torch.nn.Linear(2, 2).to(device), backend="eager")(torch.ones(2, device=device)).sum()

predict(train, world_size=2)

from torch._dynamo import trace_rules
from torch._dynamo.variables.torch import get_overridable_functions

tables = trace_rules.get_torch_obj_rule_map(), trace_rules.get_tensor_method(), get_overridable_functions()
print(*(f"{function!r}" for table in tables for function in table if behind(function) is not function), sep="\\n")
print(*(torch.arange in tables[0], torch.Tensor.to in tables[1], torch.zeros_like in tables[2]))
"""


def test_tables_that_a_prediction_is_the_first_to_ask_for_have_pytorchs_own_functions():
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", FIRST], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True"] * 3


def test_each_prediction_asks_its_own_card():
    """The processors of a card decide into how many parts a sum is split; PyTorch asks for them once in a process."""
    from torch._inductor.runtime.hints import DeviceProperties

    def sums(device):
        run = torch.compile(lambda x: (x * x).sum(0))
        yield run(torch.ones(1 << 20, 4, device=device)).sum()

    remembered = DeviceProperties.create.cache_info()
    first, other, again = (predict(sums, gpu=gpu).peak_allocated for gpu in ("T4", "A100-40GB", "T4"))
    assert first == again < other
    assert DeviceProperties.create.cache_info() == remembered  # for a card that is there


def test_what_a_small_card_lacks_for_autotuning_is_not_said(caplog):
    def multiplies(device):
        yield torch.compile(nn.Linear(8, 8).to(device))(torch.ones(8, 8, device=device)).sum()

    assert predict(multiplies, gpu="T4").notes == ()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_modules_that_were_compiled_before_are_compiled_for_the_card():
    model = nn.Sequential(nn.Linear(3, 3))
    model[0].compile()

    def uses(device):
        yield model.to(device)(torch.ones(3, device=device)).sum()

    predict(uses)
    assert all(parameter.device.type == "cpu" for parameter in model.parameters())


def test_the_time_of_a_compiled_step_is_that_of_what_it_moves():
    def gelu(device, *, compiled):
        def three(x):
            return torch.nn.functional.gelu(x * 2 + 1)

        run = torch.compile(three) if compiled else three
        x = torch.ones(1 << 26, device=device)
        while True:
            yield run(x).sum()

    eager, compiled = (predict(gelu, gpu="A100-40GB", compiled=compiled) for compiled in (False, True))
    assert 0.2 < compiled.likely_seconds / eager.likely_seconds < 0.9


def test_the_same_code_is_not_compiled_again_for_the_same_card(monkeypatch):
    def with_other_code(device, *, rows=24):
        run = own_function()
        weight = torch.ones(rows, 1208, device=device, requires_grad=True)  # of sizes that no other test has
        while True:
            loss = run(weight).sum()
            loss.backward()
            weight.grad = None
            yield loss

    written = []
    codegen = GraphLowering.codegen
    monkeypatch.setattr(GraphLowering, "codegen", lambda self: written.append(self) or codegen(self))
    first, again = (predict(with_other_code, gpu="A100-40GB", steps=2) for _ in range(2))
    assert len(written) == 2  # forward and backward
    assert again.events == first.events
    predict(with_other_code, gpu="H100", steps=2)
    assert len(written) == 4
    predict(with_other_code, gpu="A100-40GB", steps=2, rows=40)
    assert len(written) == 6
