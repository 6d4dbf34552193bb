"""The recorded history of an allocator, played again: what was alive when.

The history may have lost its beginning, so it is played backwards from what is there at the end, and then forwards.
Allocated bytes change when a free is asked for, as PyTorch counts them. Of a block that is there at the end the size is
known; of one that was freed only what was asked for, which is rounded up to 512 bytes. Where PyTorch did not split off
a remainder, the block was larger than that, by 1 MiB at most.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from memlab.allocator.settings import SMALL_SEGMENT, rounded
from memlab.categories import Category, Phase
from memlab.snapshots.reading import Snapshot
from memlab.snapshots.stacks import ENGINE, UNRECORDED, Stack, reader

IN_USE = "active_allocated"
UNNAMED = "unnamed"


@dataclass(slots=True)
class Allocation:
    """A block that was handed out.

    Attributes:
        address: of its first byte.
        size: bytes of the block.
        asked: bytes that were asked for.
        begin, end: the number of events after which it was there, and was no more; 0: before the history, None: it is
            there at the end.
        stack: who asked.
        told: the category or the metadata that the snapshot itself has.
    """

    address: int
    size: int
    asked: int
    begin: int
    end: int | None
    stack: Stack
    told: str = ""

    def lives(self, moment: int) -> bool:
        """True if it is there after so many events."""
        return self.begin <= moment and (self.end is None or moment < self.end)


@dataclass
class Replay:
    """The history of a snapshot's allocator.

    Attributes:
        snapshot: where it stands.
        allocations: in their order; first what was there before the history.
        curve: allocated bytes after 0, 1, 2, ... events.
        reserved: reserved bytes, likewise.
        phases: of each event, from its stack.
        steps: the number of events after which each optimizer step was over.
        peak: the number of events after which the most was allocated.
        failure: the last request that failed, as the history has it, and the number of events before it; None: none,
            or the run went on.
    """

    snapshot: Snapshot
    allocations: list[Allocation] = field(init=False)
    curve: list[int] = field(init=False)
    reserved: list[int] = field(init=False)
    phases: list[Phase] = field(init=False)
    steps: list[int] = field(init=False)
    peak: int = field(init=False)
    failure: tuple[dict[str, Any], int] | None = None

    def __post_init__(self) -> None:
        trace = self.snapshot.trace
        self.read, self._has_stacks = reader(), any(entry.get("frames") for entry in trace)
        self._blocks = {
            block["address"]: block
            for segment in self.snapshot.segments
            for block in segment["blocks"]
            if block["state"] == IN_USE
        }
        asked = any(entry["action"] == "free_requested" for entry in trace)
        self._free = "free_requested" if asked else "free_completed"
        self.allocations = self._allocations()
        changes = [0] * (len(trace) + 1)
        for one in self.allocations:
            changes[one.begin] += one.size
            if one.end is not None:
                changes[one.end] -= one.size
        self.curve = list(accumulate(changes))
        self.reserved = self._reserved()
        self.peak = max(range(len(self.curve)), key=self.curve.__getitem__)
        self._follow_steps()
        failures = [(entry, number) for number, entry in enumerate(trace) if entry["action"] == "oom"]
        self.failure = failures[-1] if failures and not self._went_on(failures[-1][1]) else None

    @property
    def is_whole(self) -> bool:
        """True if the history begins with nothing allocated."""
        return bool(self.snapshot.trace) and not self.curve[0]

    @property
    def order(self) -> list[Allocation]:
        """The allocations within the history."""
        return [one for one in self.allocations if one.begin]

    def alive(self, moment: int) -> Iterator[Allocation]:
        """The allocations that are there after so many events."""
        return (one for one in self.allocations if one.lives(moment))

    def _allocations(self) -> list[Allocation]:
        before = self._before()
        now = {address: self._made(address, entry, 0) for address, entry in before.items()}
        made = list(now.values())
        for number, entry in enumerate(self.snapshot.trace, 1):
            if entry["action"] == "alloc":
                if stale := now.get(entry["addr"]):
                    stale.end = number  # its free is not in the history
                now[entry["addr"]] = self._made(entry["addr"], entry, number)
                made.append(now[entry["addr"]])
            elif entry["action"] == self._free and (ended := now.pop(entry["addr"], None)):
                ended.end = number
        for one in now.values():  # it is there at the end, unless the history has a gap
            if block := self._blocks.get(one.address):
                one.size = block["size"]
        return made

    def _before(self) -> dict[int, dict[str, Any]]:
        """The allocations from before the history, by address: an entry of its free, or its block."""
        there = dict(self._blocks)
        for entry in reversed(self.snapshot.trace):
            if entry["action"] == self._free:
                there[entry["addr"]] = {"size": entry["size"], "frames": []}  # a free's frames are the free's
            elif entry["action"] == "alloc":
                there.pop(entry["addr"], None)
        return there

    def _made(self, address: int, entry: dict[str, Any], number: int) -> Allocation:
        told = str(entry.get("category") or "")
        told = str(entry.get("user_metadata") or "") if told in ("", "unknown") else told
        frames = entry.get("frames") or ()
        # Without C++ frames, autograd's own thread has none at all.
        stack = ENGINE if number and self._has_stacks and not frames else self.read(frames)
        asked = entry.get("requested_size") or entry["size"]  # of a block, or of an event
        return Allocation(address, rounded(entry["size"]), asked, number, None, stack, told)

    def _reserved(self) -> list[int]:
        signs = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
        changes = [signs.get(entry["action"], 0) * entry["size"] for entry in self.snapshot.trace]
        at_end = sum(segment["total_size"] for segment in self.snapshot.segments)
        return list(accumulate(changes, initial=at_end - sum(changes)))

    def _follow_steps(self) -> None:
        """Find the phase of each event, and where optimizer steps end: by ``zero_grad`` where no step shows itself."""
        stacks = [self.read(entry.get("frames") or ()) for entry in self.snapshot.trace]
        self.phases = [stack.phase for stack in stacks]
        flags = [stack.phase is Phase.OPTIMIZER and "zero_grad" not in stack.signs for stack in stacks]
        if not any(flags):
            flags = [phase is Phase.OPTIMIZER for phase in self.phases]
        pairs = enumerate(pairwise([*flags, False]), 1)
        self.steps = [number for number, (now, after) in pairs if now and not after]

    def _went_on(self, moment: int) -> bool:
        """True if the run trains after so many events: cuDNN, for one, asks for workspaces that it can do without."""
        places = range(moment + 1, len(self.phases))
        backward = next((place for place in places if self.phases[place] is Phase.BACKWARD), len(self.phases))
        return any(step > backward for step in self.steps)

    def categories(self) -> dict[int, str]:
        """The category of each allocation, by its place in :attr:`allocations`: told, or inferred from its stack."""
        to_optimizer = _next([phase is Phase.OPTIMIZER for phase in self.phases])
        past_optimizer = _next([phase is not Phase.OPTIMIZER for phase in self.phases])
        ends = set(self.steps)
        to_step = _next([number in ends for number in range(1, len(self.phases) + 1)])
        marks = (to_optimizer, past_optimizer, to_step)
        return {place: one.told or _inferred(one, *marks) for place, one in enumerate(self.allocations)}

    def segments(self, moment: int) -> list[dict[str, Any]]:
        """Segments with their blocks after so many events, as ``torch.cuda.memory_snapshot()`` would give them."""
        ranges = {segment["address"]: segment["total_size"] for segment in self.snapshot.segments}
        kinds = {segment["address"]: segment["segment_type"] for segment in self.snapshot.segments}
        for entry in reversed(self.snapshot.trace[moment:]):
            if entry["action"] in ("segment_free", "segment_unmap"):
                ranges[entry["addr"]] = entry["size"]
            elif entry["action"] in ("segment_alloc", "segment_map"):
                _cut(ranges, entry["addr"], entry["size"])
        alive = sorted((one.address, one.size) for one in self.alive(moment))
        first = partial(bisect_left, [start for start, _ in alive])
        return [
            {
                "address": address,
                "total_size": size,
                "segment_type": kinds.get(address, "small" if size == SMALL_SEGMENT else "large"),
                "blocks": _filled(address, size, alive[first(address) : first(address + size)]),
            }
            for address, size in sorted(ranges.items())
        ]


def _next(flags: Sequence[bool]) -> list[int]:
    """For each number of events, the number of the first flagged event after them; one past the last where none is."""
    found, last = [], len(flags) + 1
    for number in range(len(flags), -1, -1):
        found.append(last)
        last = number if number and flags[number - 1] else last
    return found[::-1]


def _inferred(one: Allocation, to_optimizer: list[int], past_optimizer: list[int], to_step: list[int]) -> str:
    stack, end = one.stack, float("inf") if one.end is None else one.end
    if stack.place == UNRECORDED:
        return UNRECORDED
    if "workspace" in stack.signs:
        return Category.WORKSPACE
    if "weight" in stack.signs:
        return Category.PARAMETER
    if stack.phase is Phase.OPTIMIZER:
        return Category.OPTIMIZER_STATE if end > past_optimizer[one.begin] else Category.TEMPORARY
    if stack.phase is Phase.BACKWARD:
        if "checkpoint" in stack.signs:
            return Category.RECOMPUTED
        return (
            Category.GRADIENT if "accumulate" in stack.signs or end >= to_optimizer[one.begin] else Category.TEMPORARY
        )
    if not one.begin:
        return UNNAMED  # older than the history, so it may be anything
    return Category.HELD if end > to_step[one.begin] <= len(to_step) - 1 else Category.ACTIVATION


def _cut(ranges: dict[int, int], address: int, size: int) -> None:
    """Take a range of addresses out of those that hold it."""
    if ranges.get(address) == size:
        del ranges[address]
        return
    for start, length in list(ranges.items()):
        if start < address + size and address < start + length:
            del ranges[start]
            if start < address:
                ranges[start] = address - start
            if start + length > address + size:
                ranges[address + size] = start + length - address - size


def _filled(address: int, size: int, used: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """The blocks of a segment: those in use, and free ones between them."""
    blocks, here = [], address
    for start, length in used:
        if start > here:
            blocks.append({"address": here, "size": start - here, "state": "inactive"})
        blocks.append({"address": start, "size": length, "state": IN_USE})
        here = start + length
    if here < address + size:
        blocks.append({"address": here, "size": address + size - here, "state": "inactive"})
    return blocks
