"""One stage of a pipeline, whose neighbours are not there: PyTorch's own schedules on the virtual GPU."""

import sys

import pytest
import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.parallel import DistributedDataParallel

from memlab import predict
from memlab.errors import Unpredictable
from memlab.trace import Category
from notebooks.ranks import pipeline

SIZES = {"world_size": 4, "batch_size": 16, "micro_batches": 16, "depth": 4, "width": 256, "context": 64}
MESSAGE = 64 * 256 * 4  # bytes, of a micro-batch of one text


def activations(rank, schedule):
    """The most that a stage holds."""
    trace = predict(pipeline.train, gpu="T4", global_rank=rank, schedule=schedule, **SIZES)
    return max(trace.timeline[Category.ACTIVATION])


def test_gpipe_holds_all_micro_batches_on_every_stage():
    assert activations(1, "gpipe") == pytest.approx(activations(2, "gpipe"), rel=0.01)


@pytest.mark.parametrize(("rank", "held"), [(1, 3), (2, 2)])
def test_1f1b_holds_as_many_micro_batches_as_there_are_stages_from_there_on(rank, held):
    one = activations(rank, "gpipe") / 16
    assert activations(rank, "1f1b") == pytest.approx(held * one, rel=0.2)


@pytest.mark.parametrize(("rank", "neighbours"), [(0, 1), (1, 2), (3, 1)])
def test_a_stage_sends_an_activation_or_a_gradient_to_each_neighbour(rank, neighbours):
    trace = predict(pipeline.train, gpu="T4", global_rank=rank, schedule="1f1b", **SIZES)
    assert trace.sent == neighbours * 16 * MESSAGE


def shapeless(device):
    stage = PipelineStage(nn.Linear(8, 8).to(device), distributed.get_rank(), 2, device)
    schedule = ScheduleGPipe(stage, 2, loss_fn=lambda y, target: y.sum())
    while True:
        schedule.step(torch.zeros(4, 8, device=device), target=torch.zeros(4, 8, device=device))
        yield None


def test_a_stage_that_would_ask_its_neighbours_for_shapes_is_refused_with_the_remedy():
    with pytest.raises(Unpredictable, match="give PipelineStage input_args and output_args"):
        predict(shapeless, world_size=2)


def largest_at_first(device):
    model = DistributedDataParallel(nn.Linear(256, 256, bias=False).to(device))
    first = torch.zeros(2**24, device=device)
    while True:
        loss = model(torch.ones(8, 256, device=device)).sum()
        loss.backward()
        model.zero_grad()
        first = None if first is None else first[:0].clone()
        yield loss


def test_what_is_sent_is_that_of_a_steady_step_wherever_the_peak_is():
    trace = predict(largest_at_first, world_size=2)
    assert trace.xray_step == 0
    assert trace.sent == 4 * 256 * 256  # not the weights too, which DDP sends once as it begins


def test_a_prediction_leaves_what_python_says_of_errors():
    before = sys.excepthook
    predict(largest_at_first, world_size=2)
    assert sys.excepthook is before
