"""The guesses and claims of a notebook that reach a panel's Present mode."""

import pytest

from memlab import Claim, Guess
from memlab.lab import questions


@pytest.fixture(autouse=True)
def none_before(monkeypatch):
    monkeypatch.setattr(questions, "_shown", {})


def test_guesses_and_claims_in_the_order_in_which_they_were_shown():
    size, choice = Guess("How much?"), Guess("Which?", choices=["weights", "activations"])
    size._ipython_display_()
    Claim("It rains", "true when", "drops fell.")._repr_markdown_()
    choice._ipython_display_()
    size.reveal("4 GiB", for_all=True)
    assert questions.questions() == [
        ["How much?", "It is 4.00 GiB."],
        ["Claim: “It rains”", "True when drops fell."],
        ["Which? (weights, activations)", "The cell that reveals it has not run yet."],
    ]
    choice.reveal("weights")  # nobody has guessed: in front of a class they guess aloud
    assert questions.questions()[2] == ["Which? (weights, activations)", "It is weights."]


def test_a_cell_that_is_run_again_asks_once_and_gives_the_newest_answer():
    for actual in ("1 GiB", "2 GiB"):
        guess = Guess("How much?")
        guess._ipython_display_()
        guess.reveal(actual)
    assert questions.questions() == [["How much?", "It is 2.00 GiB."]]
