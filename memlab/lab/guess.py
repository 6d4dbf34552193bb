"""A number that the learner commits to before a run, and how far off it was."""

from collections.abc import Sequence
from contextlib import suppress
from html import escape
from typing import Any

from IPython.display import display

from memlab.errors import BadValue, NotRead, NotWritten
from memlab.lab import guesses, questions
from memlab.units import format_bytes, parse_bytes

NEXT = "Now run the next cell."
ASK = "Write your answer into the box", "Choose an answer"  # without choices and with
WHY = "Why, {}? Guess first, then open."
MIME = "application/vnd.memlab.guess+json"  # the question and the truth, of which a page makes a form


class Guess:
    """A question that the learner answers before the run that answers it. Shown in a notebook, a box to write into.

    Args:
        question: what is asked, as a sentence.
        choices: the answers to choose from; without them the answer is a number of bytes.
        tolerance: how far off an answer in bytes may be and count as right, as a fraction of the truth.

    Attributes:
        answers: all answers so far, bytes or one of the choices each, the newest last. The newest is judged.
        actual: the true answer, None until :meth:`reveal`.

    Raises:
        BadValue: fewer than two choices, or a tolerance that is no fraction.
    """

    def __init__(
        self, question: str, *, choices: Sequence[str] | None = None, tolerance: float = guesses.TOLERANCE
    ) -> None:
        if choices is not None and len(choices) < 2:
            raise BadValue(f"{choices!r} leaves no choice: give two answers or more, or none for a number of bytes.")
        if not 0 <= tolerance < 1:
            raise BadValue(f"tolerance={tolerance!r} is not a fraction: give 0.1, say, for 10%.")
        self.question = question
        self.tolerance = tolerance
        self.choices = None if choices is None else tuple(choices)
        self.answers: list[int | str] = []
        self.actual: int | str | None = None
        self._open = True  # until the truth has been told
        self._score = ""
        self._late = ""  # said of an answer that came after the truth

    def answer(self, value: str | int) -> "Guess":
        """Commit to an answer: ``"5 GiB"``, bytes, or a choice. It replaces an earlier one, until the truth is told.

        Raises:
            BadValue: it is no number of bytes, or none of the choices.
        """
        read = self._read(value)
        if self.answers[-1:] == [read]:  # Enter, and then the button
            return self
        if self._open:
            self.answers.append(read)
            self._close()
        else:
            self._late = f"{self._text(read)} does not count any more, because the answer has been told."
        return self

    def reveal(self, actual: int | str, *, because: Any = None, for_all: bool = False) -> "Revelation":
        """The true answer, told once the learner has answered: until then the cell asks for it.

        Args:
            actual: bytes, or one of the choices.
            because: a picture or a table that shows why, or a list of both; folded away until the learner has answered.
            for_all: tell it without an answer, as a teacher does in front of a class.

        Raises:
            BadValue: it is no number of bytes, or none of the choices.
        """
        self.actual = self._read(actual)
        if for_all:
            self._open = False
        self._close()
        return Revelation(self, because)

    def to_plain(self) -> dict[str, Any]:
        """The question and the truth as numbers, texts and lists."""
        choices = None if self.choices is None else list(self.choices)
        return {"question": self.question, "choices": choices, "actual": self.actual, "tolerance": self.tolerance}

    @property
    def error(self) -> float | None:
        """The newest guess over the truth, less one: 0.25 is a quarter too high. None before both, and for choices."""
        if not self.answers or not isinstance(self.actual, int):
            return None
        return int(self.answers[-1]) / self.actual - 1

    def _read(self, value: str | int) -> int | str:
        if self.choices is None:
            return parse_bytes(value)
        if value not in self.choices:
            raise BadValue(f"{value!r} is not an answer here: give one of {', '.join(map(repr, self.choices))}.")
        return value

    def _close(self) -> None:
        """Keep the guess, the first time that there is both an answer and the truth."""
        if not self._open or not self.answers or self.actual is None:
            return
        self._open = False
        with suppress(NotWritten, NotRead):  # the lesson goes on without a score
            guesses.append(self.question, self.answers, self.actual, self.tolerance)
            self._score = guesses.score()

    def _ipython_display_(self) -> None:
        from memlab.lab.elements import show
        from memlab.lab.guess_box import GuessBox

        offered = f" ({', '.join(self.choices)})" if self.choices else ""
        questions.add(f"{self.question}{offered}", self._revealed)
        box = GuessBox(self.question, self.choices, answer=lambda value: self.answer(value).judgement(""))
        show(box, str(self), {"text/markdown": self._repr_markdown_()})

    def __str__(self) -> str:
        return f"{self.question} {self.judgement('')}"

    def _repr_markdown_(self) -> str:
        return f"{self.question}\n\n{self.judgement('**')}"

    def judgement(self, bold: str) -> str:
        """Return what is known so far, as a text; the verdict between two of ``bold``."""
        if self.actual is None or (self._open and not self.answers):
            return (
                f"{self._said()} {NEXT}" if self.answers else f"{ASK[self.choices is not None]}, and only then go on."
            )
        truth = self._truth(self.actual)
        if not self.answers:
            return " ".join(filter(None, (self._late, f"{truth}.")))
        verdict = f"{truth}: {bold}{self._how()}{bold}."
        return " ".join(filter(None, (self._late, self._said(), verdict, self._limit(), self._score)))

    def _truth(self, actual: int | str) -> str:
        return f"It is {self._text(actual)}"

    def _revealed(self) -> str:
        return (
            f"{self._truth(self.actual)}." if self.actual is not None else "The cell that reveals it has not run yet."
        )

    def _text(self, answer: int | str) -> str:
        return str(answer) if self.choices else format_bytes(int(answer))

    def _said(self) -> str:
        texts = list(map(self._text, self.answers))
        if len(texts) == 1:
            return f"Your guess: {texts[0]}."
        return f"Your guesses: {', then '.join(texts)}.{' The last one counts.' if self._open else ''}"

    def _how(self) -> str:
        if self.choices:
            return "right" if self.answers[-1] == self.actual else "not this one"
        error = self.error or 0.0
        percent = round(100 * abs(error))
        return "right" if percent == 0 else f"{percent}% too {'high' if error > 0 else 'low'}"

    def _limit(self) -> str:
        """Return a sentence on the tolerance of a guess in bytes that is not exact; else ``""``."""
        if self.choices or not round(100 * abs(self.error or 0.0)):
            return ""
        within = f"within {100 * self.tolerance:.3g}%"
        is_close = guesses.is_close(self.answers[-1], self.actual, self.tolerance)
        return f"That is {within}, which counts as right." if is_close else f"To count as right it must be {within}."


class Revelation:
    """The output of a cell that reveals: the judgement, or a word that the guess is missing."""

    def __init__(self, guess: Guess, because: Any = None):
        self.guess = guess
        self.because = because if isinstance(because, list) else [] if because is None else [because]

    def _ipython_display_(self) -> None:
        display(self._repr_mimebundle_(), raw=True)
        for reason in self.because:
            display(_shown(reason, is_folded=not self._is_told), raw=True)

    def __str__(self) -> str:
        return self._text("")

    def _repr_markdown_(self) -> str:
        return self._text("**")

    def _repr_mimebundle_(self, **chosen: Any) -> dict[str, Any]:
        return {"text/plain": str(self), "text/markdown": self._repr_markdown_(), MIME: self.guess.to_plain()}

    @property
    def _is_told(self) -> bool:
        return bool(self.guess.answers) or not self.guess._open

    def _text(self, bold: str) -> str:
        if self._is_told:
            return self.guess.judgement(bold)
        return (
            f"{bold}Guess first.{bold} {ASK[self.guess.choices is not None]} above, then run this cell again. "
            "(In front of a class, `reveal(..., for_all=True)` tells it at once.)"
        )


def _shown(reason: Any, *, is_folded: bool) -> dict[str, Any]:
    """Return the output of a table or of a picture; in a fold, a picture has its sentence below, as GitHub drops it."""
    if hasattr(reason, "html"):
        kind, what, sentence, body = "text/html", "in a picture", reason.sentence, reason.html()
        below = f"<p>{escape(sentence)}</p>"
    else:
        kind, what, sentence, body = "text/markdown", "in figures", str(reason), reason._repr_markdown_()
        below = ""
    folded = f"<details><summary>{WHY.format(what)}</summary>\n\n{body}{below}\n\n</details>"
    return {"text/plain": sentence, kind: folded if is_folded else body}
