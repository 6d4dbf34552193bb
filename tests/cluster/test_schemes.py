"""The same loss as one process with the whole batch, and the resident bytes that each scheme's arithmetic says."""

import importlib
import math
import subprocess
import sys
from pathlib import Path

import pytest

from memlab import measure, predict
from memlab.categories import Category, Phase
from memlab.nets import GPT
from memlab.trace import Trace
from tests.cluster import whole
from tests.cluster.schemes import of_loop

ROOT = Path(__file__).parents[2]
SIZES = {"depth": 4, "width": 32, "heads": 4, "context": 32}


def sharded(strategy):
    return "sharded", {"strategy": strategy, "batch_per_rank": 4, "sizes": SIZES}


TWO = (
    ("data_parallel", {}),
    ("data_parallel", {"bucket_view": True, "static_graph": True}),
    ("pipeline", {"schedule": "gpipe", "depth": 4}),
    ("pipeline", {"schedule": "1f1b", "depth": 4}),
    ("pipeline", {"schedule": "interleaved", "depth": 4}),
    ("tensor_parallel", {}),
    ("fsdp", {}),
    ("fsdp", {"reshard": False}),
    ("fsdp", {"context": 33}),
    *map(sharded, ("ddp", "zero-1", "zero-2", "zero-3")),
)
FOUR = (("fsdp_and_tensor_parallel", {}),)


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """The traces of each run, a rank each, by what was run."""
    found = {}
    for ranks, runs in ((2, TWO), (4, FOUR)):
        folder = tmp_path_factory.mktemp("schemes")
        command = [sys.executable, "-m", "tests.cluster.schemes", str(ranks), folder, *map(repr, runs)]
        subprocess.run(command, cwd=ROOT, check=True)
        for number, run in enumerate(runs):
            files = (folder / f"{number}-{rank}.json" for rank in range(ranks))
            found[repr(run)] = [Trace.from_json(file.read_text()) for file in files]
    return found


def losses(traces):
    """Of each step the mean over the ranks that have one."""
    return [mean([loss for loss in step if loss is not None]) for step in zip(*(t.losses for t in traces), strict=True)]


def mean(values):
    return sum(values) / len(values)


@pytest.mark.slow
@pytest.mark.parametrize("run", [*TWO, *FOUR], ids=repr)
def test_the_loss_is_that_of_one_process_with_the_whole_batch(traces, run):
    sizes = {name: value for name, value in run[1].items() if name == "context"}
    one = measure(whole.train, device="cpu", tied=run[0] != "pipeline", **sizes)
    assert losses(traces[repr(run)]) == pytest.approx(one.losses, abs=1e-5)


# Resident bytes: those at the start of a step, and gradients as the optimizer begins.


def residents(trace):
    """Bytes of parameters, gradients and optimizer state."""
    optimizer = next(first for phase, first, _ in trace.phases if phase is Phase.OPTIMIZER)
    start = trace.start
    return start[Category.PARAMETER], trace.timeline[Category.GRADIENT][optimizer], start[Category.OPTIMIZER_STATE]


def adamw(shapes):
    """The same of so many parameters in float32: AdamW keeps two numbers for each, and for each tensor a step count."""
    numbers = sum(math.prod(shape) for shape in shapes)
    return 4 * numbers, 4 * numbers, 8 * numbers + 4 * len(shapes)


def shapes(**sizes):
    """Of the parameters of the whole model, by name."""
    model = GPT(**{"depth": 4, "width": 32, "heads": 4, "context": 32} | sizes)
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def rows(shape, ranks, rank=0):
    """The rows that FSDP2 gives to a rank: the first ones get as many as it takes."""
    most = -(-shape[0] // ranks)
    return (min(most, shape[0] - rank * most), *shape[1:])


def piece(name, shape, ranks):
    """Return the shape of a weight under tensor parallelism: part of the rows or columns, or all outside of blocks."""
    if any(layer in name for layer in ("qkv", "mlp.0")):
        return rows(shape, ranks)
    if name.endswith(("out.weight", "mlp.2.weight")):
        return (shape[0], shape[1] // ranks)
    return shape


def test_ddp_leaves_everything_on_every_rank_and_gradients_once_more_in_its_buckets(traces):
    for trace in traces[repr(TWO[0])]:
        parameters, gradients, state = residents(trace)
        assert (parameters, gradients, state) == adamw(shapes().values())
        assert trace.start[Category.COMMUNICATION] == gradients


def test_ddp_with_gradients_as_views_of_its_buckets_has_them_once(traces):
    for trace in traces[repr(TWO[1])]:
        assert residents(trace) == adamw(shapes().values())
        assert trace.start[Category.GRADIENT] == residents(trace)[1]  # they stay from step to step
        assert trace.start.get(Category.COMMUNICATION, 0) < 4 * len(shapes()) + 1  # which of them were used


@pytest.mark.parametrize("run", TWO[2:5], ids=repr)
def test_a_pipeline_leaves_each_rank_its_own_blocks(traces, run):
    parts = 4 if run[1]["schedule"] == "interleaved" else 2
    whole_model = shapes()
    for rank, trace in enumerate(traces[repr(run)]):
        own = [shape for name, shape in whole_model.items() if _rank_of(name, parts) == rank]
        own += [whole_model["token_embedding.weight"]] if rank == 1 else []  # the head has a copy of its twin
        assert residents(trace) == adamw(own)


def _rank_of(name, parts):
    if name.startswith("blocks"):
        return int(name.split(".")[1]) * parts // 4 % 2
    return 0 if "embedding" in name else 1


def test_tensor_parallel_splits_the_matrices_of_the_blocks(traces):
    for trace in traces[repr(TWO[5])]:
        assert residents(trace) == adamw([piece(name, shape, 2) for name, shape in shapes().items()])


@pytest.mark.parametrize("run", [run for run in TWO if run[0] == "fsdp"], ids=repr)
def test_fsdp_leaves_each_rank_its_rows_and_padding_where_they_are_odd(traces, run):
    whole_model = shapes(**{name: value for name, value in run[1].items() if name == "context"}).values()
    parameters, gradients, _ = adamw([rows(shape, 2) for shape in whole_model])  # padded to the first rank's
    for rank, trace in enumerate(traces[repr(run)]):
        _, _, state = adamw([rows(shape, 2, rank) for shape in whole_model])
        assert residents(trace) == (parameters, gradients, state)


def test_fsdp_with_tensor_parallel_leaves_a_row_of_each_piece(traces):
    for trace in traces[repr(FOUR[0])]:
        assert residents(trace) == adamw([rows(piece(name, shape, 2), 2) for name, shape in shapes().items()])


def test_fsdp_frees_what_it_has_gathered(traces):
    gathered, kept = (max(trace.timeline[Category.PARAMETER]) for trace in (traces[repr(run)][0] for run in TWO[6:8]))
    whole_model, block = (sum(map(math.prod, part)) for part in (shapes().values(), _block().values()))
    assert kept - gathered == 4 * 3 * block  # with resharding one block at a time is whole, not all four
    assert gathered < 4 * whole_model


def test_what_fsdp_gathers_and_gloo_copies_is_named(traces):
    trace = traces[repr(TWO[6])][0]
    assert not any("profiler" in event.op for event in trace.events)  # the marks around what it does allocate nothing
    begun = {event.category for event in trace.events if event.phase is Phase.BACKWARD and event.bytes > 0}
    assert Category.COMMUNICATION in begun  # gloo's copies of what it reduces among them
    assert Category.INPUT not in begun


def _block():
    return {name: shape for name, shape in shapes().items() if name.startswith("blocks.0.")}


# A pass over the parameters is half of them for each of two ranks; stage 1 broadcasts all of them besides.
@pytest.mark.parametrize(("strategy", "times"), [("ddp", 1), ("zero-1", 2), ("zero-2", 1), ("zero-3", 1.5)])
def test_what_each_stage_of_zero_sends(traces, strategy, times):
    numbers = sum(map(math.prod, shapes().values()))
    for trace in traces[repr(sharded(strategy))]:
        assert trace.sent == 4 * numbers * times


def test_zero_1_cuts_the_optimizer_state_between_tensors(traces):
    states = [trace.start[Category.OPTIMIZER_STATE] for trace in traces[repr(sharded("zero-1"))]]
    assert sum(states) == adamw(shapes().values())[2]
    assert max(states) < 0.6 * sum(states)


# Predicted: the same loops on a virtual card


@pytest.mark.filterwarnings("ignore:.torch.jit")  # deprecated, and PyTorch's own optimizers use it
@pytest.mark.parametrize("run", [*TWO, *FOUR], ids=repr)
def test_each_rank_is_predicted_to_hold_and_send_what_it_does(traces, run):
    module, settings = run
    train = importlib.import_module(f"notebooks.ranks.{module}").train
    for real in traces[repr(run)]:
        trace = predict(train, world_size=real.world_size, global_rank=real.rank, **of_loop(settings))
        assert residents(trace)[:2] == residents(real)[:2]
        assert 0 <= residents(real)[2] - residents(trace)[2] <= 4 * len(shapes())  # counts of steps, on the host
        assert trace.sent == real.sent
