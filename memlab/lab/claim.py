"""A thing that people write about a technique, and what this notebook's own measurements say of it."""

from dataclasses import dataclass

from memlab.errors import BadValue

VERDICTS = ("true", "true when", "false")


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
        verdict = "true when ..." if self.verdict == "true when" else self.verdict
        return f"“{self.text}” {verdict.capitalize()}: {self.evidence}"

    def _repr_markdown_(self) -> str:
        verdict = "true when …" if self.verdict == "true when" else self.verdict
        return f"“{self.text}”\n\n**{verdict.capitalize()}.** {self.evidence}"
