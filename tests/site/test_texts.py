"""The text of a page: it leaves out what the page lacks, and all other text stays as it is."""

import pytest

from tests.site.texts import items, on_page

LAB = """## Lab

Move a slider. The red line is a limit. **Run** trains the small
model (on this machine). Try:

1. Make it larger.
2. Press **Run**. Which loss
   falls further?
3. The same with `bf16`.
4. Press *Keep*.

(No slider here? Then you are reading a saved copy: run it.)"""


def test_text_that_is_true_on_a_page_stays_as_it_is():
    text = "## A\n\nSome *text*, e.g. (one. Two.) of 1.5 GiB.\nMore.\n\n- a\n\n```\nrun()\n```\n\n| a |\n|---|"
    assert on_page(text) == text
    note = "*For a teacher: 25 minutes. Ask before you run the cell.*"
    assert on_page(note) == note


def test_list_items_go_whole_and_the_rest_is_counted_on():
    assert on_page(LAB) == LAB.partition("4. ")[0] + "\n\n"
    without = on_page(LAB, has_runs=False)
    assert "Run" not in without
    assert without == "## Lab\n\nMove a slider. The red line is a limit. Try:\n\n1. Make it larger.\n\n\n"


def test_an_item_that_goes_on_with_another_goes_with_it():
    text = "1. Press *Keep*.\n2. The same with `bf16`.\n3. They stay."
    assert on_page(text) == ""
    assert on_page("1. Move it.\n2. The same with `bf16`.") == "1. Move it.\n2. The same with `bf16`."
    assert on_page("1. Press *Keep*.\n2. Move it.") == "1. Move it."


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Run the cells from top to bottom, with Shift\nand Enter. You need no GPU.", "You need no GPU."),
        ("How high is it? Write it into the box, and only then run the\ncell below it.", "How high is it? "),
        ("Say it before you run the cell. (A MiB. Is it?) So.", "(A MiB. Is it?) So."),
        ("Headings are closed when you open a\nnotebook. They are for more. So.", "So."),
        ("Type into the box *budget*. *Workspace* is there on a GPU only.", "*Workspace* is there on a GPU only."),
    ],
)
def test_sentences_go_alone(text, kept):
    assert on_page(text) == kept


def test_items_and_paragraphs_are_found():
    assert list(items(LAB))[2:4] == ["1. Make it larger.", "2. Press **Run**. Which loss falls further?"]
    assert list(items("a\nb\n\n- c\n- d"))[1:] == ["- c", "- d"]
