"""Which settings of a script are most worth changing: each is tried, in a prediction of its own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from memlab.errors import MemlabError
from memlab.script.child import Answer, ask
from memlab.script.command import Command
from memlab.script.options import Option, leaner
from memlab.trace import Trace
from memlab.units import format_bytes
from memlab.vgpu.cards import find_card

MOST_TRIED = 6
MOST_TOLD = 3
STEPS = 2  # the second has all that stays


@dataclass(frozen=True)
class Change:
    """An option with another value, and what the script then takes.

    Attributes:
        option: with the value that it has.
        value: the other one.
        peak: bytes allocated with it.
        saved: bytes that it takes off the peak.
        fits: whether the card has room for what is then reserved.
    """

    option: Option
    value: Any
    peak: int
    saved: int
    fits: bool

    def __str__(self) -> str:
        change = self.option.word(self.value)
        if not isinstance(self.option.value, bool):
            change = f"{self.option.flag} {self.option.value} -> {self.value}"
        return f"{change}: {format_bytes(self.peak)}" + (", which fits" if self.fits else "")


def changes(
    command: Command, answer: Answer, gpu: str, world_size: int | None = None, room: int | None = None
) -> Iterator[str]:
    """For a script that has run out of memory: lines that say what it needs, and what saves the most.

    Args:
        command: the script.
        answer: what a prediction of it has said.
        gpu: the card.
        world_size: how many ranks there are.
        room: bytes that may be reserved; by default what the card has.
    """
    candidates = leaner(list(answer.options))[:MOST_TRIED]
    if not candidates:
        return
    predicted = partial(_predicted, gpu=gpu, ranks=(world_size, 0))
    whole = predicted(command)
    yield f"With room enough it would take {whole.peak_text}."
    room = find_card(gpu).room if room is None else room
    tried = [_tried(command, option, value, predicted, whole.peak_allocated, room) for option, value in candidates]
    saving = sorted((change for change in tried if change), key=lambda change: -change.saved)
    yield from map(str, saving[:MOST_TOLD])


def _predicted(command: Command, **options: Any) -> Trace:
    return ask(command, **options, steps=STEPS, is_endless=True, is_quiet=True).trace


def _tried(
    command: Command, option: Option, value: Any, predicted: Callable[[Command], Trace], whole: int, room: int
) -> Change | None:
    """What another value saves; None where it saves nothing, or the script does not run with it."""
    try:
        trace = predicted(command.with_words(option.word(value)))
    except MemlabError:
        return None
    if trace.peak_allocated >= whole or trace.peak_reserved is None:
        return None
    return Change(option, value, trace.peak_allocated, whole - trace.peak_allocated, trace.peak_reserved <= room)
