"""Sliders, menus and switches: what they show, what they refuse."""

import pytest
from ipywidgets import FloatSlider, IntSlider, IntText

from memlab.errors import BadValue
from memlab.lab.controls import ChoiceControl, RangeControl, SwitchControl, make_control


def test_a_pair_of_numbers_makes_a_slider_with_a_box_that_follow_each_other():
    control = make_control("batch_size", (1, 64), 8)
    slider, box = control.widget.children
    assert (type(slider), type(box)) == (IntSlider, IntText)
    assert (slider.description, slider.min, slider.max, control.value) == ("batch size", 1, 64, 8)
    slider.value = 20
    assert (box.value, control.value) == (20, 20)
    box.value = 5
    assert (slider.value, control.value) == (5, 5)


def test_a_number_typed_outside_the_range_is_refused_in_words_and_taken_back():
    control, refusals, changes = make_control("batch_size", (1, 64), 8), [], []
    control.on_refusal, control.on_change = refusals.append, lambda: changes.append(control.value)
    _, box = control.widget.children
    box.value = 1000
    assert str(refusals[0]) == "batch size 1000 is out of range: give a whole number from 1 to 64."
    assert (box.value, control.value, changes) == (8, 8, [])


def test_every_move_is_told_once():
    control, changes = make_control("batch_size", (1, 64), 8), []
    control.on_change = lambda: changes.append(control.value)
    slider, box = control.widget.children
    slider.value = 9
    box.value = 10
    control.value = 11
    assert changes == [9, 10, 11]


def test_fractions_make_a_fraction_slider():
    control = make_control("dropout", (0.0, 0.5), 0.1)
    assert isinstance(control.widget.children[0], FloatSlider)
    control.value = 0.25
    assert control.value == 0.25


def test_a_list_makes_a_menu_and_bool_a_switch():
    menu = make_control("precision", ["fp32", "bf16"], "fp32")
    assert isinstance(menu, ChoiceControl)
    menu.value = "bf16"
    assert menu.value == menu.widget.value == "bf16"
    switch = make_control("compiled", bool, False)
    assert isinstance(switch, SwitchControl)
    switch.value = True
    assert switch.widget.value is True


@pytest.mark.parametrize(
    ("control", "value", "words"),
    [
        (RangeControl("width", 8, 64, 8), 7, "width 7 is out of range: give a whole number from 8 to 64"),
        (RangeControl("width", 8, 64, 8), 9.5, "width 9.5"),
        (RangeControl("width", 8, 64, 8), "9", "width '9'"),
        (RangeControl("width", 8, 64, 8), True, "width True"),
        (RangeControl("rate", 0.0, 1.0, 0.5), float("nan"), "rate nan is out of range: give a number from 0.0 to 1.0"),
        (ChoiceControl("precision", ["fp32", "bf16"], "fp32"), "fp8", "precision 'fp8' .* one of 'fp32', 'bf16'"),
        (SwitchControl("compiled", False), 1, "compiled 1 is not a switch: give True or False"),
    ],
)
def test_an_illegal_value_is_refused_and_nothing_changes(control, value, words):
    before = control.value
    with pytest.raises(BadValue, match=words):
        control.value = value
    assert control.value == before


@pytest.mark.parametrize("choices", [(64, 1), (1,), (1, 2, 3), ("a", "b"), [], 8, None, {1, 2}])
def test_choices_that_make_no_control_are_named(choices):
    with pytest.raises(BadValue, match=r"width=.* makes no control: give"):
        make_control("width", choices, 8)


def test_a_default_outside_the_range_is_refused_at_once():
    with pytest.raises(BadValue, match="width 512 is out of range"):
        make_control("width", (8, 64), 512)
