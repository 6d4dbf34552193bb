"""The one data type: what a run allocated, when, where and for what.

A :class:`Trace` keeps the events of one X-rayed training step; everything else that a reader may ask
(the peak, its categories, the timeline) is worked out from them, so the numbers cannot disagree.
"""

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate, groupby, repeat
from typing import Any, NamedTuple

from memlab.categories import Category, Phase
from memlab.errors import NotATrace
from memlab.oom import OutOfMemory
from memlab.units import GIB, format_bytes, format_seconds

__all__ = ["Category", "Event", "OutOfMemory", "Phase", "Step", "Storage", "Trace"]

FORMAT = 2
MUCH_IDLE = 0.15  # of the peak


class Event(NamedTuple):
    """One change of allocated memory: ``bytes`` is positive for an allocation, negative for a free.

    Attributes:
        storage: which of ``Trace.storages`` changed; -1 where that is not known.
        line: of ``train``, in its own file or cell; 0 where that is not known.
        seconds: since the step began: measured, or of a prediction estimated.
    """

    bytes: int
    category: Category
    phase: Phase
    module: str
    op: str
    storage: int = -1
    line: int = 0
    seconds: float = 0.0


class Storage(NamedTuple):
    """A piece of memory that was allocated at once, and the tensor that was first seen in it.

    Attributes:
        name: of a parameter, a buffer, a gradient or a piece of optimizer state, as in ``"blocks.3.mlp.0.weight"``;
            ``""`` for what a module computes, which is known by the event that allocates it. Of what is held over,
            the module and the operator that allocated it: ``"head mm"``.
        shape: of the tensor, empty for a number and for what is no tensor.
        dtype: ``"float32"``, ``""`` for what is no tensor.
        category: as its events have it.
        start: bytes when the step began.
        variable: the name under which the training loop itself held the tensor when backward or the next step began,
            ``"logits"``, or ``"batch.labels"`` for a value of a dictionary; ``""`` if it had none.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    category: Category
    start: int
    variable: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One training step, the time between two ``yield``.

    ``peak_allocated`` is None where nothing could read it: a step on the CPU that was not X-rayed.
    ``seconds`` of an X-rayed step include the cost of the X-ray. A predicted step has no loss and no seconds.
    """

    loss: float | None
    seconds: float | None
    peak_allocated: int | None
    xrayed: bool

    def to_plain(self) -> dict[str, Any]:
        """The step as JSON has it; :meth:`from_plain` gives back an equal one."""
        return asdict(self) | {"loss": _portable(self.loss)}

    @classmethod
    def from_plain(cls, fields: Mapping[str, Any]) -> "Step":
        """The step that :meth:`to_plain` gave."""
        return cls(**{**fields, "loss": _number(fields["loss"])})


@dataclass(frozen=True, repr=False)
class Trace:
    """One run of a ``train`` function, measured or predicted.

    Attributes:
        source: ``"measured"`` or ``"predicted"``.
        device: the device's name, for people.
        torch_version: of the torch that ran.
        settings: the keyword arguments of ``train``, defaults included.
        steps: one :class:`Step` for each ``yield``.
        peak_reserved: bytes held from the driver at most, None on the CPU, which has no such allocator.
        xray_step: index of the step that ``start`` and ``events`` describe: of all the X-rayed steps
            the one with the highest peak; of equals, the last one of the first three steps.
        start: allocated bytes by category when that step began.
        events: every allocation and free of that step, in order.
        reserved: bytes held from the driver in that step: places in ``allocated``, the first 0, each with the bytes
            that are held from there on. Empty on the CPU.
        waits: from when to when, in seconds of that step, a predicted rank computes nothing and waits for others; empty
            where that is not known, as of what was measured or of a stage of a pipeline.
        storages: what its events allocate and free; those that the step began with too.
        flops: floating-point operations of that step (a multiply-add counts as two), by
            ``torch.utils.flop_counter``'s formulas: products, convolutions, attention.
        oom: the allocation that did not fit, or None.
        notes: sentences about the run that its reader must know.
        guesses: lines of the loop that asked for a number which a prediction does not have, as ``"train.py:12"``.
        is_lower_bound: whether more may be needed: how large some results are depends on numbers that a prediction does
            not have, and they were taken to be as small as can be; or cuDNN's workspaces are not known.
        host_peak: bytes of the host's memory that tensors of a predicted loop took at most: weights before they move to
            the card, batches, what is offloaded. None where it was measured.
        rank: which of the processes that train together this one is, from 0.
        world_size: how many processes train together.
        sent: bytes that this rank sends to others in a step, the last that was X-rayed, with the ring algorithms.
        sent_to_other_machines: those of ``sent`` that leave the rank's machine, where one rank of a ring sends for all
            of them its share; a predicted machine has eight cards.
        least_seconds: what the predicted card takes for the last step at the very least (``vgpu/time/roofline.py``),
            never a measurement; None where it was measured, or memory ran out.
        likely_seconds: what it probably takes (``vgpu/time/estimate.py``), which may be far off.
    """

    source: str
    device: str
    torch_version: str
    settings: Mapping[str, Any]
    steps: tuple[Step, ...]
    peak_reserved: int | None
    xray_step: int
    start: Mapping[Category, int]
    events: tuple[Event, ...]
    flops: int
    oom: OutOfMemory | None = None
    notes: tuple[str, ...] = ()
    guesses: tuple[str, ...] = ()
    is_lower_bound: bool = False
    host_peak: int | None = None
    rank: int = 0
    world_size: int = 1
    sent: int = 0
    sent_to_other_machines: int = 0
    least_seconds: float | None = None
    likely_seconds: float | None = None
    storages: tuple[Storage, ...] = ()
    reserved: tuple[tuple[int, int], ...] = ()
    waits: tuple[tuple[float, float], ...] = ()

    @cached_property
    def allocated(self) -> tuple[int, ...]:
        """Allocated bytes at the start of the X-rayed step and after each of its events."""
        return tuple(accumulate((event.bytes for event in self.events), initial=sum(self.start.values())))

    @cached_property
    def reserved_at(self) -> tuple[int, ...]:
        """Reserved bytes at the same moments; empty on the CPU."""
        ends = [place for place, _ in self.reserved[1:]] + [len(self.allocated)] * bool(self.reserved)
        spans = ((count, end - place) for (place, count), end in zip(self.reserved, ends, strict=True))
        return tuple(count for count, length in spans for _ in range(length))

    @cached_property
    def seconds(self) -> tuple[float, ...]:
        """Seconds at the start of the X-rayed step and at each event, measured or, in a prediction, estimated."""
        return (0.0, *(event.seconds for event in self.events))

    @cached_property
    def timeline(self) -> dict[Category, tuple[int, ...]]:
        """The same by category: ``len(events) + 1`` values each. A category that is never used is left out."""
        changes: dict[Category, list[int]] = {}
        for place, event in enumerate(self.events):
            if event.category not in changes:
                changes[event.category] = [0] * len(self.events)
            changes[event.category][place] = event.bytes
        unchanged = [0] * len(self.events)
        series = {
            category: tuple(accumulate(changes.get(category, unchanged), initial=self.start.get(category, 0)))
            for category in Category
            if category in changes or self.start.get(category)
        }
        return {category: values for category, values in series.items() if any(values)}

    @property
    def phases(self) -> list[tuple[Phase, int, int]]:
        """Every stretch of events in one phase: the phase, its first event, the first event after it."""
        spans, first = [], 0
        for phase, events in groupby(self.events, key=lambda event: event.phase):
            last = first + sum(1 for _ in events)
            spans.append((phase, first, last))
            first = last
        return spans

    @cached_property
    def peak_index(self) -> int:
        """Index in ``allocated`` at which the peak first stands; ``events[peak_index - 1]`` reached it."""
        return self.allocated.index(max(self.allocated))

    @property
    def peak_allocated(self) -> int:
        """The most bytes allocated at any moment of the X-rayed step."""
        return self.allocated[self.peak_index]

    @property
    def holds_much_idle(self) -> bool:
        """True if much more is reserved than is allocated at once: at least a GiB, and 15% of the peak."""
        idle = (self.peak_reserved or 0) - self.peak_allocated
        return idle >= GIB and idle >= MUCH_IDLE * self.peak_allocated

    @property
    def by_category(self) -> dict[Category, int]:
        """Bytes at the peak; they sum to ``peak_allocated``."""
        counts = Counter(self.start)
        for event in self.events[: self.peak_index]:
            counts[event.category] += event.bytes
        return {category: counts[category] for category in Category if counts[category]}

    @property
    def peak_phase(self) -> Phase:
        """The phase in which the peak was reached."""
        return self._peak_event.phase

    @property
    def peak_module(self) -> str:
        """The module at work when the peak was reached, ``""`` if none was."""
        return self._peak_event.module

    @property
    def peak_op(self) -> str:
        """The operator that reached the peak, such as ``"aten.mm"``."""
        return self._peak_event.op

    @property
    def peak_text(self) -> str:
        """The peak in words: ``412 MiB``, or ``at least 412 MiB``."""
        return self.text_of(self.peak_allocated)

    def text_of(self, count: int) -> str:
        """Some of its bytes in words, as :attr:`peak_text` has the peak."""
        return f"{'at least ' * self.is_lower_bound}{format_bytes(count)}"

    def with_room_enough(self, room: int | None) -> str:
        """Tell what a run that has only this ``room`` would take with more, in a sentence without a full stop.

        Where there is room for the bytes that are allocated at most, the reserved bytes are told as well.
        """
        reserved = self.peak_reserved or 0
        is_for_blocks = room is not None and self.peak_allocated <= room < reserved
        more = f", and {format_bytes(reserved)} reserved" if is_for_blocks else ""
        return f"With room enough it would take {self.peak_text}{more}"

    @property
    def varies(self) -> bool:
        """True if the steps after the first differ in their peaks, by more than 1%: the largest batch decides then."""
        peaks = [step.peak_allocated or 0 for step in self.steps[1:]]
        return len(peaks) > 1 and self.oom is None and max(peaks) > 1.01 * min(peaks)

    @property
    def computed(self) -> bool:
        """True where numbers were computed. A prediction has bytes only: no losses, no seconds."""
        return any(step.seconds is not None for step in self.steps)

    @property
    def losses(self) -> tuple[float | None, ...]:
        """The loss of every step."""
        return tuple(step.loss for step in self.steps)

    @property
    def seconds_per_step(self) -> float | None:
        """The median of the plain steps' seconds (the first step left out, it warms up); None without any."""
        plain = [step.seconds for step in self.steps[1:] if not step.xrayed and step.seconds is not None]
        return statistics.median(plain) if plain else None

    @property
    def peak_line(self) -> int:
        """The line of the training loop that is at work there, or where memory runs out; 0 where that is not known."""
        until = self.events if self.oom else self.events[: self.peak_index]
        # What is freed behind a request that failed is freed on the way out.
        return next((event.line for event in reversed(until) if event.bytes > 0), 0)

    @property
    def sentence(self) -> str:
        """The picture in words: ``peak 412 MiB in backward at blocks.3.mlp: 61% activations``."""
        if self.oom:
            return f"{self.oom.sentence}, {self.largest}{self.guessed}"
        where = self.peak_module or self.peak_op
        place = f" at {where}" if where else ""
        return f"peak {self.peak_text} {self.peak_phase.place}{place}: {self.largest}{self.guessed}"

    @property
    def time_sentence(self) -> str:
        """The time of a predicted step: ``at least 41 ms a step on T4, probably about 60 ms``; else ``""``."""
        if self.least_seconds is None or self.likely_seconds is None:
            return ""
        least, likely = format_seconds(self.least_seconds), format_seconds(self.likely_seconds)
        return f"at least {least} a step on {self.device}, probably about {likely}"

    @property
    def guessed(self) -> str:
        """The first line that asked for a number which a prediction does not have, as the end of a sentence."""
        if not self.guesses:
            return ""
        others = len(self.guesses) - 1
        more = f" and {others} other {'line' if others == 1 else 'lines'}" if others else ""
        return f"; a number was guessed at {self.guesses[0]}{more}"

    @property
    def _peak_event(self) -> Event:
        if self.peak_index == 0:
            return Event(0, Category.TEMPORARY, Phase.OTHER, "", "")
        return self.events[self.peak_index - 1]

    @property
    def largest(self) -> str:
        """The category that takes most of the peak, and its share: ``"61% activations"``."""
        if not self.peak_allocated:
            return "nothing allocated"
        category, count = max(self.by_category.items(), key=lambda item: item[1])
        return f"{100 * count / self.peak_allocated:.0f}% {category.plural}"

    def __repr__(self) -> str:
        return f"<Trace: {self.sentence}, {self.source} on {self.device}>"

    def to_plain(self) -> dict[str, Any]:
        """The trace as numbers, texts, lists and dictionaries: what :meth:`to_json` writes and the panel draws."""
        fields = {name: getattr(self, name) for name in _PLAIN_FIELDS}
        fields["settings"] = dict(self.settings)
        fields["start"] = dict(self.start)
        fields["steps"] = [step.to_plain() for step in self.steps]
        fields["events"] = _columns(self.events, Event)
        fields["storages"] = _columns(self.storages, Storage)
        fields["reserved"], fields["waits"] = list(map(list, self.reserved)), list(map(list, self.waits))
        fields["notes"], fields["guesses"] = list(self.notes), list(self.guesses)
        fields["oom"] = asdict(self.oom) if self.oom else None
        return {"memlab_trace": FORMAT} | fields

    def to_json(self) -> str:
        """The trace as JSON text; :meth:`from_json` gives back an equal trace.

        ``trace.schema.json``, beside this file, says what each key is. ``summary`` has what other programs ask most.
        """
        peak = {"peak_allocated": self.peak_allocated, "by_category": self.by_category}
        summary = peak | {"fits": self.oom is None, "sentence": self.sentence}
        return json.dumps(self.to_plain() | {"summary": summary}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Trace":
        """The trace that :meth:`to_json` wrote.

        Raises:
            NotATrace: when the text is something else.
        """
        try:
            fields = json.loads(text)
            found = fields.pop("memlab_trace")
            if found != FORMAT:
                raise NotATrace(f"This trace has format {found!r}, this memlab reads {FORMAT}: record it again.")
            oom = fields.pop("oom")
            fields.pop("summary", None)  # it is worked out from the rest
            return cls(
                steps=tuple(map(Step.from_plain, fields.pop("steps"))),
                start={Category(name): count for name, count in fields.pop("start").items()},
                events=tuple(map(Event._make, _rows(fields.pop("events"), Event))),
                storages=tuple(map(Storage._make, _rows(fields.pop("storages"), Storage))),
                reserved=tuple((place, count) for place, count in fields.pop("reserved", ())),
                waits=tuple((begin, end) for begin, end in fields.pop("waits", ())),
                notes=tuple(fields.pop("notes", ())),
                guesses=tuple(fields.pop("guesses", ())),
                oom=OutOfMemory(**oom | {"phase": Phase(oom["phase"])}) if oom else None,
                **fields,
            )
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            if isinstance(error, NotATrace):
                raise
            raise NotATrace(
                f"{text[:40]!r} is not a trace ({type(error).__name__}: {error}): give text that Trace.to_json wrote."
            ) from None


_PLAIN_FIELDS = (
    "source",
    "device",
    "torch_version",
    "settings",
    "peak_reserved",
    "xray_step",
    "start",
    "flops",
    "notes",
    "is_lower_bound",
    "host_peak",
    "rank",
    "world_size",
    "sent",
    "sent_to_other_machines",
    "least_seconds",
    "likely_seconds",
)
# How the texts of a column are read back; a column that is not here has numbers.
_READ: dict[str, Callable[[str], Any]] = {
    "category": Category,
    "phase": Phase,
    "module": str,
    "op": str,
    "name": str,
    "dtype": str,
    "variable": str,
    "shape": lambda text: tuple(map(int, text.split())),
}


def _portable(loss: float | None) -> float | str | None:
    # JSON has no NaN and no infinity; a loss that diverged must survive all the same.
    return loss if loss is None or math.isfinite(loss) else str(loss)


def _number(loss: float | str | None) -> float | None:
    return None if loss is None else float(loss)


def _columns(rows: Sequence[tuple[Any, ...]], kind: type[Event] | type[Storage]) -> dict[str, list[Any]]:
    """Rows as columns, each distinct text written once: a step of 5,000 events in some 200 kB."""
    texts: dict[str, int] = {}
    columns: dict[str, list[Any]] = {}
    for name, values in zip(kind._fields, zip(*rows, strict=True) if rows else repeat(()), strict=False):
        columns[name] = _places(values, texts) if name in _READ else list(values)
    return columns | {"texts": list(texts)}


def _places(values: Sequence[Any], texts: dict[str, int]) -> list[int]:
    """The place of each value's text among the texts. Values recur: each is looked at once, by its identity."""
    keys = list(map(id, values))
    places = {}
    for key, value in dict(zip(keys, values, strict=True)).items():
        text = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        places[key] = texts.setdefault(text, len(texts))
    return list(map(places.__getitem__, keys))


def _rows(columns: Mapping[str, list[Any]], kind: type[Event] | type[Storage]) -> Iterator[tuple[Any, ...]]:
    texts = columns["texts"]
    read = []
    for name in kind._fields:
        values = columns[name]
        if name in _READ:
            known = {place: _READ[name](texts[place]) for place in set(values)}
            values = [known[place] for place in values]
        read.append(values)
    return zip(*read, strict=True)
