import json
from unittest import mock

import pytest

from memlab import Guess, plots
from memlab.errors import BadValue
from memlab.lab import guesses, table

QUESTION = "How much does it take?"


@pytest.fixture(autouse=True)
def _own_file(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMLAB_LOGBOOK", str(tmp_path / "logbook.jsonl"))


def test_a_guess_is_kept_with_its_error():
    guess = Guess(QUESTION).answer("150 MiB")
    assert guess.error is None
    assert str(guess) == f"{QUESTION} Your guess: 150 MiB. Now run the next cell."
    shown = str(guess.reveal(100 * 2**20))
    assert guess.error == pytest.approx(0.5)
    assert shown == (
        "Your guess: 150 MiB. It is 100 MiB: 50% too high. To count as right it must be within 25%. "
        "Your score in this and earlier notebooks: 0 of 1 guess right."
    )
    assert "It is 100 MiB: **50% too high**." in guess._repr_markdown_()


def test_nothing_is_told_before_a_guess():
    guess = Guess(QUESTION)
    shown = guess.reveal(123 * 2**20)
    for text in (str(guess), guess._repr_markdown_(), str(shown), shown._repr_markdown_(), repr(shown)):
        assert "123" not in text
    assert str(shown).startswith("Guess first.")
    guess.answer(100 * 2**20)
    assert "It is 123 MiB: **19% too low**." in shown._repr_markdown_()


@pytest.mark.parametrize(("choices", "truth"), [(None, 123), (["a", "b"], "b")])
def test_a_saved_notebook_keeps_the_truth_for_a_page(choices, truth):
    guess = Guess(QUESTION, choices=choices, tolerance=0.1)
    kept = guess.reveal(truth)._repr_mimebundle_()["application/vnd.memlab.guess+json"]
    assert json.loads(json.dumps(kept)) == {
        "question": QUESTION,
        "choices": choices,
        "actual": truth,
        "tolerance": 0.1,
    }


def test_a_teacher_reveals_for_all():
    shown = Guess(QUESTION).reveal(100 * 2**20, for_all=True)
    assert str(shown) == "It is 100 MiB."
    assert guesses.score() == ""


def test_several_guesses_are_kept_and_the_last_is_judged():
    guess = Guess(QUESTION).answer("50 MiB").answer("90 MiB").answer("90 MiB")
    assert str(guess.reveal(100 * 2**20)).startswith(
        "Your guesses: 50.0 MiB, then 90.0 MiB. It is 100 MiB: 10% too low."
    )
    guess.answer("100 MiB")  # too late
    assert guess.answers == [50 * 2**20, 90 * 2**20]
    assert json.loads(guesses.guesses_file().read_text())["answers"] == guess.answers


def test_a_second_guess_replaces_the_first_and_says_so():
    guess = Guess(QUESTION).answer("50 MiB").answer("90 MiB")
    assert str(guess).endswith("Your guesses: 50.0 MiB, then 90.0 MiB. The last one counts. Now run the next cell.")


def test_a_guess_after_the_truth_is_told_that_it_comes_late():
    guess = Guess(QUESTION).answer("90 MiB")
    guess.reveal(100 * 2**20)
    box = box_of(guess)
    box._answer.value = "90 MiB"
    assert "any more" not in box._said.value
    box._answer.value = "100 MiB"
    late = "100 MiB does not count any more, because the answer has been told."
    assert box._said.value.startswith(f"{late} Your guess: 90.0 MiB. It is 100 MiB: 10% too low.")
    told = Guess("Of a class?")
    told.reveal(100 * 2**20, for_all=True)
    assert str(told.answer("100 MiB")) == f"Of a class? {late} It is 100 MiB."


@pytest.mark.parametrize(
    ("answer", "said", "score"),
    [
        ("50 MiB", "17% too low. To count as right it must be within 10%.", "0 of 1"),
        ("55 MiB", "8% too low. That is within 10%, which counts as right.", "1 of 1"),
        ("60 MiB", "right.", "1 of 1"),
    ],
)
def test_how_near_is_near_enough_can_be_said(answer, said, score):
    shown = str(Guess(QUESTION, tolerance=0.1).answer(answer).reveal("60 MiB"))
    assert f"It is 60.0 MiB: {said} Your score" in shown
    assert f"{score} guess right." in shown


def test_a_guess_that_an_older_memlab_has_kept_was_right_within_a_quarter():
    lines = ({"question": f"{actual}?", "answers": [100], "actual": actual} for actual in (80, 79))
    guesses.guesses_file().write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert "1 of 2 guesses right" in guesses.score()


def test_choices():
    guess = Guess("Which is it?", choices=["weights", "activations"]).answer("weights")
    assert "It is activations: not this one." in str(guess.reveal("activations"))
    assert guess.error is None
    right = Guess("And now?", choices=["weights", "activations"]).answer("weights")
    assert "It is weights: right. Your score in this and earlier notebooks: 1 of 2 guesses right." in str(
        right.reveal("weights")
    )


def test_a_question_counts_once():
    for answer in ("90 MiB", "100 MiB"):
        guess = Guess(QUESTION).answer(answer)
        shown = str(guess.reveal(300 * 2**20))
    assert shown.endswith("Your score in this and earlier notebooks: 0 of 1 guess right.")


def test_odd_lines_and_no_file_at_all_do_not_matter(tmp_path, monkeypatch):
    guesses.guesses_file().write_text('{"question": 1}\nnull\n[[[\n{"question": "?", "answers": [1], "actual": 0}\n')
    assert "Your score in this and earlier notebooks: 1 of 1 guess" in str(Guess(QUESTION).answer(100).reveal(100))
    monkeypatch.setenv("MEMLAB_LOGBOOK", str(tmp_path / "logbook-guesses.jsonl" / "below" / "logbook.jsonl"))
    assert str(Guess(QUESTION).answer(100).reveal(100)).endswith("It is 100 B: right.")


@pytest.mark.parametrize(("answer", "how"), [(50, "50% too low"), (100, "right"), (110, "10% too high")])
def test_the_judgement_follows_from_the_numbers(answer, how):
    assert f": {how}." in str(Guess("?").answer(answer).reveal(100))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Guess("How much?").answer("much"), "'much' is not a number of bytes"),
        (lambda: Guess("?", choices=["a", "b"]).answer("c"), "'c' is not an answer here: give one of 'a', 'b'"),
        (lambda: Guess("?", choices=["a", "b"]).reveal("c"), "'c' is not an answer here"),
        (lambda: Guess("?", choices=["a"]), "leaves no choice"),
        (lambda: Guess("?", tolerance=10), "tolerance=10 is not a fraction: give 0.1, say, for 10%"),
    ],
)
def test_what_is_no_answer_is_refused(make, words):
    with pytest.raises(BadValue, match=words):
        make()


def box_of(guess):
    """The widget that a notebook shows."""
    with mock.patch("memlab.lab.elements.show") as show:
        guess._ipython_display_()
    return show.call_args.args[0]


def test_the_box_takes_an_answer_and_refuses_others():
    guess = Guess(QUESTION)
    box = box_of(guess)
    box._answer.value = "<much>"
    assert "&lt;much&gt;" in box._said.value
    assert guess.answers == []
    box._answer.value = "5 GiB"
    box.children[1].children[1].click()
    assert guess.answers == [5 * 2**30]
    assert "Your guess: 5.00 GiB." in box._said.value


def test_a_choice_counts_when_the_button_is_pressed():
    guess = Guess("Which?", choices=["a", "b"])
    box = box_of(guess)
    box._answer.value = "b"
    assert guess.answers == []
    box.children[1].children[1].click()
    assert guess.answers == ["b"]


def test_a_saved_notebook_shows_the_question():
    with mock.patch("memlab.lab.elements.display") as display:
        Guess(QUESTION)._ipython_display_()
    bundle = display.call_args.args[0]
    assert bundle["text/markdown"].startswith(QUESTION)
    assert "application/vnd.jupyter.widget-view+json" in bundle


def displayed(monkeypatch, shown):
    found = []
    monkeypatch.setattr("memlab.lab.guess.display", lambda data, raw: found.append(data))
    shown._ipython_display_()
    return found


def test_a_table_that_shows_why_is_folded_until_the_guess(monkeypatch):
    why = table(["", "bytes"], [["all", 100]])
    _, folded = displayed(monkeypatch, Guess(QUESTION).reveal(100, because=why))
    assert folded["text/markdown"].startswith("<details>")
    _, told = displayed(monkeypatch, Guess(QUESTION).answer(100).reveal(100, because=why))
    assert told["text/markdown"] == str(why)
    assert len(displayed(monkeypatch, Guess(QUESTION).reveal(100))) == 1


def test_a_picture_that_shows_why_is_folded_until_the_guess(monkeypatch):
    why = plots.Picture("because it is so")
    _, before = displayed(monkeypatch, Guess(QUESTION).reveal(100, because=why))
    assert before["text/html"].startswith("<details>")
    _, after = displayed(monkeypatch, Guess(QUESTION).reveal(100, because=why, for_all=True))
    assert after["text/html"] == why.html()


def test_a_table_and_a_picture_may_show_why_together(monkeypatch):
    why = [table(["", "bytes"], [["all", 100]]), plots.Picture("because it is so")]
    _, first, second = displayed(monkeypatch, Guess(QUESTION).answer(100).reveal(100, because=why))
    assert ("text/markdown" in first, "text/html" in second) == (True, True)
