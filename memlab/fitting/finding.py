"""``fit``: the settings of a training loop that fit on a card, the fastest first."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from memlab.errors import BadTrain, BadValue, NoVirtualGpu
from memlab.fitting.grid import Grid, make_grid
from memlab.fitting.result import Candidate, Fit, Refused, words
from memlab.fitting.search import Line
from memlab.protocol import Train, check_settings
from memlab.run import Run, RunsElsewhere, measure
from memlab.trace import Trace
from memlab.units import format_bytes, parse_bytes
from memlab.vgpu.gpu import VirtualGpu


def fit(
    train: Train | RunsElsewhere,
    /,
    *,
    gpu: str = "T4",
    budget: str | int | None = None,
    steps: int = 3,
    chosen: float | str | None = None,
    progress: Callable[[str], None] | None = None,
    **choices: Any,
) -> Fit:
    """The settings with which ``train`` fits on a card, found without trying every combination.

    Args:
        train: ``train(device, **settings)`` or a script, as for :func:`memlab.predict`.
        gpu: the card, as for :func:`memlab.predict`.
        budget: ``"14.5 GiB"`` or bytes, where less than the whole card is free.
        steps: of each prediction on the card; what the settings take where nothing binds is looked at for two.
        chosen: the share that is chosen where numbers decide that only a real card knows, as for
            :func:`memlab.predict`.
        progress: called with a line of text after each prediction.
        **choices: ``(low, high)`` for a whole number, a list for one of its values, ``bool`` for either; anything else
            is a setting as it is. Write first in a list what you would rather have.

    Each combination of lists is looked at. Along one range, that of the batch size if there is one, peak memory is
    taken to grow (or to fall) steadily; every value is tried where it is found not to. Each combination of lists gives
    one row: what is fastest a sample, if a setting is named as a batch is, else a step. Combinations that take no less
    memory and no less time than others are left out. What the loop refuses is kept with its words. Ctrl-C ends the
    search, and what was found is returned. Where this machine has the card, the first row is measured, too.

    Raises:
        BadTrain, BadValue: as :func:`memlab.predict`; also for a choice without a value.
    """
    grid = make_grid(choices)
    search = _Search(train, grid, gpu, budget, steps, chosen, progress)
    if not isinstance(train, RunsElsewhere):
        check_settings(train, dict(grid.fixed) | grid.first)
    stopped = False
    try:
        search.run()
    except KeyboardInterrupt:
        stopped = True
    return search.result(stopped)


def max_batch(
    train: Train | RunsElsewhere, /, *, gpu: str = "T4", budget: str | int | None = None, **settings: Any
) -> int:
    """The largest ``batch_size`` up to 1024 with which ``train`` fits, 0 if none does. Takes what :func:`fit` takes."""
    best = fit(train, gpu=gpu, budget=budget, **{"batch_size": (1, 1024)} | settings).best
    return best.settings["batch_size"] if best else 0


class _Search:
    """One call of :func:`fit`."""

    def __init__(
        self,
        train: Train | RunsElsewhere,
        grid: Grid,
        gpu: str,
        budget: str | int | None,
        steps: int,
        chosen: float | str | None,
        progress: Callable[[str], None] | None,
    ):
        self._train, self._grid, self._steps, self._chosen = train, grid, steps, chosen
        self._card = VirtualGpu(gpu, chosen=chosen)
        self._endless = VirtualGpu(gpu, chosen=chosen, is_endless=True)
        room = self._card.card.room
        self._room = room if budget is None else min(room, parse_bytes(budget))
        self._progress = progress
        self._lines: list[tuple[dict[str, Any], Line]] = []
        self._refused: list[Refused] = []
        self._tried = 0

    def run(self) -> None:
        """Look at all lines, and search those that no other beats."""
        for menus in self._grid.lines():
            line = Line(self._grid.values, self._predictor(menus), self._room)
            self._lines.append((menus, line))
            line.look()
        kept: list[Line] = []
        for line in sorted((line for _, line in self._lines), key=_promise):
            if not any(map(line.is_beaten_by, kept)):
                kept.append(line)
                line.search()
            else:
                line.fitting.clear()

    def _predictor(self, menus: Mapping[str, Any]) -> Callable[[Any, bool], Candidate | None]:
        return lambda value, on_the_card: self._predict(dict(menus) | self._grid.at(value), on_the_card)

    def _predict(self, chosen: dict[str, Any], on_the_card: bool) -> Candidate | None:
        settings = dict(self._grid.fixed) | chosen
        self._tried += 1
        try:
            trace = self._trace(settings, on_the_card)
        except (BadTrain, BadValue, NoVirtualGpu):
            raise  # of no use with any setting
        except Exception as error:  # the loop's own words
            self._refused.append(Refused(chosen, f"{type(error).__name__}: {error}"))
            self._say(chosen, self._refused[-1].words)
            return None
        self._say(chosen, trace.oom.sentence if trace.oom else format_bytes(trace.peak_reserved or 0))
        return Candidate(chosen, trace, samples_of(dict(trace.settings) | settings))

    def _trace(self, settings: dict[str, Any], on_the_card: bool) -> Trace:
        budget, steps = (self._room, self._steps) if on_the_card else (None, min(2, self._steps))
        if isinstance(self._train, RunsElsewhere):
            return self._train.want(gpu=self._card.name, steps=steps, budget=budget, chosen=self._chosen, **settings)
        device = self._card if on_the_card else self._endless
        return Run(self._train, settings, device, steps=steps, budget=budget).complete()

    def _say(self, chosen: Mapping[str, Any], what: str) -> None:
        if self._progress:
            self._progress(f"{self._tried}: {words(chosen)}: {what}")

    def result(self, stopped: bool) -> Fit:
        """Return the outcome of the search so far; ``stopped`` tells that it was ended early."""
        rows = sorted((line.best for _, line in self._lines if line.best), key=lambda row: (row.seconds, row.needed))
        ends = [end for _, line in self._lines for end in (line.low, line.high) if end]
        measured = None if stopped or not rows else self._measure(rows[0])
        return Fit(
            device=self._card.name,
            room=self._room,
            rows=tuple(rows),
            nearest=None if rows else min(ends, key=lambda end: end.needed, default=None),
            refused=tuple(self._refused),
            wished=self._grid.first,
            axis=self._grid.axis,
            notes=tuple(self._notes()),
            tried=self._tried,
            combinations=self._grid.size,
            stopped=stopped,
            measured=measured,
        )

    def _notes(self) -> Iterator[str]:
        """A sentence on a card that is only described, and one for each choice that changes nothing."""
        if sentence := self._card.card.assumption:
            yield sentence
        known = [(menus, (line.low.trace, line.high.trace)) for menus, line in self._lines if line.low and line.high]
        for name, values in self._grid.menus.items():
            results: dict[str, set[tuple[Any, ...]]] = {}
            for menus, traces in known:
                others = words({key: value for key, value in menus.items() if key != name})
                results.setdefault(others, set()).add(tuple(map(_cost, traces)))
            if len(values) > 1 and results and all(len(costs) == 1 for costs in results.values()):
                yield f"{name} changes neither memory nor time."
        if self._grid.axis and known and all(_cost(low) == _cost(high) for _, (low, high) in known):
            yield f"{self._grid.axis} changes neither memory nor time."

    def _measure(self, row: Candidate) -> Trace | None:
        """The row for real, where this machine has the card."""
        if not self._is_here():
            return None
        settings = dict(self._grid.fixed) | dict(row.settings)
        return measure(self._train, device="cuda", budget=self._room, steps=self._steps, **settings)

    def _is_here(self) -> bool:
        if not torch.cuda.is_available():
            return False
        here, card = torch.cuda.get_device_properties(0), self._card.card
        return 10 * here.major + here.minor == card.sm and abs(here.total_memory / card.capacity - 1) < 0.05


def samples_of(settings: Mapping[str, Any]) -> int | None:
    """Return the samples of a step, from the setting that is named like a batch size; None if there is none."""
    names = sorted((name for name in settings if "batch" in name), key=lambda name: (name != "batch_size", name))
    counts = [settings[name] for name in names if type(settings[name]) is int and settings[name] > 0]
    return counts[0] if counts else None


def _promise(line: Line) -> tuple[float, int]:
    return (line.high.seconds, line.high.needed) if line.high else (float("inf"), 0)


def _cost(trace: Trace) -> tuple[Any, ...]:
    return trace.peak_allocated, trace.likely_seconds
