"""The memory that a technique saves: the peak without it and with it, measured here and predicted for a card."""

from dataclasses import dataclass

from memlab.errors import BadValue
from memlab.trace import Trace
from memlab.units import format_bytes

LEAST = 0.01  # a smaller part of the peak than this is neither saved nor lost

Pair = tuple[Trace, Trace]


@dataclass(frozen=True)
class Saving:
    """Two pairs of runs, each without the technique and with it. Shown in a notebook, a table of their peaks.

    Args:
        technique: what is switched on, as in ``"checkpointing every block"``.
        measured: the run without and the run with, measured on this machine.
        predicted: the same for a card; its model may be a larger one.

    Raises:
        BadValue: a run is of the wrong source or ran out of memory, or two runs of a pair are of different devices.
    """

    technique: str
    measured: Pair
    predicted: Pair

    def __post_init__(self) -> None:
        for source, pair in self._pairs():
            for run in pair:
                if run.source != source or run.oom:
                    raise BadValue(f"{run!r} has no place in {source}: give two {source} runs that fit the device.")
            first, second = (run.device.partition(",")[0] for run in pair)  # however many threads: bytes are the same
            if first != second:
                raise BadValue(f"{pair[0].device} and {pair[1].device} cannot be compared: give runs of one device.")

    @property
    def agrees(self) -> bool:
        """True if measurement and prediction agree on the direction: the technique saves, costs, or does neither."""
        return _direction(self.measured) == _direction(self.predicted)

    def __str__(self) -> str:
        told = (f"{_change(pair)} ({source}, {pair[0].device})" for source, pair in self._pairs())
        return f"{self.technique}: {', '.join(told)}"

    def _repr_markdown_(self) -> str:
        lines = [f"| {self.technique} | without | with | |", "|---|--:|--:|--:|"]
        for source, pair in self._pairs():
            without, using = (format_bytes(run.peak_allocated) for run in pair)
            lines.append(f"| {source}, {pair[0].device} | {without} | {using} | {_change(pair)} |")
        return "\n".join(lines)

    def _pairs(self) -> tuple[tuple[str, Pair], tuple[str, Pair]]:
        return ("measured", self.measured), ("predicted", self.predicted)


def _saved(pair: Pair) -> float:
    """The part of the peak that is saved, negative if the technique costs memory."""
    without, using = (run.peak_allocated for run in pair)
    return 1 - using / without


def _direction(pair: Pair) -> int:
    saved = _saved(pair)
    return 0 if abs(saved) < LEAST else 1 if saved > 0 else -1


def _change(pair: Pair) -> str:
    words = {1: "{:.0%} saved", 0: "nothing saved", -1: "{:.0%} more"}
    return words[_direction(pair)].format(abs(_saved(pair)))
