"""Results whose size depends on numbers that a prediction lacks: nothing is chosen, and the trace says so."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional_collectives

from memlab import fit, predict
from memlab.errors import BadValue, Unpredictable
from memlab.trace import Trace
from memlab.vgpu import values
from tests.vgpu.once import in_a_prediction


def drawn(device, *shape):
    return torch.randn(shape or (8, 4), device=device)


@pytest.mark.parametrize(
    ("choose", "shape"),
    [
        (lambda x: x[x[:, 0] > 0], (0, 4)),
        (lambda x: x[x > 0], (0,)),
        (lambda x: x[:, x[0] > 0], (8, 0)),
        (lambda x: x[torch.bernoulli(x.sigmoid()).bool()], (0,)),
        (lambda x: torch.masked_select(x, x > 0), (0,)),
        (lambda x: (x > 0).nonzero(), (0, 2)),
        (lambda x: x.nonzero(), (0, 2)),
        (lambda x: torch.where(x > 0)[1], (0,)),
        (lambda x: torch.argwhere(x > 0), (0, 2)),
        (lambda x: x.long().unique(), (1,)),
        (lambda x: torch.unique_consecutive(x), (1,)),
        (lambda x: torch.unique(x, dim=0), (1, 4)),
        (lambda x: x.repeat_interleave(x[:, 0].long().relu(), dim=0), (0, 4)),
        (lambda x: x[(x > 0).view(-1).nonzero()[:, 0] // 4], (0, 4)),
    ],
)  # fmt: skip
def test_nothing_is_chosen_by_numbers_that_nobody_knows(choose, shape):
    result, trace = in_a_prediction(lambda device: choose(drawn(device)).shape)
    assert result == shape
    assert trace.is_lower_bound
    line = f"test_chosen.py:{choose.__code__.co_firstlineno}"
    assert trace.guesses == (line,)
    assert trace.notes == (
        f"How much is chosen at {line} depends on numbers that only a real card knows. Here nothing is, so the peak is "
        "at least this; chosen=1 (--chosen 1) predicts that all is.",
    )


@pytest.mark.parametrize(
    ("choose", "half", "whole"),
    [
        (lambda x: x[x[:, 0] > 0], (4, 4), (8, 4)),
        (lambda x: x[x > 0], (16,), (32,)),
        (lambda x: torch.masked_select(x, x > 0), (16,), (32,)),
        (lambda x: x.nonzero(), (16, 2), (32, 2)),
        (lambda x: torch.where(x > 0)[1], (16,), (32,)),
        (lambda x: x.long().unique(), (16,), (32,)),
    ],
)  # fmt: skip
def test_the_share_that_was_said_is_chosen(choose, half, whole):
    for share, shape in ((0.5, half), (1, whole)):
        result, trace = in_a_prediction(lambda device: choose(drawn(device)).shape, chosen=share)
        assert result == shape
        assert not trace.is_lower_bound
        assert trace.notes[0].endswith(f"Here it is {share} of what there is.")


@pytest.mark.parametrize(
    ("choose", "tenth"),
    [
        (lambda x: x[x > 0], (838861,)),
        (lambda x: torch.masked_select(x, x > 0), (838861,)),
        (lambda x: torch.masked_select(x, x[0] > 0), (2**11 * 410,)),
        (lambda x: x.nonzero(), (838861, 2)),
    ],
)  # fmt: skip
def test_the_same_of_a_mask_that_is_too_long_to_be_counted(choose, tenth, monkeypatch):
    def work(device):
        result = choose(torch.randn(2**11, 2**12, device=device))
        return result.shape, result.stride()

    found = []
    for most in (2**24, 2**10):
        monkeypatch.setattr(values, "MOST_TO_CHOOSE_FROM", most)
        form, trace = in_a_prediction(work, chosen=0.1)
        found.append((form, trace.peak_allocated))
    counted, told = found
    assert counted == told
    assert told[0][0] == tenth


def mixture(device, *, route):
    """Eight experts, two for each token; one that no token picks is passed over, as transformers does it."""
    experts, router = nn.ModuleList(nn.Linear(64, 64) for _ in range(8)).to(device), nn.Linear(64, 8).to(device)
    while True:
        x = torch.randn(1024, 64, device=device)
        weights = router(x).softmax(-1)
        picked = route(weights)
        mask = nn.functional.one_hot(picked, 8).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for number in mask.sum((-1, -2)).greater(0).nonzero():
            place, token = torch.where(mask[number[0]])
            out.index_add_(0, token, experts[number[0]](x[token]) * weights[token, picked[token, place], None])
        loss = out.square().mean()
        loss.backward()
        experts.zero_grad()
        yield loss


def test_picks_that_are_spread_evenly_are_as_if_they_were_known():
    even = (torch.arange(2048) % 8).view(1024, 2)
    known = predict(mixture, route=lambda weights: (weights.topk(2, -1)[1], even.to(weights.device))[1])
    spread = predict(mixture, route=lambda weights: weights.topk(2, -1)[1], chosen="evenly")
    assert [step.peak_allocated for step in spread.steps] == [step.peak_allocated for step in known.steps]
    assert spread.peak_reserved == known.peak_reserved
    assert not spread.is_lower_bound
    assert len(spread.notes) == 1
    assert spread.notes[0].endswith("Here what is picked from several is spread evenly over them.")
    with pytest.raises(Unpredictable, match=r"where nothing is chosen, .* say how much is chosen \(chosen=0.5 or "):
        predict(mixture, route=lambda weights: weights.topk(2, -1)[1])  # no token for any expert: no gradient


@pytest.mark.parametrize(
    ("pick", "counts"),
    [
        (lambda x: x.topk(3)[1], [3] * 8),
        (lambda x: x.topk(2, dim=0)[1], [2] * 8),
        (lambda x: x.max(1)[1], [1] * 8),
        (lambda x: x.argmax(-1), [1] * 8),
        (lambda x: x.softmax(-1).multinomial(2), [2] * 8),
    ],
)  # fmt: skip
def test_the_places_that_are_picked_are_spread(pick, counts):
    def work(device):
        return pick(drawn(device, 8, 8)).view(-1).unique(return_counts=True)[1].tolist()

    assert in_a_prediction(work, chosen="evenly")[0] == counts


def test_what_does_not_come_of_picks_is_chosen_as_before():
    result, trace = in_a_prediction(lambda device: (x := drawn(device))[x > 0].shape, chosen="evenly")
    assert result == (0,)
    assert trace.is_lower_bound


@pytest.mark.parametrize("share", [-0.1, 1.5, "half", float("nan"), [1]])
def test_what_is_no_share_is_refused(share):
    with pytest.raises(BadValue, match=r"chosen=.* is no share: .* from 0 \(nothing\) to 1 \(all\), or 'evenly'"):
        predict(detector, chosen=share)


def test_what_is_chosen_by_known_numbers_is_known():
    def work(device):
        mask = torch.tensor([True, False, True], device=device)
        return drawn(device, 3, 4)[mask].shape, mask.nonzero().shape

    result, trace = in_a_prediction(work)
    assert result == ((2, 4), (2, 1))
    assert not trace.is_lower_bound


def labels(device):
    """Of a batch of 4 images: whose a box is, its class, and where it stands; more numbers than are worked with."""
    whose = torch.tensor([0.0] * 5 + [1] * 2 + [3] * 9)
    return torch.cat((whose.view(-1, 1), torch.rand(16, 5)), 1).to(device)


def test_whose_boxes_are_is_known_where_they_came_from_the_host():
    def work(device):
        boxes = labels(device)
        whose = torch.cat((boxes[:, :1], boxes[:, 1:].clone()), 1)[:, 0].long()
        counts = whose.unique(return_counts=True)[1]
        return int(counts.max()), boxes[whose == 1].shape, boxes.split((1, 5), 1)[0].long().unique().tolist()

    result, trace = in_a_prediction(work)
    assert result == (9, (2, 6), [0, 1, 3])
    assert trace.guesses == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda boxes: boxes + torch.randn_like(boxes),
        lambda boxes: boxes.mul_(torch.rand_like(boxes)),
        lambda boxes: boxes.copy_(torch.randn_like(boxes)),
        lambda boxes: torch._foreach_add([boxes], [torch.randn_like(boxes)])[0],
        lambda boxes: boxes.index_put_((boxes[:, 0] > 7,), torch.randn_like(boxes).sum()),
    ],
)
def test_more_floats_than_a_few_are_known_only_as_long_as_what_is_done_to_them_is(change):
    result, trace = in_a_prediction(lambda device: change(labels(device))[:, 0].long().unique().shape)
    assert result == (1,)
    assert trace.is_lower_bound


def test_how_many_anchors_meet_a_box_is_known_where_boxes_and_anchors_are():
    """As detectors do it: boxes of the batch, from the host, against anchors that are made of ranges on the card."""

    def work(device):
        boxes = labels(device)[:, 2:4].repeat(1, 2)
        boxes = torch.cat((boxes[:, :2] - 0.1, boxes[:, :2] + 0.1), 1).clamp(0, 1)
        steps = (torch.arange(20, device=device) + 0.5) / 20
        corners = torch.cartesian_prod(steps, steps)
        anchors = torch.cat((corners - 0.05, corners + 0.05), 1)
        low = torch.maximum(boxes[:, None, :2], anchors[:, :2])
        high = torch.minimum(boxes[:, None, 2:], anchors[:, 2:])
        overlap = (high - low).clamp(min=0).prod(2)
        return (overlap > 0.002).any(0).nonzero().shape

    torch.manual_seed(0)
    result, trace = in_a_prediction(work)
    torch.manual_seed(0)
    assert result == work("cpu")
    assert 0 < result[0] < 400
    assert not trace.is_lower_bound


def test_what_is_written_to_moved_floats_is_known_if_it_is_moved_too():
    def work(device):
        kept = torch.zeros(20, 6).to(device)
        kept[2:18] = labels(device)
        return kept[:, 0].long().unique(return_counts=True)[1].tolist()

    assert in_a_prediction(work)[0] == [9, 2, 9]


def test_of_a_large_mask_nothing_is_made_on_the_host():
    def work(device):
        x = drawn(device, 40_000, 4_000)
        return x[x > 0].shape

    assert in_a_prediction(work)[0] == (0,)


def test_too_much_to_be_sorted_is_refused():
    with pytest.raises(Unpredictable, match=r"_unique2.* at test_chosen\.py:\d+ has a result that depends on the data"):
        in_a_prediction(lambda device: drawn(device, 2_000_000).unique())


def detector(device, *, batch_size=4):
    """Boxes that are suppressed one by one, until none is left; the loss is of those that are kept."""
    model = nn.Linear(64, 64).to(device)
    while True:
        scores = model(drawn(device, batch_size, 64))
        left = (scores > 0.5).nonzero()
        while len(left):
            left = left[1:][(left[1:] != left[0]).all(1)]
        loss = scores[scores > 0.5].sum() + scores.mean()
        loss.backward()
        model.zero_grad()
        yield loss


def test_a_loop_over_what_was_chosen_ends_at_once():
    trace = predict(detector)
    assert trace.is_lower_bound
    assert trace.sentence.startswith("peak at least ")
    assert len(trace.steps) == 3


def test_an_error_that_comes_of_choosing_nothing_says_what_is_not_known():
    def train(device):
        x = drawn(device)
        yield nn.Linear(4, 4).to(device)(x[x > 9].view(8, -1)).sum()

    words = r"nonzero.* at test_chosen\.py:\d+ has a result that depends .* \(where nothing is chosen, .*Error: .+\)"
    with pytest.raises(Unpredictable, match=words) as refusal:
        predict(train)
    assert isinstance(refusal.value.__cause__, RuntimeError)


def test_an_error_in_another_step_is_as_it_is():
    def train(device):
        x = drawn(device)
        yield x[x > 9].sum()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        predict(train)


def test_a_lower_bound_stays_one_in_a_file():
    trace = predict(detector)
    assert Trace.from_json(trace.to_json()) == trace
    assert trace.is_lower_bound


def test_what_fits_is_a_lower_bound_too():
    found = fit(detector, gpu="T4", batch_size=(1, 8))
    assert found.sentence.startswith(
        "may fit: batch_size=8, as asked for: at least 22.0 MiB of 14.4 GiB on T4, at most "
    )


def exchanging(device, *, by="c10d", fixed=False):
    """A rank whose router sends each token to an expert, one on each rank; counts and then rows are exchanged."""
    ranks = dist.get_world_size()
    router, expert = nn.Linear(64, ranks, device=device), nn.Linear(64, 64, device=device)
    while True:
        x = drawn(device, 1024, 64)
        choice = router(x).argmax(-1)
        counts = torch.bincount(choice, minlength=ranks)
        if fixed:
            arriving = sent = [1024 // ranks] * ranks
        else:
            arriving = (_arriving if by == "c10d" else _arriving_functional)(counts).tolist()
            sent = counts.tolist()
        rows = x.new_empty(sum(arriving), 64)
        dist.all_to_all_single(rows, x[choice.argsort()], arriving, sent)
        loss = expert(rows).square().mean()
        loss.backward()
        expert.zero_grad()
        yield loss


def _arriving(counts):
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts)
    return arriving


def _arriving_functional(counts):
    return functional_collectives.all_to_all_single(counts, None, None, dist.group.WORLD)


@pytest.mark.parametrize("by", ["c10d", "functional"])
@pytest.mark.parametrize("rank", [0, 3])
def test_rows_that_other_ranks_send_are_as_many_as_this_one_sends_them(by, rank):
    trace = predict(exchanging, world_size=4, global_rank=rank, chosen="evenly", by=by)
    assert [event.bytes for event in trace.events if event.op.endswith("addmm")] == [1024 * 4 * 4, 1024 * 64 * 4]
    assert trace.sent > predict(exchanging, world_size=4, global_rank=rank, fixed=True).sent  # the counts, too
    assert any("is spread evenly over them" in note for note in trace.notes)


@pytest.mark.filterwarnings("ignore:.*all_gather_into_tensor.* is deprecated:FutureWarning")
def test_what_all_ranks_have_is_what_this_one_has():
    """Nobody knows it, so it is a guess: of four ranks each has counted as this one."""

    def train(device):
        counted = torch.tensor([3, 5], device=device)
        gathered = counted.new_empty(8)
        dist.all_gather_into_tensor(gathered, counted)
        found.append(gathered.tolist())
        yield

    found = []
    trace = predict(train, world_size=4, steps=1)
    assert found == [[3, 5] * 4]
    assert len(trace.guesses) == 1
