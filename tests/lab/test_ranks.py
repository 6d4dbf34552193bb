"""A panel with a choice of ranks: real processes train, the one predicted is shown, and Stop ends them all."""

import re

import pytest
import torch
import torch.distributed as dist

from memlab.errors import BadValue
from memlab.lab.choices import Doubling, OneOf
from memlab.lab.export import code
from memlab.lab.ranks import make_choice_of_ranks
from memlab.lab.session import Session
from tests.cluster import faulty
from tests.cluster.processes import mark, marked
from tests.waiting import SOON, wait_for


def uneven(device, *, width=16):
    """Rank 1 holds more."""
    kept = torch.ones(width * (1 + dist.get_rank()), device=device)
    while True:
        yield kept.sum() + 2 * dist.get_rank()


def shared(device):
    """All ranks add up."""
    while True:
        numbers = torch.ones(16, device=device)
        dist.all_reduce(numbers)
        yield numbers.sum()


def make(train, world_size, *, controls=None, **options):
    named = {"steps": 3, "device": "cpu", "budget": None, "gpu": "T4", "title": None} | options
    return Session(train, {"world_size": world_size, **(controls or {})}, **named)


def test_run_trains_on_so_many_ranks_and_shows_the_first():
    session = make(uneven, [2, 64])
    trace = session.run()
    assert (trace.rank, trace.world_size) == (0, 2)
    assert trace.peak_allocated == 16 * 4 + 8
    screen = session.screen
    assert "That is rank 0 of 2; it sends 0 B to others" in screen.sentence
    run = screen.run
    assert run["ranks"] == [16 * 4 + 8, 2 * 16 * 4 + 8]
    assert (run["count"], run["going"], run["sample"]) == (3, False, "")
    assert trace.losses == (16, 16, 16)
    assert run["losses"] == [25, 25, 25]  # the mean of both
    with pytest.raises(BadValue, match="world_size=64 is more than this machine can run"):
        session.run(world_size=64)
    assert screen.settings == {"world_size": 2}  # all stays as it is on show


def test_too_many_ranks_are_refused_before_they_are_predicted(monkeypatch):
    session = make(faulty.train, [2, 64])
    foreseen = []
    monkeypatch.setattr(session._forecast, "foresee", lambda case, stopping: foreseen.append(case))
    with pytest.raises(BadValue, match="world_size=64 is more than this machine can run"):
        session.run(world_size=64)
    assert foreseen == []


def test_stop_ends_all_ranks(monkeypatch, tmp_path):
    mark(monkeypatch, tmp_path.name)
    session = make(faulty.train, [2], steps=10**6)
    job = session.start()
    wait_for(lambda: session.screen.run is not None)
    assert re.match(r"Stop · \d+ of 1000000", session.screen.action)
    session.stop()
    assert len(job.result(SOON).steps) >= 1
    assert session.screen.status.text.startswith("Stopped after ")
    assert marked(tmp_path.name) == []


def test_a_choice_of_ranks_is_a_menu_or_a_slider_whose_steps_double():
    assert make_choice_of_ranks("world_size", [1, 2, 3]) == OneOf("world_size", [1, 2, 3])
    assert make_choice_of_ranks("world_size", (2, 9)) == Doubling("world_size", [2, 4, 8])


@pytest.mark.parametrize("values", [(1, 1), (8, 2), (1.0, 8), [], bool, (0, 1), [0, 2], ["two"]])
def test_a_choice_that_is_none_of_ranks_is_refused(values):
    with pytest.raises(BadValue, match="give"):
        make_choice_of_ranks("world_size", values)


@pytest.mark.parametrize("values", [[], "last", [0, 3], ["first", "second"], (0, 3)])
def test_a_rank_that_is_neither_the_first_nor_the_last_is_no_choice(values):
    with pytest.raises(BadValue, match=r'give \["first", "last"\]'):
        make_choice_of_ranks("global_rank", values)


def test_one_of_several_ranks_is_chosen_where_there_are_several():
    with pytest.raises(BadValue, match="give world_size, too"):
        Session(uneven, {"global_rank": ["first", "last"]}, steps=3, device="cpu", budget=None, gpu="T4", title=None)


def test_what_many_ranks_would_take_and_send_is_predicted():
    session = make(shared, (1, 1024))
    session.choose("world_size", 64)
    wait_for(lambda: "rank 0 of 64" in session.screen.sentence)
    sent = 2 * 63 * 4 * 16 // 64  # the ring algorithm's part of what is reduced to all
    told = f"it sends {sent} B to others in a step, {sent // 8} B of it to other machines."
    assert f"That is rank 0 of 64; {told}" in session.screen.sentence


def test_the_last_rank_is_predicted_where_it_was_chosen():
    session = make(uneven, [2, 4], controls={"global_rank": ["first", "last"]})
    session.predict().result(SOON)
    assert "That is rank 0 of 2" in session.screen.sentence
    session.choose("global_rank", "last")
    wait_for(lambda: "That is rank 1 of 2" in session.screen.sentence)
    session.choose("world_size", 4)
    wait_for(lambda: "That is rank 3 of 4" in session.screen.sentence)
    assert code(session.screen.view, uneven, 3).endswith("(uneven, gpu='T4', world_size=4, global_rank=3)")


def test_a_run_is_compared_with_a_prediction_of_the_same_rank():
    session = make(uneven, [2], controls={"global_rank": ["first", "last"]})
    for name, rank in (("first", 0), ("last", 1)):
        session.run(global_rank=name)
        view = session.screen.view
        assert view.outline.rank == view.trace.rank == rank
        assert f"global rank {name}" in view.heading
    assert [row.settings["global_rank"] for row in session.screen.rows] == ["first", "last"]


def test_the_rank_is_on_show_where_memory_ran_out():
    session = make(uneven, [2], budget="100 B")
    trace = session.run()
    assert (trace.rank, trace.oom.asked) == (1, 2 * 16 * 4)
    assert "out of memory" in session.screen.sentence.lower()
    assert session.screen.view.outline is None  # that is of rank 0
