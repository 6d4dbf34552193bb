"""A task for the learner that checks itself: less memory, not much more work, the same result."""

import math
from dataclasses import dataclass
from typing import Any

from memlab.run import Train, measure
from memlab.trace import Trace
from memlab.units import format_bytes, parse_bytes


@dataclass(frozen=True)
class Outcome:
    """What a challenge says of an answer: ``findings`` has a line for each rule, kept or broken."""

    passed: bool
    findings: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((f"{'Passed' if self.passed else 'Not yet'}.", *self.findings))

    def _repr_markdown_(self) -> str:
        verdict = "**Passed.**" if self.passed else "**Not yet.**"
        return "\n".join((verdict, "", *(f"- {finding}" for finding in self.findings)))


class Challenge:
    """Train as ``baseline`` does, to the same losses, within a budget and little more arithmetic.

    Work is counted in floating-point operations, not seconds: the same on every machine.

    Args:
        baseline: the ``train`` function to match.
        budget: the most bytes the answer may allocate, or text such as ``"15 GiB"``.
        slowdown: the most floating-point operations a step may take, as a multiple of the baseline's.
        tolerance: the largest relative difference allowed between the losses of a step.
        steps: how many steps are compared.
        **settings: passed on to both, as far as they take them.
    """

    def __init__(
        self,
        baseline: Train,
        *,
        budget: str | int,
        slowdown: float,
        tolerance: float = 1e-4,
        steps: int = 4,
        **settings: Any,
    ):
        self.budget = parse_bytes(budget)
        self.slowdown = slowdown
        self.tolerance = tolerance
        self.steps = steps
        self.settings = settings
        self._baseline = self._measure(baseline)

    def check(self, train: Train) -> Outcome:
        """Measure an answer and say which rule it keeps, and by how much it breaks the others.

        Raises:
            MemlabError, Exception: what :func:`memlab.measure` raises for ``train``.
        """
        answer = self._measure(train)
        rules = (self._fits(answer), self._works_little(answer), self._learns_the_same(answer))
        return Outcome(all(kept for kept, _ in rules), tuple(finding for _, finding in rules))

    def _measure(self, train: Train) -> Trace:
        return measure(train, steps=self.steps, xray="every", **self.settings)

    def _fits(self, answer: Trace) -> tuple[bool, str]:
        peak = answer.peak_allocated
        if answer.oom is None and peak <= self.budget:
            return True, f"Memory: peak {format_bytes(peak)}, within the budget of {format_bytes(self.budget)}."
        return False, (
            f"Memory: peak {format_bytes(peak)}, {format_bytes(peak - self.budget)} over the budget "
            f"of {format_bytes(self.budget)}."
        )

    def _works_little(self, answer: Trace) -> tuple[bool, str]:
        ratio = answer.flops / self._baseline.flops
        kept = ratio <= self.slowdown
        relation = "within" if kept else "more than"
        return kept, f"Work: {ratio:.2f} times the baseline's arithmetic, {relation} the {self.slowdown:.2f} allowed."

    def _learns_the_same(self, answer: Trace) -> tuple[bool, str]:
        expected, found = self._baseline.losses, answer.losses
        if len(found) < len(expected):
            return False, f"Result: {len(found)} steps where the baseline takes {len(expected)}."
        for step, (theirs, ours) in enumerate(zip(expected, found, strict=True)):
            if ours is None or not math.isclose(ours, theirs, rel_tol=self.tolerance):
                return False, f"Result: the loss of step {step} is {ours}, the baseline's is {theirs:.6g}."
        return True, f"Result: the same losses as the baseline in all {len(expected)} steps."
