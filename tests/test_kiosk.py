"""The text and the page of a kiosk, without a server; ``tests/browser/kiosk.py`` opens one."""

import argparse

import pytest

from tests.kiosk import ANYBODY, NETWORK, page, warnings
from tests.notebooks.cells import NOTEBOOKS, notebook_named


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_page_has_a_title_a_question_and_ends_in_one_lab(notebook):
    title, *code = (cell["source"] for cell in page(notebook)["cells"])
    assert title.startswith("# ")
    assert title.endswith("**")
    assert [("Lab(" in source) for source in code] == [False] * (len(code) - 1) + [True]
    assert not any("%pip" in source or "pip install" in source for source in code)


@pytest.mark.parametrize("name", ["13b", "13b_fused_loss", "13b_fused_loss.ipynb"])
def test_a_notebook_is_found_by_its_number_or_its_name(name):
    assert notebook_named(name).name == "13b_fused_loss.ipynb"


def test_an_unknown_notebook_is_refused_with_those_that_there_are():
    with pytest.raises(SystemExit, match=r"'99' is no notebook: give one of 00_start_here, .*22_long_and_wide\.$"):
        notebook_named("99")


@pytest.mark.parametrize(
    ("ip", "no_token", "said"),
    [
        ("127.0.0.1", False, []),
        ("0.0.0.0", False, [NETWORK]),
        ("localhost", True, [ANYBODY]),
        ("192.168.0.7", True, [NETWORK, ANYBODY]),
    ],
)
def test_it_warns_of_what_is_asked_for(ip, no_token, said):
    assert warnings(argparse.Namespace(ip=ip, no_token=no_token)) == said
