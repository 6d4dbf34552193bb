"""torch.compile in a measured loop: off in X-rayed steps, on in the others, and on afterwards."""

import subprocess
import sys
import threading
import warnings
from functools import partial

import pytest
import torch
from torch import nn

from memlab import measure, predict
from memlab.tracking import Tracker
from tests.device import DEVICE, counted_by_hand

pytestmark = [
    # PyTorch's own: importing its compiler meets deprecated names on some versions.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*"),
]


class Counting:
    """A backend that compiles nothing, but counts what it is given and how often that runs."""

    def __init__(self):
        self.compiled = self.runs = 0

    def __call__(self, graph, inputs):
        self.compiled += 1

        def run(*args):
            self.runs += 1
            return graph.forward(*args)

        return run


def compiled_function(backend):
    """A compiled function of its own code object: what PyTorch remembers, it remembers with that."""
    names = {}
    exec("def double(x):\n    return (x * 2).sin()", names)
    return torch.compile(names["double"], backend=backend)


def compiled_module(backend):
    class Double(nn.Module):
        def forward(self, x):
            return (x * 2).sin()

    exec("def forward(self, x):\n    return (x * 2).sin()", names := {})
    Double.forward = names["forward"]
    module = Double()
    module.compile(backend=backend)
    return module


def wrapped_module(backend):
    exec("def forward(self, x):\n    return (x * 2).sin()", names := {})
    return torch.compile(type("Double", (nn.Module,), {"forward": names["forward"]})(), backend=backend)


KINDS = pytest.mark.parametrize("make", [compiled_function, compiled_module, wrapped_module])


@counted_by_hand
@KINDS
def test_plain_steps_run_compiled_and_x_rayed_ones_eagerly(make):
    backend = Counting()
    runs = []

    def train(device):
        double = make(backend)
        x = torch.ones(8, requires_grad=True)
        while True:
            loss = double(x).sum()
            loss.backward()
            runs.append(backend.runs)
            yield loss

    trace = measure(train, steps=6, device=DEVICE)
    assert runs == [0, 0, 0, 1, 2, 3]
    assert backend.compiled == 1
    assert [event.op for event in trace.events if event.bytes == 32][:2] == ["aten.mul", "aten.sin"]
    (note,) = trace.notes
    assert "torch.compile" in note


def test_blocks_that_are_compiled_one_by_one_are_said_to_have_run_eagerly():
    def train(device):
        blocks = [nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(2)]
        for block in blocks:
            block.compile(backend="eager")
        model = nn.Sequential(nn.Linear(8, 8), *blocks).to(device)  # so no phase begins in a block
        while True:
            loss = model(torch.ones(4, 8, device=device)).sum()
            loss.backward()
            yield loss

    (note,) = measure(train, device="cpu", steps=2).notes
    assert "ran eagerly in the X-rayed steps" in note


@KINDS
def test_what_was_only_x_rayed_is_compiled_afterwards(make):
    backend = Counting()
    double, x = make(backend), torch.ones(8)
    with Tracker(torch.device("cpu")):
        double(x)
    assert backend.runs == 0
    double(x)
    assert backend.runs == 1


def test_what_compiles_at_its_first_call_is_compiled_afterwards():
    """In a process that has not imported the compiler before the step, and runs nothing between making and calling."""
    program = """
import torch
from memlab.tracking import Tracker

runs = []

def backend(graph, inputs):
    def run(*args):
        runs.append(1)
        return graph.forward(*args)
    return run

x = torch.ones(8)
with Tracker(torch.device("cpu")) as tracker:
    double = torch.compile(lambda x: (x * 2).sin(), backend=backend)
    double(x)
runs.clear()
double(x)
assert runs == [1], runs
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_compiler_is_not_imported_for_nothing():
    program = """
import sys, torch
from memlab import measure

def train(device):
    model = torch.nn.Linear(4, 4)
    while True:
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        yield loss

assert measure(train, device="cpu").notes == ()
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_runs_that_overlap_leave_the_compiler_on():
    """As two threads do it: the first to begin is the first to end."""
    backend = Counting()
    double = compiled_function(backend)
    begun, ended = threading.Event(), threading.Event()

    def other():
        with Tracker(torch.device("cpu")):
            double(torch.ones(3))
            begun.set()
            ended.wait()
            double(torch.ones(3))

    thread = threading.Thread(target=other)
    with Tracker(torch.device("cpu")):
        double(torch.ones(3))
        thread.start()
        begun.wait()
    ended.set()
    thread.join()
    assert backend.runs == 0
    double(torch.ones(3))
    assert backend.runs == 1


RUNS = {
    "measured": partial(measure, device="cpu", xray="every", steps=2),
    "predicted": partial(predict, gpu="T4", steps=2),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_another_thread_compiles_meanwhile(run):
    """As a reader's cell does, beside what a panel is at."""
    backend = Counting()
    double, loops_own = compiled_function(backend), compiled_function("eager")
    begun, ended = threading.Event(), threading.Event()

    def cell():
        begun.wait()
        double(torch.ones(3))
        ended.set()

    def train(device):
        yield loops_own(torch.ones(3, device=device)).sum()
        begun.set()
        assert ended.wait(60)
        yield loops_own(torch.ones(3, device=device)).sum()

    thread = threading.Thread(target=cell)
    thread.start()
    run(train)
    thread.join()
    assert (backend.compiled, backend.runs) == (1, 1)


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_code_is_not_told_that_it_is_compiled_while_another_thread_compiles(run, monkeypatch):
    """PyTorch's optimizers would otherwise do what only compiled code can."""
    compiled_function(Counting())(torch.ones(3))  # the compiler is imported
    monkeypatch.setattr(torch.compiler, "_is_compiling_flag", True)  # as for as long as any thread compiles
    answers = []

    def train(device):
        while True:
            loss = torch.ones(3, device=device).sum()
            answers.append(torch.compiler.is_compiling())
            yield loss

    run(train)
    assert answers == [False, False]
    assert torch.compiler.is_compiling()


def test_a_script_may_ask_whether_it_is_compiled():
    """As those of torch.distributed.optim do, which are scripted where it is imported first."""
    compiled_function(Counting())(torch.ones(3))
    with Tracker(torch.device("cpu")):
        torch.ones(3) + 1
        with warnings.catch_warnings(action="ignore"):
            scripted = torch.jit.script(twice_unless_compiled)
        assert scripted(torch.ones(3)).tolist() == [2, 2, 2]


def twice_unless_compiled(x: torch.Tensor) -> torch.Tensor:
    if torch.compiler.is_compiling():
        return x
    return x * 2
