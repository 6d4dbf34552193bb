"""The choices that a learner may make next."""

from itertools import islice

from memlab.lab.choices import Doubling, OneOf, Range, Switch
from memlab.lab.neighbours import is_end, neighbours

CHOICES = {
    "batch_size": Range("batch_size", 1, 64),
    "precision": OneOf("precision", ["fp32", None, "bf16", "fp16"]),
    "compiled": Switch("compiled"),
    "ranks": Doubling("ranks", [1, 2, 4, 8]),
}
CHOSEN = {"batch_size": 8, "precision": None, "compiled": False, "ranks": 2}


def values(moved, name, count=None, **changes):
    chosen = CHOSEN | changes
    found = islice(neighbours(CHOICES, chosen, moved), count)
    return [next_[name] for next_ in found if next_[name] != chosen[name]]


def test_ends_first_then_the_nearest_of_the_slider_that_moved():
    assert values(None, "batch_size") == [1, 64, 9, 7, 10, 6, 11, 5, 12, 4]
    assert values("batch_size", "batch_size", batch_size=63) == [1, 64, 62, 61, 60, 59]
    assert values("ranks", "ranks") == [1, 8, 4]


def test_all_of_a_menu_that_moved_the_nearest_first():
    assert values("precision", "precision") == ["bf16", "fp32", "fp16"]


def test_then_one_step_of_each_other_control():
    assert values("batch_size", "precision") == ["bf16", "fp32"]
    assert values("batch_size", "compiled") == [True]
    assert values("batch_size", "ranks") == [4, 1]
    assert values("ranks", "batch_size") == [9, 7]


def test_between_two_numbers_the_slider_has_a_hundred_steps():
    choices = {"rate": Range("rate", 0.0, 1.0)}
    found = [chosen["rate"] for chosen in neighbours(choices, {"rate": 0.5}, None)]
    assert found[:4] == [0.0, 1.0, 0.51, 0.49]


def test_without_controls_there_is_nothing_to_choose():
    assert list(neighbours({}, {}, None)) == []


def test_an_end_is_that_of_the_slider_that_moved():
    assert is_end(CHOICES, CHOSEN | {"batch_size": 64}, None)
    assert not is_end(CHOICES, CHOSEN | {"batch_size": 64}, "ranks")
    assert not is_end(CHOICES, CHOSEN, "precision")
