"""A snapshot in words: what was there at the peak, whose it was, what grew, why a request failed, what could go.

Of a run that died, what was there when the last request failed counts, rather than a peak before it.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from memlab.allocator.settings import ROUND, rounded, segment_size
from memlab.categories import Category, Phase
from memlab.explaining import EXPANDABLE, Explanation, failed_request, is_fragmented
from memlab.snapshots.reading import of_a_snapshot, read
from memlab.snapshots.replay import IN_USE, UNNAMED, Allocation, Replay
from memlab.snapshots.stacks import ENGINE, UNRECORDED
from memlab.text import capital
from memlab.units import MIB, format_bytes

_MOST_LINES, _MOST_CURES = 8, 5
_LEAST_STEPS = 4  # the first makes the optimizer's states, so its growth is no leak
_LEAST_SHARE = 0.01  # of what is allocated: less is no cure
_LEAST_SIZE = MIB  # below it, equal sizes say nothing
# What can be done about memory of each kind, and the notebook that teaches it.
_CURES: Mapping[str, str] = {
    "logits": "compute the loss in pieces, so that they are never whole (notebook 13b)",
    "softmax results": "where they are attention's, scaled_dot_product_attention keeps none (notebook 13)",
    Category.ACTIVATION: "checkpoint the blocks (notebook 06), autocast (04), smaller batches (03)",
    Category.RECOMPUTED: "checkpoint smaller pieces (notebook 06)",
    Category.OPTIMIZER_STATE: "a leaner optimizer (notebook 10), fewer trained weights (09)",
    Category.GRADIENT: "train fewer weights (notebook 09), shard over several GPUs (18)",
    Category.PARAMETER: "fewer bits (notebook 05), shard over several GPUs (18)",
    Category.HELD: "del what is over, keep loss.item() rather than the loss (notebook 08)",
    Category.INPUT: "smaller batches, with accumulated gradients (notebook 03)",
    Category.TEMPORARY: "smaller batches (notebook 03), operations in place (07), torch.compile (14)",
}
_IN_PIECES = "smaller batches (notebook 03), or that tensor in pieces (13b)"


@dataclass(frozen=True, repr=False)
class SnapshotExplanation:
    """A snapshot of PyTorch's allocator explained, in bytes; as text a table for the terminal.

    Attributes:
        replay: its history, played again.
    """

    replay: Replay

    @property
    def peak_allocated(self) -> int:
        """The most that was allocated within the recorded history."""
        return self.replay.curve[self.replay.peak]

    @property
    def allocated(self) -> int:
        """Bytes allocated when the snapshot was written."""
        return self.replay.curve[-1]

    @property
    def moment(self) -> int:
        """The number of events before the last request that failed; where none did, before the peak."""
        return self.replay.peak if self.replay.failure is None else self.replay.failure[1]

    @property
    def when(self) -> str:
        """The moment that the snapshot explains, in words."""
        if self.replay.failure:
            return "when the request failed"
        return "at the peak" if self.replay.snapshot.trace else "at the end"

    @property
    def reserved(self) -> int:
        """Bytes that PyTorch held of the card at that moment."""
        return self.replay.reserved[self.moment]

    @property
    def asked(self) -> int:
        """Bytes of the segment that the failed request wanted; 0 if none failed."""
        return segment_size(rounded(self.replay.failure[0]["size"])) if self.replay.failure else 0

    @cached_property
    def by_category(self) -> dict[str, int]:
        """Allocated bytes at that moment by category, the largest first; inferred from call stacks unless told."""
        return _sums((category, one.size) for one, category in self._there)

    @cached_property
    def by_line(self) -> dict[str, int]:
        """Allocated bytes at that moment by the reader's line, or the node of the backward pass, the largest first."""
        return _sums((one.stack.place, one.size) for one, _ in self._there)

    @cached_property
    def by_own_line(self) -> dict[str, int]:
        """The same with the backward pass as one line, and without the libraries' lines: for comparisons."""
        return _sums((one.stack.line, one.size) for one, _ in self._there)

    @cached_property
    def growth(self) -> dict[str, int]:
        """Bytes that a step leaves behind, by line: what never shrinks from one optimizer step to the next."""
        steps = self.replay.steps[1:]
        if len(steps) < _LEAST_STEPS - 1:
            return {}
        lines: dict[str, list[int]] = {}
        for one in self.replay.allocations:
            first = bisect_left(steps, one.begin)
            last = len(steps) if one.end is None else bisect_left(steps, one.end)
            if first < last:
                sizes = lines.setdefault(one.stack.place, [0] * len(steps))
                for number in range(first, last):
                    sizes[number] += rounded(one.asked)
        grown = {line: (sizes[-1] - sizes[0]) // (len(sizes) - 1) for line, sizes in lines.items() if _grows(sizes)}
        return _sums((line, size) for line, size in grown.items() if size > ROUND)  # a loss or two is no leak

    @cached_property
    def failed(self) -> Explanation | None:
        """Why the last request failed, by the rule for messages; None: none failed within the history."""
        if self.replay.failure is None:
            return None
        entry, allocated = self.replay.failure[0], self.replay.curve[self.moment]
        between = max(0, self.reserved - allocated)
        return failed_request(self.asked, entry.get("device_free"), allocated, between)

    @cached_property
    def could_go(self) -> list[tuple[int, str]]:
        """The largest matters at that moment that have a cure, with the request: bytes, and a sentence for each."""
        kinds: dict[str, Counter[str]] = {}
        for one, category in self._there:
            kind = self._kind(one, category)
            if kind in _CURES:
                kinds.setdefault(kind, Counter())[one.stack.place] += one.size
        matters = [(sum(places.values()), _cure(kind, places)) for kind, places in kinds.items()]
        if self.replay.failure:
            matters.append(self._request(self.replay.failure[0]))
        held = self.replay.curve[self.moment]
        free = self.reserved - held
        grows = any(segment.get("is_expandable") for segment in self.replay.snapshot.segments)
        if is_fragmented(0, 0, free, held) and not grows:
            matters.append((free, f"gaps between tensors: {EXPANDABLE} (notebook 15)"))
        large = [(size, text) for size, text in matters if size > held * _LEAST_SHARE]
        return sorted(large, reverse=True)[:_MOST_CURES]

    @cached_property
    def segments(self) -> list[dict[str, Any]]:
        """The segments at that moment with their blocks, as ``torch.cuda.memory_snapshot()`` gives them."""
        return self.replay.segments(self.moment)

    @property
    def sentence(self) -> str:
        """Bytes allocated at that moment, and the largest part of them, in one sentence without a full stop."""
        largest = next(iter(self.by_category.items()), ("nothing", 0))
        return (
            f"{format_bytes(self.replay.curve[self.moment])} {self.when} in {self.replay.snapshot.name}, "
            f"{_share(largest[1], self.replay.curve[self.moment])} {_plural(largest[0])}"
        )

    @cached_property
    def _there(self) -> list[tuple[Allocation, str]]:
        categories = self.replay.categories()
        allocations = enumerate(self.replay.allocations)
        return [(one, categories[place]) for place, one in allocations if one.lives(self.moment)]

    def _request(self, entry: Mapping[str, Any]) -> tuple[int, str]:
        """The request that failed, as one of the matters."""
        stack = self.replay.read(entry.get("frames") or ())
        where = "" if stack.place == UNRECORDED else f", {_at(stack.place)}"
        return rounded(entry["size"]), f"the request itself{where}: {_CURES.get(stack.kind, _IN_PIECES)}"

    @cached_property
    def _logits(self) -> set[int]:
        """Sizes that a loss has in common with the logits."""
        made = (one for one in self.replay.allocations if one.stack.kind == "logits" and one.size >= _LEAST_SIZE)
        return {one.size for one in made}

    def _kind(self, one: Allocation, category: str) -> str:
        if category not in (Category.ACTIVATION, Category.TEMPORARY):
            return category
        return "logits" if one.size in self._logits else one.stack.kind or category

    def __repr__(self) -> str:
        return f"<SnapshotExplanation: {self.sentence}>"

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield from self._totals()
        if self.failed:
            yield ""
            yield self.failed.paragraph
            yield from self._where_it_failed()
        yield ""
        yield f"{capital(self.when)}, by category ({self._source}):"
        yield from _table(self.by_category, self.replay.curve[self.moment], _row_name)
        yield ""
        yield f"{capital(self.when)}, by your own lines:"
        yield from _table(self.by_line, self.replay.curve[self.moment], str)
        if self.growth:
            yield ""
            yield "What each step leaves behind, on average: " + _CURES[Category.HELD]
            yield from (f"{format_bytes(size):>10}  {place}" for place, size in _first(self.growth, 3))
        yield from self._advice()

    def _totals(self) -> Iterator[str]:
        replay, snapshot = self.replay, self.replay.snapshot
        others = f"; {snapshot.others} more in the file hold less" if snapshot.others else ""
        yield f"{snapshot.name}: GPU {snapshot.device}{others}"
        if snapshot.trace:
            yield f"{'peak':<10}{format_bytes(self.peak_allocated):>10}  {self._when}"
        yield f"{'at the end':<10}{format_bytes(self.allocated):>10}"
        yield f"{'reserved':<10}{format_bytes(self.reserved):>10}  {self._gaps()}"
        if not snapshot.trace:
            yield "No history was recorded, so this is what there was when the file was written. To record one:"
            yield "torch.cuda.memory._record_memory_history() before the model is made."
        elif replay.curve[0]:
            yield f"The history begins with {format_bytes(replay.curve[0])} allocated; what came before is not in it."

    @property
    def _when(self) -> str:
        """When the peak was."""
        replay, count = self.replay, len(self.replay.snapshot.trace)
        if not replay.peak:
            return f"before the first of {count:,} recorded events"
        phase, steps = replay.phases[replay.peak - 1], sum(step < replay.peak for step in replay.steps)
        parts = [f"event {replay.peak:,} of {count:,}", f"in {phase}" if phase is not Phase.OTHER else ""]
        parts.append(f"after {steps} optimizer {'step' if steps == 1 else 'steps'}" if steps else "")
        return ", ".join(filter(None, parts))

    def _gaps(self) -> str:
        """Say how much is reserved and not allocated."""
        free = [block["size"] for segment in self.segments for block in segment["blocks"] if block["state"] != IN_USE]
        if not free:
            return "all of it allocated"
        text = f"{format_bytes(sum(free))} of it unallocated, the largest free block {format_bytes(max(free))}"
        if self.replay.failure is None:
            return text
        asked = rounded(self.replay.failure[0]["size"])
        small = sum(size for size in free if size < asked)
        return f"{text}; {_share(small, sum(free))} in blocks too small for the request"

    def _where_it_failed(self) -> Iterator[str]:
        entry = self.replay.failure[0] if self.replay.failure else {}
        before = [one for one in self.replay.order if one.begin <= self.moment]
        if entry.get("frames"):
            yield f"It was asked for {_at(self.replay.read(entry['frames']).place)}."
        elif before:
            yield f"The last allocation before it was {_at(before[-1].stack.place)}."
        if (free := entry.get("device_free")) is not None:
            known = format_bytes(self.reserved + free)
            yield f"PyTorch's memory and the free together are {known}: what else the card has is CUDA's or others'."

    def _advice(self) -> Iterator[str]:
        if self.failed and self.failed.reason != "full":
            yield ""
            yield from self.failed.steps
        if self.could_go:
            yield ""
            yield "What could go, the largest first:"
            yield from (
                f"{number}. {format_bytes(size)} of {text}." for number, (size, text) in enumerate(self.could_go, 1)
            )

    @property
    def _source(self) -> str:
        return "as the snapshot says" if self.replay.snapshot.is_predicted else "inferred from call stacks"


def explain_snapshot(path: str | Path) -> SnapshotExplanation:
    """Explain a file that ``torch.cuda.memory._dump_snapshot`` wrote. Nothing in it is run.

    In a notebook the answer is shown with pictures: the allocated memory through the history, and the segments at the
    peak.

    Args:
        path: the snapshot.

    Raises:
        BadValue: it cannot be read, is cut short, holds anything but plain values, or is no snapshot.
    """
    snapshot = read(path)
    with of_a_snapshot(path):
        return SnapshotExplanation(Replay(snapshot))


def _sums(pairs: Any) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for name, size in pairs:
        sums[str(name)] += size
    return dict(sums.most_common())


def _grows(sizes: list[int]) -> bool:
    """True if it never shrinks, and grew in the second half, too."""
    never_shrinks = all(after >= before for before, after in pairwise(sizes))
    return never_shrinks and sizes[0] < sizes[-1] > sizes[(len(sizes) - 1) // 2]


def _first(sizes: Mapping[str, int], count: int) -> list[tuple[str, int]]:
    return list(sizes.items())[:count]


def _table(sizes: Mapping[str, int], whole: int, named: Any) -> Iterator[str]:
    for name, size in _first(sizes, _MOST_LINES):
        yield f"{format_bytes(size):>10}{_share(size, whole):>6}  {named(name)}"
    if rest := list(sizes.values())[_MOST_LINES:]:
        yield f"{format_bytes(sum(rest)):>10}{_share(sum(rest), whole):>6}  {len(rest)} more"


def _share(part: int, whole: int) -> str:
    return f"{part / (whole or 1):.0%}"


def _row_name(category: str) -> str:
    older = {UNRECORDED: ": older than the history, or without a call stack", UNNAMED: ": older than the history"}
    return _plural(category) + older.get(category, "")


def _plural(category: str) -> str:
    return Category(category).plural if category in set(Category) else category


def _cure(kind: str, places: "Counter[str]") -> str:
    largest = places.most_common(1)[0][0]
    most = "" if len(places) == 1 else "most of it "
    name = "what is held over" if kind == Category.HELD else _plural(kind)
    return f"{name}, {most}{_at(largest)}: {_CURES[kind]}"


def _at(place: str) -> str:
    return f"in the {place}" if place.startswith(ENGINE.place) else f"at {place}"
