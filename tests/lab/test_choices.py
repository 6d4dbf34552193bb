"""The values that may be chosen for a setting, and those that are refused."""

import pytest

from memlab.errors import BadValue
from memlab.lab.choices import OneOf, Range, Switch, make_choice


@pytest.mark.parametrize(
    ("choices", "choice", "first"),
    [
        ((1, 64), Range("width", 1, 64), 1),
        ((0.0, 0.5), Range("width", 0.0, 0.5), 0.0),
        (["fp32", "bf16"], OneOf("width", ["fp32", "bf16"]), "fp32"),
        (bool, Switch("width"), False),
    ],
)
def test_a_pair_a_list_or_bool_make_a_choice(choices, choice, first):
    made = make_choice("width", choices)
    assert made == choice
    assert made.first == first
    made.check(first)


@pytest.mark.parametrize(
    ("choice", "value", "words"),
    [
        (Range("batch_size", 8, 64), 7, "batch size 7 is out of range: give a whole number from 8 to 64"),
        (Range("width", 8, 64), 9.5, "width 9.5"),
        (Range("width", 8, 64), "9", "width '9'"),
        (Range("width", 8, 64), True, "width True"),
        (Range("rate", 0.0, 1.0), float("nan"), "rate nan is out of range: give a number from 0.0 to 1.0"),
        (OneOf("precision", ["fp32", "bf16"]), "fp8", "precision 'fp8' .* one of 'fp32', 'bf16'"),
        (Switch("compiled"), 1, "compiled 1 is not a switch: give True or False"),
    ],
)
def test_an_illegal_value_is_refused(choice, value, words):
    with pytest.raises(BadValue, match=words):
        choice.check(value)


@pytest.mark.parametrize("choices", [(64, 1), (1,), (1, 2, 3), ("a", "b"), [], 8, None, {1, 2}])
def test_what_is_no_choice_is_named(choices):
    with pytest.raises(BadValue, match=r"width=.* makes no control: give"):
        make_choice("width", choices)
