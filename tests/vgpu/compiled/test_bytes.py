"""Compiled loops: predicted, beside what PyTorch's CUDA build takes for them on the stand-in, and on a GPU."""

import gc
import json

import pytest
import torch

from memlab import predict
from memlab.vgpu.versions import TORCH as TORCH_HERE
from tests.cuda import compiled
from tests.cuda.compiled import FILE, STEPS
from tests.cuda.recorded import TORCH
from tests.vgpu.compiled.loops import FIRST, LOOPS

pytestmark = pytest.mark.slow

RECORDED, ALL = compiled.RECORDED.of_this_torch(), json.loads(FILE.read_text())[TORCH]
# Some seconds each; `python -m tests.cuda.compiled` compares all of them, on every card.
HERE = {
    "A100-40GB": [
        "gpt autocast",
        "gpt and its step",
        "gpt by layer",
        "gpt lengths",
        "layers checkpointed",
        "layers with breaks",
        "adapters",
        "flex attention",  # whose template Triton would load to time it
        "llama, checkpoints in a whole",  # whose random state is no unaligned input
    ],
    "T4": ["llama", "loss alone", "gpt with an added mask"],  # which takes the fused attention
}
# With convolutions, whose workspaces cuDNN is asked for; with a note of what a clock decides; and those that take the
# longest and whose mechanisms others have, too.
ELSEWHERE = {
    *("diffusion", "convnext", "mobilenet channels last", "adversaries", "contrast", "teacher"),
    *("recommender", "code book", "preferences", "layers tuned"),
    *("masked language model", "llama, checkpoints around blocks", "gpt with adapters", "clipping and the step"),
    "layers checkpointed, twice",  # notebook 14's
}
NAMED = [(card, name) for card, names in HERE.items() for name in names]
# Of the others each on one card, in turn. A T4 has a note of bfloat16 in many.
FULL = ("T4", "A100-40GB", "H100", "RTX 5090")  # for which all loops are recorded
NEWER = sorted(LOOPS.keys() - FIRST.keys() - ELSEWHERE - {name for _, name in NAMED})
IN_TURN = [(FULL[1 + i % 2], name) for i, name in enumerate(NEWER)]


def test_every_loop_is_recorded():
    for card, loops in ALL.items():
        assert loops.keys() == LOOPS.keys() if card in FULL else loops.keys() >= FIRST.keys()
        assert all(loops.values())


@pytest.fixture
def no_garbage_is_collected():
    """As in a process that has just begun: what the compiler leaves in cycles is still there in the next steps."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_is_collected")
@pytest.mark.filterwarnings("ignore")  # of the compiler's own, about what a reader's machine lacks
@pytest.mark.parametrize(("card", "name"), [*NAMED, *IN_TURN])
def test_equal_to_the_byte(card, name):
    if name not in RECORDED.get(card, {}):
        pytest.skip(f"nothing was recorded with torch {torch.__version__}")
    trace = predict(LOOPS[name], gpu=card, steps=STEPS)
    assert [trace.peak_allocated, trace.peak_reserved] == RECORDED[card][name]
    assert trace.notes == ()


@pytest.mark.parametrize("card", ALL)
def test_compiled_code_takes_less_than_eager(card):
    """Were these loops to run as they are written, the figures would be others."""
    taken = {name: allocated for name, (allocated, _) in ALL[card].items()}
    assert max(taken["gpt"], taken["gpt fullgraph"]) < 0.95 * taken["gpt eager backend"]


# Of a real card, in a process that finds the compiler's choices in its cache: where it does not, timing takes memory.
MEASURED = json.loads(FILE.with_name("measured.json").read_text())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(TORCH_HERE >= (2, 15), reason="measured where cuBLAS kept its workspaces")
@pytest.mark.parametrize("name", ["gpt 50257 tokens", "llama by layer"])
def test_a_gpu_takes_what_is_predicted(name):
    trace = predict(LOOPS[name], gpu=MEASURED["card"], steps=STEPS)
    same = MEASURED["torch"].startswith(torch.__version__.partition("+")[0])
    within = {"rel": 0 if same else 0.005}  # other versions fuse otherwise
    assert [trace.peak_allocated, trace.peak_reserved] == pytest.approx(MEASURED["loops"][name], **within)
