"""Colours that can be read, in a light notebook and in a dark one."""

import re

import pytest

from memlab.categories import Category
from memlab.lab.browser import browser_file
from memlab.lab.style import color, style
from memlab.palette import DARK, LIGHT


def luminance(code):
    """https://www.w3.org/TR/WCAG21/#dfn-relative-luminance"""
    parts = [int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    """From 1 to 21: https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio"""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_black_on_white_has_the_highest_contrast():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("ground", ["ground", "shade", "box"])
@pytest.mark.parametrize("text", ["ink", "quiet", "limit", "good", "link"])
def test_every_text_can_be_read_on_every_ground(theme, ground, text):
    assert contrast(theme[text], theme[ground]) >= 4.5


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_the_line_of_code_at_work_can_be_read_and_stands_out(theme):
    assert contrast(theme["ink"], theme["mark"]) >= 4.5
    assert contrast(theme["mark"], theme["box"]) >= 1.15  # it need not be seen to be read


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize("ground", ["ground", "shade"])
def test_lines_stand_out_from_the_ground(theme, ground):
    for name in ("ink", "limit", "ghost", "line"):
        assert contrast(theme[name], theme[ground]) >= 3, name


def test_no_category_is_swallowed_by_a_dark_ground():
    names = set(DARK) - {"ground", "shade", "box", "floor", "mark"}
    for name in names:
        assert contrast(DARK[name], DARK["ground"]) >= 3, name


def test_the_style_has_each_colour_for_both_themes_and_says_what_is_dark():
    written = style()
    for theme in (LIGHT, DARK):
        for name, value in theme.items():
            assert f"--memlab-{name}:{value};" in written
    for page in ('[data-jp-theme-light="false"]', ".vscode-dark", 'html[theme="dark"]'):
        assert f"{page} .memlab" in written


def test_each_colour_that_the_picture_asks_for_is_there():
    """Of those that it names whole; those of categories it puts together."""
    asked = set(re.findall(r"var\(--memlab-([a-z_]+)", browser_file("panel.css")))
    assert {"ink", "ground", "mark"} <= asked
    assert asked - {"done"} <= set(LIGHT)  # a part of a run
    assert {category.name.lower() for category in Category} <= set(LIGHT)


def test_a_colour_without_the_style_is_the_light_one():
    assert re.fullmatch(r"var\(--memlab-ink,#[0-9A-F]{6}\)", color("ink"))
    assert color("ink").endswith(f"{LIGHT['ink']})")
