"""A thing that people write about a technique, and what this notebook's own measurements say of it."""

from collections.abc import Iterable
from dataclasses import dataclass

from memlab.errors import BadValue
from memlab.text import capital

VERDICTS = ("true", "true when", "false")


def verdict(cases: Iterable[bool]) -> str:
    """What measured cases say of a claim: ``"true"`` if it held in all, ``"true when"`` if in some, else ``"false"``.

    Raises:
        BadValue: when there is no case.
    """
    held = list(cases)
    if not held:
        raise BadValue("There are no cases to judge by: give at least one measurement, True where the claim held.")
    return "true" if all(held) else "true when" if any(held) else "false"


@dataclass(frozen=True)
class Claim:
    """A claim on trial. ``evidence`` is a sentence with the measured values in it.

    Args:
        text: the claim, as people write it.
        verdict: ``"true"``, ``"true when"`` or ``"false"``, worked out from measurements.
        evidence: what was measured; after ``"true when"``, the condition first.

    Raises:
        BadValue: for another verdict.
    """

    text: str
    verdict: str
    evidence: str

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise BadValue(f"{self.verdict!r} is not a verdict: give one of {', '.join(map(repr, VERDICTS))}.")

    def __str__(self) -> str:
        return f"“{self.text}” {self._judgement('')}"

    def _repr_markdown_(self) -> str:
        return f"“{self.text}”\n\n{self._judgement('**')}"

    def _judgement(self, bold: str) -> str:
        """The verdict and the evidence as one text: ``True when the batch is large.``, ``False. The batch ...``."""
        if self.verdict == "true when":
            return f"{bold}True when{bold} {self.evidence}"
        return f"{bold}{self.verdict.capitalize()}.{bold} {capital(self.evidence)}"
