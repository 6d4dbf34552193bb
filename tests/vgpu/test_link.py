"""The time of communication: worked out by hand, and the part of it beside computation."""

import math

import pytest
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from memlab import predict
from memlab.vgpu import CARDS
from memlab.vgpu.time.estimate import FITTED

NUMBERS = 2**26
SIZE = 4096
T4 = CARDS["T4"].speed


def communicating(device, *, overlapped=False, group=1, stride=1):
    """Products, half of them after an all-reduce, in a group of every ``stride``-th rank."""
    factor, numbers = torch.empty(SIZE, SIZE, device=device), torch.empty(NUMBERS, device=device)
    ranks = list(range(0, group * stride, stride))
    members = distributed.new_group(ranks)
    while True:
        torch.mm(factor, factor)
        if group > 1:
            distributed.all_reduce(numbers, group=members, async_op=overlapped)
        torch.mm(factor, factor)
        yield


def exposed(world_size=8, **settings):
    """Seconds that communication adds to a step."""
    alone = predict(communicating, world_size=world_size)
    return predict(communicating, world_size=world_size, **settings).likely_seconds - alone.likely_seconds


def seconds(ranks, speed):
    sent = 4 * NUMBERS * 2 * (ranks - 1) // ranks
    return sent / (FITTED.link * speed) + FITTED.hop * math.ceil(math.log2(ranks))


@pytest.mark.parametrize(
    ("world_size", "group", "stride", "speed"),
    [
        (8, 8, 1, T4.link),
        (8, 2, 1, T4.link),
        (64, 64, 1, T4.network),
        (64, 8, 8, T4.network / 8),  # one card of each machine: the others' groups send too
        (64, 8, 1, T4.link),  # within the first machine
    ],
)
def test_a_collective_that_is_waited_for_takes_its_bytes_over_the_slowest_link(world_size, group, stride, speed):
    found = exposed(world_size, group=group, stride=stride)
    assert found == pytest.approx(seconds(group, speed), rel=1e-3)


def test_one_that_is_not_waited_for_goes_on_beside_what_comes_next_but_is_waited_for_in_the_end():
    product = 2 * SIZE**3 / (FITTED.plain * T4.fp32) + FITTED.kernel
    assert exposed(group=8, overlapped=True) == pytest.approx(seconds(8, T4.link), rel=1e-3)  # the last of its step

    def twice(device):
        steps = communicating(device, group=8, overlapped=True)
        while True:
            next(steps)
            next(steps)
            yield

    four_products = 2 * predict(communicating, world_size=8).likely_seconds
    hidden = min(seconds(8, T4.link), 2 * product)  # the first one, beside two products
    expected = four_products + 2 * seconds(8, T4.link) - hidden
    assert predict(twice, world_size=8).likely_seconds == pytest.approx(expected, rel=1e-3)


def replicated(device):
    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8))).to(device))
    optimizer = torch.optim.SGD(model.parameters())
    while True:
        loss = model(torch.ones(4096, 2048, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def test_data_parallel_overlaps_with_backward_and_says_what_is_assumed():
    one, eight = (predict(replicated, world_size=ranks) for ranks in (1, 8))
    sending = eight.sent / (FITTED.link * T4.link)
    assert 0 < eight.likely_seconds - one.likely_seconds < 0.5 * sending
    assert eight.least_seconds == one.least_seconds
    (note,) = eight.notes
    assert note.startswith(f"Sending {eight.sent / 2**20:.0f} MiB to other ranks takes about ")
    assert note.endswith("(assumed: machines of 8 cards, 16 GB/s between the ranks, none of them late)")
    assert one.notes == ()


def test_the_optimizer_waits_for_the_last_bucket_of_data_parallel_and_the_events_stand_behind_it():
    one, eight = (predict(replicated, world_size=ranks) for ranks in (1, 8))
    ((begin, end),) = eight.waits
    assert end - begin == pytest.approx(eight.likely_seconds - one.likely_seconds, rel=0.01)
    assert not any(begin < moment < end for moment in eight.seconds)
    optimizer = next(first for phase, first, _ in eight.phases if phase == "optimizer")
    assert eight.seconds[optimizer + 1] >= end
    assert eight.seconds[-1] == pytest.approx(eight.likely_seconds, rel=0.01)
    assert one.waits == ()


def test_what_is_waited_for_at_once_is_known_with_its_moment():
    product = predict(communicating, world_size=8).likely_seconds / 2
    ((begin, end),) = predict(communicating, world_size=8, group=8).waits
    assert (begin, end - begin) == pytest.approx((product, seconds(8, T4.link)), rel=1e-3)


def test_a_stage_of_a_pipeline_has_no_likely_time():
    def stage(device):
        activation = torch.empty(NUMBERS, device=device)
        while True:
            distributed.recv(activation, src=0)
            torch.mm(activation[: 2**20].view(1024, 1024), activation[: 2**20].view(1024, 1024))
            yield

    trace = predict(stage, world_size=2, global_rank=1)
    assert trace.likely_seconds is None
    assert trace.waits == ()
    assert trace.least_seconds > 0
    assert trace.time_sentence == ""
    assert trace.notes == ()


def in_a_ring(device, *, ranks, part=1):
    """Each rank sends to the next what it has from the one before, and computes."""
    numbers, factor = torch.empty(NUMBERS, device=device), torch.empty(SIZE, SIZE, device=device)
    arrived, after = torch.empty_like(numbers), (distributed.get_rank() + 1) % ranks
    before = (distributed.get_rank() - 1) % ranks
    while True:
        torch.mm(factor, factor)
        if ranks > 1:
            send = distributed.P2POp(distributed.isend, numbers, after)
            receive = distributed.P2POp(distributed.irecv, arrived[: NUMBERS // part], before)
            for work in distributed.batch_isend_irecv([send, receive]):
                work.wait()
        torch.mm(factor, factor)
        yield


@pytest.mark.parametrize(("world_size", "speed"), [(2, T4.link), (8, T4.link), (16, T4.link)])
def test_a_turn_of_a_ring_takes_its_bytes_and_is_waited_for(world_size, speed):
    alone = predict(in_a_ring, ranks=1, world_size=world_size).likely_seconds
    found = predict(in_a_ring, ranks=world_size, world_size=world_size)
    assert found.likely_seconds - alone == pytest.approx(4 * NUMBERS / (FITTED.link * speed) + FITTED.hop, rel=1e-3)
    assert found.sent == 4 * NUMBERS


def test_a_turn_to_another_machine_goes_over_the_network():
    near, far = (predict(in_a_ring, ranks=16, world_size=16, global_rank=rank).likely_seconds for rank in (6, 7))
    more = 4 * NUMBERS / FITTED.link * (8 / T4.network - 1 / T4.link)
    assert far - near == pytest.approx(more, rel=1e-3)


def test_what_is_not_an_exchange_is_no_ring():
    assert predict(in_a_ring, ranks=8, world_size=8, part=2).likely_seconds is None
