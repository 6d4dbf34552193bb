"""Sliders, menus and switches: what they show, and whom they tell."""

import pytest
from ipywidgets import Checkbox, Dropdown, FloatSlider, IntSlider, IntText, SelectionSlider

from memlab.errors import BadValue
from memlab.lab.choices import make_choice
from memlab.lab.controls import make_control
from memlab.lab.ranks import make_choice_of_ranks


def control_of(choices, value, name="batch_size"):
    return make_control(make_choice(name, choices), value)


def test_a_range_makes_a_slider_with_a_box_that_follow_each_other():
    control = control_of((1, 64), 8)
    slider, box = control.widget.children
    assert (type(slider), type(box)) == (IntSlider, IntText)
    assert (slider.description, slider.min, slider.max, control.value) == ("batch size", 1, 64, 8)
    slider.value = 20
    assert (box.value, control.value) == (20, 20)
    box.value = 5
    assert (slider.value, control.value) == (5, 5)


def test_a_number_typed_outside_the_range_is_refused_in_words_and_taken_back():
    control, refusals, changes = control_of((1, 64), 8), [], []
    control.on_refusal, control.on_change = refusals.append, lambda: changes.append(control.value)
    _, box = control.widget.children
    box.value = 1000
    assert str(refusals[0]) == "batch size 1000 is out of range: give a whole number from 1 to 64."
    assert (box.value, control.value, changes) == (8, 8, [])


def test_every_move_is_told_once():
    control, changes = control_of((1, 64), 8), []
    control.on_change = lambda: changes.append(control.value)
    slider, box = control.widget.children
    slider.value = 9
    box.value = 10
    control.value = 11
    assert changes == [9, 10, 11]


def test_fractions_make_a_fraction_slider():
    control = control_of((0.0, 0.5), 0.1)
    assert isinstance(control.widget.children[0], FloatSlider)
    control.value = 0.25
    assert control.value == 0.25


def test_numbers_that_double_make_a_slider_with_equal_steps():
    control = make_control(make_choice_of_ranks("world_size", (1, 1024)), 8)
    assert isinstance(control.widget, SelectionSlider)
    assert [value for _, value in control.widget.options] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
    control.value = 64
    assert (control.value, control.widget.index) == (64, 6)


@pytest.mark.parametrize(
    ("choices", "value", "other", "widget"),
    [(["fp32", "bf16"], "fp32", "bf16", Dropdown), (bool, False, True, Checkbox)],
)
def test_a_list_makes_a_menu_and_bool_a_box_to_tick(choices, value, other, widget):
    control, changes = control_of(choices, value), []
    control.on_change = lambda: changes.append(control.value)
    assert isinstance(control.widget, widget)
    control.value = other
    assert control.value == control.widget.value == other
    assert changes == [other]


@pytest.mark.parametrize(("choices", "value", "bad"), [((1, 64), 8, 65), (["a", "b"], "a", "c"), (bool, False, 1)])
def test_an_illegal_value_is_refused_and_nothing_changes(choices, value, bad):
    control = control_of(choices, value)
    with pytest.raises(BadValue):
        control.value = bad
    assert control.value == value
