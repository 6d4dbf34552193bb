"""A task for the learner that checks itself: less memory, not much more work, the same result."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memlab.cluster import ClusterRun
from memlab.errors import BadTrain, BadValue
from memlab.protocol import Train
from memlab.run import measure
from memlab.text import message
from memlab.trace import Trace
from memlab.tracebacks import place
from memlab.units import format_bytes, parse_bytes

ROUNDING = 1e-4  # losses that differ by less, relative to them, are the same
Rule = Callable[[Train, Trace], tuple[bool, str]]

LEAST_WORK = 0.5  # less of the baseline's arithmetic than this is no training of the same model


@dataclass(frozen=True)
class Outcome:
    """The result of a challenge for one answer: ``findings`` has a line for each rule, kept or broken."""

    passed: bool
    findings: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((f"{'Passed' if self.passed else 'Not yet'}.", *self.findings))

    def _repr_markdown_(self) -> str:
        verdict = "**Passed.**" if self.passed else "**Not yet.**"
        return "\n".join((verdict, "", *(f"- {finding}" for finding in self.findings)))


class Challenge:
    """Train as ``baseline`` does, to the same losses, within a budget and little more arithmetic.

    Work is counted in floating-point operations, not seconds: the same on every machine. Shown in a
    notebook, a challenge states its rules.

    Args:
        baseline: the ``train`` function to match. It is measured at once; ``Challenge.baseline`` is its trace.
        budget: the most bytes the answer may allocate, or text such as ``"15 GiB"``.
        slowdown: the most floating-point operations a step may take, as a multiple of the baseline's.
        tolerance: the largest relative difference allowed between the losses of a step.
        steps: how many steps are compared.
        rules: further rules. Each is called with the answer and its trace, and says whether it is kept, and in a
            sentence why. The first line of its docstring states it beforehand.
        world_size: on how many ranks an answer trains, as in :func:`memlab.cluster.measure`; the baseline trains alone.
            Memory is then that of the rank that takes most, work that of all together.
        **settings: passed on to both.

    Raises:
        BadTrain: the baseline cannot be matched: it runs out of memory, yields no losses, or does no
            arithmetic that can be counted.
        MemlabError, Exception: what :func:`memlab.measure` raises.
    """

    def __init__(
        self,
        baseline: Train,
        *,
        budget: str | int,
        slowdown: float,
        tolerance: float = ROUNDING,
        steps: int = 4,
        rules: Sequence[Rule] = (),
        world_size: int | None = None,
        **settings: Any,
    ) -> None:
        self.budget = parse_bytes(budget)
        self.slowdown = slowdown
        self.tolerance = tolerance
        self.steps = steps
        self.rules = tuple(rules)
        self.world_size = world_size
        self.settings = settings
        self.baseline = self._measure(baseline)
        if self.baseline.oom or not self.baseline.flops or None in self.baseline.losses:
            raise BadTrain(
                f"{self.baseline.sentence!r} is no baseline: give a train function that fits this device, "
                "multiplies matrices and yields its loss in every step."
            )

    def check(self, train: Train, /, **settings: Any) -> Outcome:
        """Measure an answer, with further settings of its own, and say which rule it keeps, and by how much not.

        An error of the answer is a finding.

        Raises:
            BadTrain, BadValue: as :func:`memlab.measure`.
        """
        try:
            answer = self._answered(train, settings)
        except (BadTrain, BadValue):
            raise
        except Exception as error:
            where = place(error)
            at = f", at {where}" if where else ""
            return Outcome(False, (f"Error: {type(error).__name__}: {message(error).rstrip('.')}{at}.",))
        own = (self._fits(answer), self._works_enough(answer), self._learns_the_same(answer))
        judged = (*own, *(rule(train, answer) for rule in self.rules))
        return Outcome(all(kept for kept, _ in judged), tuple(finding for _, finding in judged))

    def __repr__(self) -> str:
        return f"<Challenge: at most {format_bytes(self.budget)} and {self.slowdown:.2f} times the arithmetic>"

    def _repr_markdown_(self) -> str:
        return (
            f"- Memory: at most **{format_bytes(self.budget)}** "
            f"(the baseline takes {format_bytes(self.baseline.peak_allocated)}).\n"
            f"- Work: at most {self.slowdown:.2f} times the baseline's arithmetic.\n"
            f"- Result: {self._sameness} in all {self.steps} steps."
            + "".join(f"\n- {_stated(rule)}" for rule in self.rules)
        )

    def _answered(self, train: Train, settings: Mapping[str, Any]) -> Trace:
        return self._measure(train, **settings) if self.world_size is None else self._measure_ranks(train, settings)

    def _measure(self, train: Train, **settings: Any) -> Trace:
        return measure(train, steps=self.steps, xray="every", **self.settings | settings)

    def _measure_ranks(self, train: Train, settings: Mapping[str, Any]) -> Trace:
        assert self.world_size is not None
        with ClusterRun(train, {**self.settings, **settings}, world_size=self.world_size, steps=self.steps) as run:
            for _ in run:
                pass
        return replace(run.trace(), steps=tuple(run.steps), flops=sum(trace.flops for trace in run.traces()))

    def _fits(self, answer: Trace) -> tuple[bool, str]:
        budget = f"the budget of {format_bytes(self.budget)}"
        if answer.oom:
            return False, f"Memory: {answer.oom.sentence}; it must stay within {budget}."
        over = answer.peak_allocated - self.budget
        relation = f"{format_bytes(over)} over" if over > 0 else "within"
        return over <= 0, f"Memory: {answer.sentence}, {relation} {budget}."

    def _works_enough(self, answer: Trace) -> tuple[bool, str]:
        ratio = answer.flops / self.baseline.flops
        if ratio < LEAST_WORK:
            relation = "too little to be training of the same model"
        else:
            relation = f"{'within' if ratio <= self.slowdown else 'more than'} the {self.slowdown:.2f} allowed"
        return LEAST_WORK <= ratio <= self.slowdown, f"Work: {ratio:.2f} times the baseline's arithmetic, {relation}."

    def _learns_the_same(self, answer: Trace) -> tuple[bool, str]:
        expected, found = self.baseline.losses, answer.losses
        if len(found) != len(expected):
            return False, f"Result: {len(found)} steps where the baseline takes {len(expected)}."
        for step, (theirs, ours) in enumerate(zip(expected, found, strict=True), start=1):
            if ours is None or theirs is None or not math.isclose(ours, theirs, rel_tol=self.tolerance):
                found_text = "not given" if ours is None else f"{ours:.6g}"
                told = f"the loss of step {step} is {found_text}, the baseline's is {theirs:.6g}"
                far = f": more than {100 * self.tolerance:.3g}% apart" if self.tolerance > ROUNDING else ""
                return False, f"Result: {told}{far}."
        return True, f"Result: {self._sameness} in all {len(expected)} steps."

    @property
    def _sameness(self) -> str:
        if self.tolerance <= ROUNDING:
            return "the same losses as the baseline"
        return f"losses within {100 * self.tolerance:.3g}% of the baseline's"


def _stated(rule: Rule) -> str:
    """Return the requirement of a rule: the first line of its docstring, or without one its name."""
    return (inspect.getdoc(rule) or rule.__name__.replace("_", " ")).splitlines()[0]
