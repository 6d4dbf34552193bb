"""A run that goes on, as the screen follows it: its newest X-ray, its losses, what its model says."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from memlab.cluster import ClusterRun
from memlab.lab.jobs import Stopping
from memlab.lab.progress import progress, stop_text
from memlab.lab.ranks import steps_of_ranks, steps_until
from memlab.lab.samples import sample
from memlab.lab.screen import Screen, View
from memlab.lab.words import heading, summary
from memlab.run import Run
from memlab.trace import Trace

SECONDS_PER_FRAME = 0.5
STEPS_PER_SAMPLE = 10


@dataclass
class LiveRun:
    """Draws a run, and keeps what of it has been drawn.

    Attributes:
        run: of which ``steps`` are wanted.
        names: the settings to name.
        budget: bytes.
        outline: what was predicted of it.
        earlier: runs that it is compared with, the newest last.
    """

    run: Run | ClusterRun
    steps: int
    screen: Screen
    names: Collection[str]
    budget: int | None
    outline: Trace | None
    earlier: Sequence[Trace]
    _xray_step: int = -1
    _sample: str = ""

    def follow(self, stopping: Stopping) -> None:
        """Train, and draw what happens, within the run's own ``with``."""
        drawn_at = 0.0
        for number, _ in enumerate(steps_until(stopping, self.run)):
            if number % STEPS_PER_SAMPLE == 0 and self.run.trace().peak_reserved is None:
                # Not on a card, whose allocator would remember it.
                self._sample = sample(self.run.variables)
            if time.monotonic() - drawn_at >= SECONDS_PER_FRAME:
                self.draw()
                drawn_at = time.monotonic()
        if self.run.steps:
            self._sample = sample(self.run.variables, is_last=True) or self._sample

    def draw(self, *, going: bool = True) -> None:
        """Draw what has changed; the step only where there is a newer X-ray, and at the end."""
        run = self.run
        if run.xray_step != self._xray_step or not going:
            trace, self._xray_step = run.trace(), run.xray_step
            # Where memory ran out on another rank, that one is on show.
            outline = self.outline if self.outline and self.outline.rank == trace.rank else None
            self.screen.look_at(View(trace, self.names, outline=outline, budget=self.budget))
            self.screen.show(sentence=summary(trace, list(self.earlier), outline), pending="")
        said = progress(
            run.steps,
            self.steps,
            name=", ".join(filter(None, ["" if going else "last run", heading(run.trace(), self.names)])),
            earlier=[trace.steps for trace in self.earlier],
            ranks=steps_of_ranks(run),
            sample=self._sample,
            going=going,
        )
        self.screen.show(run=said, **({"action": stop_text(run.steps, self.steps)} if going else {}))
