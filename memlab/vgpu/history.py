"""The history of the card's allocator in a prediction, in the form in which PyTorch records it of a real card.

The format is that of ``torch.cuda.memory._dump_snapshot``, which ``python -m torch.cuda._memory_viz`` and
pytorch.org/memory_viz read. Two things are other than on a card: sizes are those of blocks, not what was asked for, so
that they add up to the allocator's peak; and each allocation has a category, by which the viewer colours it.
"""

import pickle
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from memlab.allocator import CachingAllocator
from memlab.categories import Category
from memlab.tracking.storages import Record
from memlab.vgpu.refusals import is_readers_own

BASE = 0x7F00_0000_0000  # about where CUDA puts memory; the simulated addresses begin at 0
PROTOCOL = 4  # the viewer in the browser reads no higher one
_RUN = str(Path(__file__).parents[1] / "run.py")  # what is further out is not the loop's

Line = tuple[str, int, str]  # a file, a number, a function


@dataclass(eq=False, slots=True)
class _Event:
    """Something that the allocator did; ``record`` is the storage that it was for, None: a kernel's workspace."""

    action: str
    address: int
    size: int
    stream: int
    operator: str
    module: str
    phase: str
    lines: tuple[Line, ...]
    record: Record | None = None

    @property
    def category(self) -> str:
        if self.action != "alloc":
            return "unknown"  # the viewer fails where nothing is of this category; it shows those of allocations only
        return str(Category.WORKSPACE if self.record is None else self.record.category)

    @property
    def frames(self) -> list[dict[str, Any]]:
        """The frames that the viewer shows as a stack, the innermost first."""
        what = self.category if self.action == "alloc" else self.action
        return _frames(((self.module or self.phase, 0, self.operator), (self.phase, 0, what), *self.lines))

    def entries(self) -> Iterator[dict[str, Any]]:
        """It, as a device trace has it."""
        entry = {"addr": BASE + self.address, "size": self.size, "stream": self.stream, "frames": self.frames}
        if self.action == "oom":
            entry["device_free"] = self.address
        if self.action == "free_completed":
            yield entry | {"action": "free_requested", "category": self.category}
        yield entry | {"action": self.action, "category": self.category}


class History:
    """The history of an allocator, with the operator, the module and the reader's own lines behind each event.

    Args:
        blocks: the allocator.
        at_work: the operator, the module and the phase of this moment.
    """

    def __init__(self, blocks: CachingAllocator, at_work: Callable[[], tuple[str, str, str]]):
        self._blocks = blocks
        self._at_work = at_work
        self._events: list[_Event] = []
        self._end = 0  # how many of them there were at the end of the last step
        self._segments: list[dict[str, Any]] = []  # at that time
        blocks.listener = self._hear

    def _hear(self, action: str, address: int, size: int) -> None:
        event = _Event(action, address, size, self._blocks.stream, *self._at_work(), _own_lines())
        self._events.append(event)

    def belongs(self, record: Record) -> None:
        """Assign the last allocation to this storage; one that is assigned to none is workspace."""
        self._events[-1].record = record

    def end_step(self) -> None:
        """A snapshot shows what there was until now."""
        self._end, self._segments = len(self._events), self._blocks.snapshot()

    def pickled(self) -> bytes:
        """The snapshot as a file has it."""
        events = self._events[: self._end]
        frames = {event.address: event.frames for event in events if event.action == "alloc"}  # of the last one there
        snapshot = {
            "segments": [_whole(segment, frames) for segment in self._segments],
            "device_traces": [[entry for event in events for entry in event.entries()]],
            "external_annotations": [],
        }
        return pickle.dumps(snapshot, protocol=PROTOCOL)


def _own_lines() -> tuple[Line, ...]:
    """The reader's own lines that run now, the innermost first."""
    walk = takewhile(lambda place: place[0].f_code.co_filename != _RUN, traceback.walk_stack(None))
    own = [(frame.f_code, line) for frame, line in walk if is_readers_own(frame.f_code.co_filename)]
    return tuple((code.co_filename, line, code.co_name) for code, line in own)


@cache
def _frames(lines: tuple[Line, ...]) -> list[dict[str, Any]]:
    return [{"filename": file, "line": line, "name": name} for file, line, name in lines]


def _whole(segment: dict[str, Any], frames: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    """A segment with all that the viewer asks of one."""
    blocks = [
        block
        | {"address": BASE + block["address"], "requested_size": block["size"]}
        | {"frames": frames[block["address"]] if block["state"] == "active_allocated" else []}
        for block in segment["blocks"]
    ]
    used = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
    sizes = dict.fromkeys(("allocated_size", "active_size", "requested_size"), used)
    place = {"address": BASE + segment["address"], "device": 0, "segment_pool_id": (0, 0)}
    return segment | place | sizes | {"blocks": blocks, "frames": []}
