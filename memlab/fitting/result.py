"""The result of ``fit``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memlab.categories import Category
from memlab.text import capital
from memlab.trace import Trace
from memlab.units import format_bytes, format_seconds

RESIDENTS = (Category.PARAMETER, Category.BUFFER, Category.GRADIENT, Category.OPTIMIZER_STATE)


@dataclass(frozen=True)
class Candidate:
    """One combination of settings, and what was predicted for it.

    Attributes:
        settings: the values of the choices.
        trace: the prediction.
        samples: how many samples a step has, None where no setting says it.
    """

    settings: Mapping[str, Any]
    trace: Trace
    samples: int | None

    @property
    def seconds(self) -> float:
        """Return what a sample probably takes, or a step where no setting says how many samples it has."""
        return (self.trace.likely_seconds or 0.0) / (self.samples or 1)

    @property
    def needed(self) -> int:
        """Bytes that the allocator has to hold."""
        return self.trace.peak_reserved or 0


@dataclass(frozen=True)
class Refused:
    """Settings that the loop itself does not take, with its words."""

    settings: Mapping[str, Any]
    words: str


@dataclass(frozen=True)
class Fit:
    """The settings that fit, the fastest first.

    Attributes:
        device: the card's name.
        room: bytes that may be held on it.
        rows: the fastest of each combination of menus that fits and is worth it.
        nearest: where nothing fits, what needs the least memory, on a card that has it.
        refused: what the loop itself refused.
        wished: the first of each menu and the top of the range.
        axis: the setting that has a range, or ``""``.
        notes: sentences about the choices.
        tried: how many predictions it took.
        combinations: how many there are.
        stopped: whether it was interrupted.
        measured: what the first row took on the CUDA device of this machine, None without one.
    """

    device: str
    room: int
    rows: tuple[Candidate, ...]
    nearest: Candidate | None
    refused: tuple[Refused, ...]
    wished: Mapping[str, Any]
    axis: str
    notes: tuple[str, ...]
    tried: int
    combinations: int
    stopped: bool = False
    measured: Trace | None = None

    @property
    def best(self) -> Candidate | None:
        """The fastest that fits, None if nothing does."""
        return self.rows[0] if self.rows else None

    @property
    def sentence(self) -> str:
        """Say what fits best, what was given up for it and by how much it fits; or why nothing does."""
        if self.best is not None:
            return self._fitting(self.best)
        if self.nearest is not None:
            return self._lacking(self.nearest)
        if self.refused:
            return f"the loop takes none of the settings: {self.refused[0].words}"
        return "interrupted before anything was known"

    def _fitting(self, best: Candidate) -> str:
        wished = [
            f"{name} {'up to ' * (name == self.axis)}{value!r}"
            for name, value in self.wished.items()
            if best.settings[name] != value
        ]
        instead = f" (asked for: {', '.join(wished)})" if wished else ", as asked for"
        chosen = f"{words(best.settings)}{instead}: " if self.wished else ""
        time = f"probably {format_seconds(best.seconds)} {self._unit}"
        least, most, fits = ("at least ", "at most ", "may fit") if best.trace.is_lower_bound else ("", "", "fits")
        room = f"{least}{format_bytes(best.needed)} of {format_bytes(self.room)} on {self.device}"
        spare = f"{most}{format_bytes(self.room - best.needed)} to spare"
        return f"{fits}: {chosen}{room}, {spare}, {time}"

    @property
    def _unit(self) -> str:
        return "a sample" if self.best is not None and self.best.samples else "a step"

    def _lacking(self, nearest: Candidate) -> str:
        trace = nearest.trace
        at_peak, series = trace.by_category, trace.timeline
        of_residents = [series[category] for category in RESIDENTS if category in series]
        residents = max(map(sum, zip(*of_residents, strict=True)), default=0)
        if residents > self.room:
            binds = f"parameters, gradients and optimizer state alone are {format_bytes(residents)}"
        else:
            category, count = max(at_peak.items(), key=lambda item: item[1])
            where = trace.peak_module or trace.peak_op
            binds = f"at its peak {trace.peak_phase.place} at {where} {format_bytes(count)} are {category.plural}"
        lack = format_bytes(nearest.needed - self.room)
        needs = f"needs {format_bytes(nearest.needed)}, {lack} more than {format_bytes(self.room)} on {self.device}"
        if not self.wished:
            return f"does not fit: it {needs}: {binds}"
        return f"nothing fits; the nearest, {words(nearest.settings)}, {needs}: {binds}"

    def lines(self) -> Iterator[str]:
        """The result as lines of text."""
        yield f"{capital(self.sentence)}."
        if self.rows:
            yield f"{self._unit:>8}{'reserved':>10}  settings"
        for row in self.rows:
            time = f"{format_seconds(row.seconds):>8}"
            yield f"{time}{format_bytes(row.needed):>10}  {words(row.settings)}"
        for refused in self.refused:
            yield f"Not possible: {words(refused.settings)}: {refused.words}"
        yield from self.notes
        yield f"{self.tried} predictions for {self.combinations} combinations{', interrupted' * self.stopped}."

    def __str__(self) -> str:
        return "\n".join(self.lines())


def words(settings: Mapping[str, Any]) -> str:
    """Settings as they are typed."""
    return ", ".join(f"{name}={value!r}" for name, value in settings.items()) or "the loop as it is"
