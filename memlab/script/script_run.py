"""A run of a script, in the process that it has for itself."""

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import cast

import torch

from memlab.devices import Device
from memlab.errors import BadTrain, ScriptFailed, Stopped
from memlab.protocol import Train
from memlab.run import Run
from memlab.script.child import MILESTONES
from memlab.script.command import Command
from memlab.script.eager import EAGER
from memlab.script.optimizer_steps import PATIENCE, Steps
from memlab.script.options import in_source
from memlab.script.until import Until
from memlab.text import listed
from memlab.trace import Trace
from memlab.units import format_bytes

WITHOUT_OPTIMIZER = (
    f"The script has no optimizer of PyTorch's, so its first step is {PATIENCE} backwards, and each of the others one."
)
ON_CARD = r"cuda|accel|gpu|device"  # in names of options


class ScriptRun(Run):
    """As :class:`memlab.run.Run`, for a script: it is not asked for its next step, but says when one is over.

    After the last step the script is cut off: it sees an error that no ``except Exception`` catches, and if it goes on,
    again at its next operator.

    Args:
        until: what the script shall have done as well, a key of ``MILESTONES``. It is cut off after the step in which,
            or before which, it did.

    Attributes:
        cut_off: is set then. Some scripts catch everything and go on.
    """

    def __init__(
        self,
        script: Command,
        device: Device,
        *,
        steps: int = 3,
        budget: str | int | None = None,
        until: str | None = None,
    ):
        super().__init__(cast(Train, script), {}, device, steps=steps, budget=budget)
        self._script = script
        self.settings = {"arguments": " ".join(script.arguments)} if script.arguments else {}
        self.has_ended = False
        self.exit_code: object = None  # what the script gave to sys.exit
        self.cut_off = threading.Event()
        self._followed = Steps(self._on_loss, self._on_step)
        self._tracker.loop = partial(_frame_in, str(script.path))
        self._until = None if until is None else Until(until)

    @property
    def progress(self) -> str:
        """Position of the run: ``"step 2 of 3, 12 of 40 backwards done"``, as many as the step before had."""
        steps = self._followed
        of = f" of {self._count}" if len(self.steps) < self._count else ""
        if not self.steps and not steps.backwards:
            return f"step 1{of}, no backward yet"
        known = f" of {steps.backwards_before}" if steps.backwards_before >= steps.backwards else ""
        number = f"{steps.backwards}{known}"
        return f"step {len(self.steps) + 1}{of}, {number} backward{'s' * (number != '1')} done"

    def trace(self) -> Trace:
        """Return what is known so far; with what the steps after the first take, which also has all that is set up."""
        trace = super().trace()
        return replace(trace, notes=(*trace.notes, *self._own_notes(self.varies(trace))))

    def varies(self, trace: Trace) -> bool:
        """Return True if the steps of the training differ; a step with a milestone in it differs anyway."""
        return trace.varies and self._until is None

    def _own_notes(self, varies: bool) -> Iterator[str]:
        if self._followed.counts_backwards:
            yield WITHOUT_OPTIMIZER
        if self.has_failed_evaluating:
            yield "That is in an evaluation, which keeps nothing for a backward: what counts is its own batch."
        if kept := self._without_no_grad:
            yield kept
        if self._until and len(self.steps) > self._count and not self.oom:
            yield from self._on_milestone(self._until.milestone)
        if not self._device.computes and not any(step.peak_allocated for step in self.steps):
            yield from self._on_nothing()
        first, *others = (step.peak_allocated or 0 for step in self.steps)
        if varies:
            yield (
                f"Its steps differ, {format_bytes(min(others))} to {format_bytes(max(others))}: the largest batch "
                "decides, so give --steps to see more of them, or pad all to the greatest length for the worst case."
            )
        if others and not self.oom and max(others) < first:
            yield (
                "The peak is that of the first step, with all that the script does before it; the highest of the "
                f"others takes {format_bytes(max(others))}."
            )

    @property
    def fault(self) -> str:
        """A sentence on what the script keeps though it has no use for it; or ``""``."""
        return self.leaks or self._without_no_grad

    @property
    def lacks_no_grad(self) -> bool:
        """True if the fault is an evaluation that keeps all that a backward would need."""
        return bool(self._without_no_grad) and not self.leaks

    @property
    def _without_no_grad(self) -> str:
        if self._until is None or not self._until.kept_at:
            return ""
        return (
            f"At {self._until.kept_at} the model is called in eval mode with gradients on, so all that a backward "
            "would need is kept: torch.no_grad() is missing in what evaluates."
        )

    @property
    def has_failed_evaluating(self) -> bool:
        """True if memory ran out in an evaluation."""
        return self.oom is not None and self._tracker.failed_evaluating

    def _keep_xray(self, index: int) -> int:
        times = self._least_seconds, self._likely_seconds
        peak = super()._keep_xray(index)
        if index >= self._count:  # in which a milestone is waited for: no step of the training as the others are
            self._least_seconds, self._likely_seconds = times
        return peak

    def _on_nothing(self) -> Iterator[str]:
        flags = [option.flag for option in in_source(self._script.path) if re.search(ON_CARD, option.name)]
        remedy = f"; of its options, {listed(flags)} may change that" if flags else ""
        yield f"The script had nothing on the card: it trains on the CPU as it was started{remedy}."

    def _on_milestone(self, milestone: str) -> Iterator[str]:
        *before, last = (step.peak_allocated or 0 for step in self.steps)
        what = "evaluates its model" if milestone == "evaluation" else "saves"
        yield (
            f"The script {what} after step {len(self.steps) - 1}. From there to the end of the next step the peak is "
            f"{format_bytes(last)}, in the steps before it {format_bytes(max(before))}."
        )

    def _place(self, line: int) -> str:
        """A line of the script, in words."""
        return f"at {self._script.path.name}:{line}" if line else "where no line of the script is at work"

    def complete(self) -> Trace:
        """Run the script until its steps are made and what it shall have done is done, or it ends.

        Raises:
            BadTrain: it has ended without a step.
            ScriptFailed: it has ended without what it shall have done.
            Exception: what the script raises.
        """
        with self:
            self._run_script()
        if not self.steps:
            raise BadTrain(f"{self._script.__name__} made no step")
        return self.trace()

    def _begin(self, undo: ExitStack) -> None:
        """Set up the replacements for a predicted script; what it does before its first step counts as part of it."""
        if not self._device.computes:
            undo.enter_context(EAGER)

    def _run_script(self) -> None:
        self._this_step = ExitStack()
        with suppress(Stopped), self._this_step:
            self._open_step()
            with self._followed.followed(), self._until.followed() if self._until else nullcontext():
                self._run_to_its_end()
            if self._tracker.failed is not None:  # and the script caught that
                raise torch.OutOfMemoryError(self._tracker.failed.message)

    def _run_to_its_end(self) -> None:
        try:
            self._script(self._device.device)
        except SystemExit as exit_:
            self.exit_code = exit_.code
        self.has_ended = True
        if self._until and self.steps:
            self._end_with(self._until)

    def _end_with(self, until: Until) -> None:
        """The script has ended after its last step, perhaps with what it should do."""
        if not until.reached:
            raise ScriptFailed(
                f"{self._script.__name__} ended after {len(self.steps)} steps and has not once "
                f"{MILESTONES[until.milestone]} after its first step: give the options with which it does early."
            )
        self._yielded.append(None)

    def _open_step(self) -> None:
        self._loss: float | None = None
        self._yielded = self._this_step.enter_context(self._step())

    def _on_loss(self, loss: torch.Tensor) -> None:
        self._tracker.yielded(loss)
        if self._until:
            self._until.see_backward()
        if self._device.computes:
            self._loss = (self._loss or 0.0) + float(loss.detach())

    def _on_step(self) -> None:
        """A step of the script is over: so is ours, and the next one begins, or the script is cut off."""
        self._yielded.append(self._loss)
        self._this_step.close()
        if self._goes_on():
            self._open_step()
            return
        self.cut_off.set()
        self._tracker.stopping, self._every = self.cut_off, True
        self._open_step()
        raise Stopped

    def _goes_on(self) -> bool:
        """True if there is more to be seen."""
        made = len(self.steps) >= self._count
        if self._until is None or self._until.reached:
            return not made
        self._until.is_watching, self._until.shortens = True, made
        return True


def _frame_in(file: str) -> FrameType | None:
    """The innermost frame of this file that is at work, or that waits for what it has called."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    return frame
