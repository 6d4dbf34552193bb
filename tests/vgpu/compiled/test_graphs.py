"""Loops in CUDA graphs: predicted, beside what PyTorch's CUDA build takes for them on the stand-in, step by step."""

import gc
import json
from functools import partial

import pytest
import torch
from torch import nn

from memlab import predict
from memlab.vgpu.versions import TORCH as TORCH_HERE
from tests.cuda import graphs
from tests.cuda.graphs import FILE, predicted
from tests.cuda.recorded import TORCH
from tests.vgpu.compiled.loops import GRAPHED, GRAPHS, Layers, accumulated, counted, on_rows, on_text, small_gpt, text

RECORDED = graphs.RECORDED.of_this_torch()
# Some seconds each; `python -m tests.cuda.graphs` compares all of them.
HERE = [
    ("T4", "another size"),
    ("A100-40GB", "evaluated"),
    ("A100-40GB", "by layer"),
    ("A100-40GB", "dropout"),
    ("A100-40GB", "two lengths"),
]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of the compiler's own, about what a reader's machine lacks
]


@pytest.fixture(autouse=True)
def _no_garbage_is_collected():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_every_loop_is_recorded():
    for loops in json.loads(FILE.read_text())[TORCH].values():
        assert loops.keys() == GRAPHS.keys()
        assert all(loops.values())


@pytest.mark.parametrize(("card", "name"), HERE)
def test_every_step_is_equal_to_the_byte(card, name):
    if name not in RECORDED.get(card, {}):
        pytest.skip(f"nothing was recorded with torch {torch.__version__}")
    trace, figures = predicted(name, card)
    assert figures == RECORDED[card][name]
    assert [trace.peak_allocated, trace.peak_reserved] == [max(step[part] for step in figures) for part in (1, 3)]
    assert trace.notes == ()


def test_a_replay_allocates_nothing_and_works():
    seconds = []
    for mode in (None, GRAPHED):
        figures = []
        loop = partial(counted, loop=partial(on_rows, make=Layers, mode=mode), figures=figures)
        trace = predict(loop, gpu="T4", steps=4)
        seconds.append(trace.likely_seconds)
    assert figures[3][1] < figures[1][1] / 2
    assert seconds[1] == pytest.approx(seconds[0], rel=0.1)


def test_memory_that_a_graph_has_written_over_is_an_error_in_pytorchs_words():
    with pytest.raises(RuntimeError, match="accessing gradient tensor output of CUDAGraphs that has been overwritten"):
        predict(accumulated, gpu="T4")


def test_a_result_that_the_loop_keeps_is_an_error_only_where_it_is_read():
    def kept(device, *, reads):
        run = torch.compile(nn.Linear(64, 64).to(device), mode=GRAPHED)
        x, outputs = torch.ones(8, 64, device=device), []
        while True:
            with torch.no_grad():
                outputs.append(run(x))
            yield outputs[0].sum() if reads else None

    assert predict(kept, reads=False).peak_allocated > 0
    with pytest.raises(RuntimeError, match="accessing tensor output of CUDAGraphs that has been overwritten"):
        predict(kept, reads=True)


def test_the_pool_of_graphs_that_are_gone_is_given_back():
    reserved = []

    def trains_and_forgets(device):
        model = small_gpt(depth=1).to(device)
        run = torch.compile(model, mode=GRAPHED)
        x, y = (part.to(device) for part in text(4, 128))
        for done in range(5):
            loss = run(x, y)
            loss.backward()
            model.zero_grad()
            if done == 3:
                torch.cuda.empty_cache()
                reserved.append(torch.cuda.memory_reserved())
                del run
                torch._dynamo.reset()
                gc.collect()
                torch.cuda.empty_cache()
                reserved.append(torch.cuda.memory_reserved())
                return
            yield loss

    predict(trains_and_forgets, gpu="T4", steps=5)
    with_pool, without = reserved
    assert without < with_pool / 2


@pytest.mark.skipif(TORCH_HERE >= (2, 15), reason="they are whole since then, as on the stand-in's A100")
def test_a_checkpoints_random_state_is_said_to_cut_the_graphs():
    make = partial(small_gpt, depth=1, checkpoint_every=1)
    trace = predict(partial(on_text, make=make, autocast=torch.bfloat16, mode=GRAPHED), gpu="A100-40GB")
    assert any("the graphs are cut" in note for note in trace.notes)


def test_nothing_of_a_prediction_is_left():
    from torch._inductor import cudagraph_trees

    before = cudagraph_trees.torch, cudagraph_trees.get_obj, cudagraph_trees.MarkStepBox.mark_step_counter

    def marked(device):
        run = torch.compile(nn.Linear(64, 64).to(device), mode=GRAPHED)
        while True:
            torch.compiler.cudagraph_mark_step_begin()
            with torch.no_grad():
                yield run(torch.ones(8, 64, device=device)).sum()

    first, second = (predict(marked) for _ in range(2))
    after = cudagraph_trees.torch, cudagraph_trees.get_obj, cudagraph_trees.MarkStepBox.mark_step_counter
    assert after == before
    assert first.peak_allocated == second.peak_allocated
    assert not any(known.tree_manager for known in cudagraph_trees.local.tree_manager_containers.values())
