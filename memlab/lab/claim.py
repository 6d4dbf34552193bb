"""A thing that people write about a technique, and what this notebook's own measurements say of it."""

from collections.abc import Iterable
from dataclasses import dataclass

from memlab.errors import BadValue
from memlab.lab import questions
from memlab.text import capital

VERDICTS = ("true", "true when", "not proven", "false")
VOTE = "True, true when ..., not proven or false? Decide, then open."  # a reader votes before the verdict is seen


def verdict(cases: Iterable[bool]) -> str:
    """Return ``"true"`` if a claim held in all measured cases, ``"true when"`` if in some, else ``"false"``.

    Raises:
        BadValue: when there is no case.
    """
    held = list(cases)
    if not held:
        raise BadValue("There are no cases to judge by: give at least one measurement, True where the claim held.")
    return "true" if all(held) else "true when" if any(held) else "false"


@dataclass(frozen=True)
class Claim:
    """A claim on trial. A notebook shows the verdict once the reader opens it: by click, or with Enter.

    Args:
        text: the claim, as people write it.
        verdict: ``"true"``, ``"true when"``, ``"not proven"`` or ``"false"``, worked out from measurements.
        evidence: a sentence with the measured values in it; after ``"true when"``, the condition first.
        source: where the claim is made, an address, or a text and an address.

    Raises:
        BadValue: for another verdict.
    """

    text: str
    verdict: str
    evidence: str
    source: str | tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise BadValue(f"{self.verdict!r} is not a verdict: give one of {', '.join(map(repr, VERDICTS))}.")

    def __str__(self) -> str:
        return f"“{self.text}” {self._judgement('')}{self._source('{}, {}')}"

    def _repr_markdown_(self) -> str:
        questions.add(f"Claim: “{self.text}”", lambda: self._judgement(""))
        judgement = f"{self._judgement('**')}{self._source('[{}]({})')}"
        return f"“{self.text}”\n\n<details><summary>{VOTE}</summary>\n\n{judgement}\n\n</details>"

    def _judgement(self, bold: str) -> str:
        """The verdict and the evidence as one text: ``True when the batch is large.``, ``False. The batch ...``."""
        if self.verdict == "true when":
            return f"{bold}True when{bold} {self.evidence}"
        return f"{bold}{self.verdict.capitalize()}.{bold} {capital(self.evidence)}"

    def _source(self, form: str) -> str:
        """Return the claim's source in brackets, or ``""``; ``form`` is a format with a text and an address."""
        if self.source is None:
            return ""
        text, address = ("source", self.source) if isinstance(self.source, str) else self.source
        return f" ({form.format(text, address)})"
