"""One rank of many, predicted, against as many processes with NCCL on cards that are not there."""

import json
import os
import subprocess
import sys

import pytest
import torch

from memlab import predict
from memlab.vgpu import CARDS
from tests.cuda.ranks import COMPILED, LOOPS

pytestmark = pytest.mark.skipif("STANDIN_CARD" not in os.environ, reason="needs the stand-in's card: make test-cuda")

RANKS = (2, 4)
# Of FullyShardedDataParallel a segment of 2 MiB is missed; of small DTensors one is too many on four ranks, and of the
# keys that PyTorch's ring gathers one of 20 MiB on two.
RESERVED = {"flattened_and_offloaded": 0.01, "flattened": 0.01, "flattened_and_kept": 0.01}
RESERVED |= {"attention_of_dtensors": 0.05, "ring_of_pytorch": 0.14, "ring_of_pytorch_sent_round": 0.02}
# Of DTensors a block of 4 KiB lies elsewhere in the first step, so that later ones are split in another way; from two
# ranks on an H100 that is the first step alone, on four nothing.
NEARLY = {"sequence_parallel": 0.01, "ring_of_pytorch": 0.01, "ring_of_pytorch_sent_round": 0.01}
# In processes of their own these are equal, steps and reserved; after another loop 1.5 MiB of slack are missed.
NEARLY |= {"sharded_and_compiled": 0.006, "sharded_and_compiled_by_block": 0.006}
# On four T4 it is 1.4 MiB of slack.
FARTHER = {("sequence_parallel", "T4", 4): 0.02}
# On four A100 or H100 a segment of 2 MiB is missed; the peak is equal there.
RESERVED_FARTHER = {("sequence_parallel", "A100-40GB", 4): 0.02, ("sequence_parallel", "H100", 4): 0.02}
# FSDP and Dynamo warn, and what is an error there breaks a graph.
SHARDED = pytest.mark.filterwarnings("ignore")


def peaks_of(count, group, folder):
    """The peaks of each rank, and the name of the card."""
    card = next(card.name for card in CARDS.values() if card.driver_name == torch.cuda.get_device_name())
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("STANDIN_", "LD_PRELOAD"))}
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    command = [sys.executable, "-m", "tests.standin", f"{card}:{count}", *torchrun]
    subprocess.run([*command, "-m", "tests.cuda.ranks", folder, group], check=True, env=outside, timeout=600)
    return card, [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]


@pytest.fixture(scope="module", params=RANKS, ids="{}-ranks".format)
def measured(request, tmp_path_factory):
    return peaks_of(request.param, "eager", tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    pytest.importorskip("triton", reason="Inductor writes kernels in it")
    # Twice: compiling times some kernels on the card, which takes memory. The second processes find what was chosen.
    peaks_of(2, "compiled", tmp_path_factory.mktemp("compiling"))
    return peaks_of(2, "compiled", tmp_path_factory.mktemp("compiled"))


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # which torch.compile has
@pytest.mark.parametrize(
    "loop",
    [pytest.param(loop, marks=SHARDED if "sharded" in loop.__name__ else (), id=loop.__name__) for loop in COMPILED],
)
def test_a_rank_takes_what_is_predicted_of_compiled_code(loop, compiled):
    check(loop, *compiled)


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_a_rank_takes_what_is_predicted(loop, measured):
    check(loop, *measured)


def check(loop, card, ranks):
    case = (loop.__name__, card, len(ranks))
    near = FARTHER.get(case, NEARLY.get(loop.__name__, 0))
    reserved_near = RESERVED_FARTHER.get(case, RESERVED.get(loop.__name__, 0))
    for rank in {0, len(ranks) - 1}:
        trace = predict(loop, gpu=card, world_size=len(ranks), global_rank=rank)
        peaks, reserved = ranks[rank][loop.__name__]
        predicted = [step.peak_allocated for step in trace.steps]
        assert predicted == pytest.approx(peaks, rel=near, abs=0)
        assert trace.peak_reserved == pytest.approx(reserved, rel=reserved_near)
