"""A number that the learner commits to before a run, and how far off it was."""

from memlab.units import format_bytes, parse_bytes


class Guess:
    """A guess at a number of bytes. Make it before the run, and :meth:`reveal` the truth after it.

    Args:
        question: what is asked, as a sentence.
        answer: the learner's guess, ``"120 MiB"`` or bytes.

    Attributes:
        actual: the true number of bytes, None until it is revealed.

    Raises:
        BadValue: for an answer that is not a number of bytes.
    """

    def __init__(self, question: str, answer: str | int):
        self.question = question
        self.answer = parse_bytes(answer)
        self.actual: int | None = None

    def reveal(self, actual: int) -> "Guess":
        """Keep the true number of bytes beside the guess; the guess itself, to show it."""
        self.actual = actual
        return self

    @property
    def error(self) -> float | None:
        """The guess over the truth, less one: 0.25 is a quarter too high. None until it is revealed."""
        return self.answer / self.actual - 1 if self.actual else None

    def __str__(self) -> str:
        return f"{self.question} {self._judgement('')}"

    def _repr_markdown_(self) -> str:
        return f"{self.question}\n\n{self._judgement('**')}"

    def _judgement(self, bold: str) -> str:
        guess = f"Your guess: {format_bytes(self.answer)}."
        if self.actual is None or self.error is None:
            return f"{guess} Now run the next cell."
        percent = round(100 * abs(self.error))
        how = "right" if percent == 0 else f"{percent}% too {'high' if self.error > 0 else 'low'}"
        return f"{guess} It is {format_bytes(self.actual)}: {bold}{how}{bold}."
