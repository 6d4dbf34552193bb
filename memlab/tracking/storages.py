"""Following every tensor storage of a device: born, resized, freed.

Storages are followed, not tensors, because views share them.
"""

import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import FrameType
from typing import Any, Protocol, TypeGuard

import torch
from torch.nn import Parameter

from memlab.categories import Category, Phase
from memlab.oom import OutOfMemory
from memlab.tracking.internals import modes_of_this_thread
from memlab.tracking.modules import ModulesAtWork
from memlab.tracking.nested import inner_tensors
from memlab.tracking.variables import frames, variables


class BudgetExceeded(torch.OutOfMemoryError):
    """An allocation that the budget does not allow: what a tracker raises in the place of a card."""


class Allocator(Protocol):
    """The counters of a device's allocator."""

    def read_and_reset_peak(self) -> tuple[int, int, int]:
        """Bytes allocated now, the most since the last call, and reserved; the peak then starts again from now."""


class Record:
    """The record of one storage. ``born`` is an index into the step's events, -1 if older than the step."""

    __slots__ = (
        "block",
        "born",
        "category",
        "dtype",
        "external",
        "freed",
        "line",
        "maker",
        "name",
        "nbytes",
        "overwritten",
        "phase",
        "place",
        "recomputed",
        "resident",
        "settled",
        "shape",
        "step",
        "variable",
        "yielded",
    )

    def __init__(self, nbytes: int, born: int, phase: Phase, recomputed: bool = False, external: bool = False):
        self.nbytes = nbytes
        self.born = born
        self.phase = phase
        self.recomputed = recomputed  # born while backward ran a part of the forward again
        self.external = external  # met first as an argument: it is older than the tracker's sight
        self.yielded = False  # the loss, which has to outlive its step
        self.freed: int | None = None
        self.resident: Category | None = None  # known for certain: parameter, buffer, gradient, optimizer state
        self.category = Category.HELD  # the label, given at the end of the step
        self.settled: Category | None = None  # the same where it is known before
        self.name = ""  # of a parameter and what belongs to it
        self.variable = ""  # of the training loop
        self.maker: tuple[str, object] = "", ""  # the module and the operator at its birth
        self.shape: tuple[int, ...] = ()  # of the tensor that it was first seen in
        self.dtype: torch.dtype | None = None
        self.block: Any = None  # where it stands in a simulated allocator
        self.place: int | None = None  # its address in memory that a CUDA graph holds: no bytes of its own are counted
        self.overwritten = ""  # what PyTorch says of who reads it, where a graph has used its memory again
        self.line = self.step = 0  # of the training loop, and how many steps had begun when it was born


class _Ref(weakref.ref[torch.UntypedStorage]):
    """A weak reference to a storage that carries the storage's record."""

    __slots__ = ("key", "record")

    key: int
    record: Record


class Storages:
    """The storages of one device, with an event for each change. What the step is doing is set by who inherits.

    Args:
        device: storages elsewhere are ignored.
        budget: bytes; an allocation past it raises :class:`BudgetExceeded`, as a smaller card would.
    """

    is_real = True  # one that stands in for a card follows tensors without numbers
    born_as: Category | None = None  # the category of what is allocated now, where that is known
    loop: Callable[[], FrameType | None] = staticmethod(lambda: None)  # the frame of the training loop

    _phase: Phase
    _recomputing: bool
    _differentiated: bool
    _op: object
    _modules: ModulesAtWork

    def __init__(self, device: torch.device, budget: int | None):
        self.device = device
        self._place = device if self.is_real else torch.device("meta")  # of the storages
        self.budget = budget
        self.live = 0
        self.peak = 0  # of the step before, once it is over
        self.failed: OutOfMemory | None = None
        self._workspace = Record(0, -1, Phase.OTHER)
        self._workspace.resident = Category.WORKSPACE
        self._earlier = Record(0, -1, Phase.OTHER)  # what was allocated while the tracker was off, in all
        self._earlier.resident = Category.HELD
        self._refs: dict[int, _Ref] = {}
        self._recording = False
        self.steps = 0  # that have begun

    def compiler(self, readers: Any) -> Any:
        """Return what Dynamo calls for a frame, in the place of the reader's; None to run it as it is written."""
        raise NotImplementedError

    def _start_events(self) -> None:
        """Begin a step."""
        self.steps += 1
        self._events: list[tuple[Record, int, Phase, str, object, int, float]] = []
        self._records = [self._workspace, self._earlier, *(ref.record for ref in self._refs.values())]
        for record in self._records:
            record.born = -1

    def _see(self, tensor: torch.Tensor, born: bool) -> None:
        """A tensor that an operator takes or, if ``born``, gives."""
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError:
            return  # sparse: its indices and values are tensors of their own, seen on their own
        ref = self._refs.get(id(storage))
        if ref is not None:
            if ref.record.nbytes != storage.nbytes():
                self._change_size(ref.record, storage.nbytes())
        elif tensor.device == self.device and storage.device == self._place:
            nbytes = storage.nbytes()
            if born and self.budget is not None and self.live + nbytes > self.budget:
                failed = self._failure(nbytes)
                self.failed = replace(failed, message=f"{failed.sentence}.")
                raise BudgetExceeded(self.failed.message)
            ref = self._follow(storage, nbytes, external=not born)
            ref.record.shape, ref.record.dtype = tensor.size(), tensor.dtype  # size(): a lazy layer's has no shape
        if ref is not None and ref.record.resident is not Category.PARAMETER and self._is_parameter(tensor):
            ref.record.resident = Category.PARAMETER
            self._met(tensor)

    def resized(self, storage: torch.UntypedStorage) -> None:
        """A storage has been resized by Python."""
        ref = self._refs.get(id(storage))
        if ref is not None:
            self._change_size(ref.record, storage.nbytes())

    def _change_size(self, record: Record, nbytes: int) -> None:
        self._give(record)
        self._resize(record, nbytes)
        self._take(record)

    def _mark(self, tensors: Iterable[tuple[str, torch.Tensor]], category: Category, *, follows: bool = True) -> None:
        """Tensors, each with its name, whose category is known for certain; those that are new are followed."""
        for name, tensor in tensors:
            if (record := self.record_of(tensor)) is not None:  # as most are: known, and no wrappers
                record.resident, record.name = category, _name_of(record, tensor, name, category)
                continue
            for inner in inner_tensors(tensor):
                if follows:
                    self._see(inner, False)
                if (record := self.record_of(inner)) is not None:
                    record.resident, record.name = category, _name_of(record, inner, name, category)

    def _mark_unknown(self, tensors: Iterable[torch.Tensor], category: Category) -> None:
        """Tensors of this category, unless something is known of them for certain."""
        for tensor in tensors:
            if (record := self.record_of(tensor)) is not None and record.resident is None:
                record.resident = category

    def record_of(self, tensor: torch.Tensor) -> Record | None:
        try:
            ref = self._refs.get(id(tensor.untyped_storage()))
        except NotImplementedError:  # it has none of its own
            return None
        return None if ref is None else ref.record

    def yielded(self, value: object) -> None:
        """Note what ``train`` gives at the end of the step."""
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            ref = self._refs.get(id(value.untyped_storage()))
            if ref is not None:
                ref.record.yielded = True

    def _name_variables(self) -> None:
        """Note what the training loop calls the tensors that it holds now; a first name stays."""
        loop = self.loop()
        for frame in frames(loop) if loop is not None else ():
            for name, tensor in variables(frame):
                record = self.record_of(tensor)
                if record is not None and not record.variable:
                    record.variable = name

    def _follow(self, storage: torch.UntypedStorage, nbytes: int, external: bool) -> _Ref:
        """Count a storage, from now on; if ``external`` it is older, only nothing showed it before."""
        # A backward that is differentiated again is, for what it keeps, a forward.
        phase = Phase.FORWARD if self._differentiated else self._phase
        record = Record(nbytes, len(self._events), phase, self._recomputing, external)
        ref = self._reference(storage, record)
        self._begin(record)
        self._refs[ref.key] = ref
        return ref

    def _begin(self, record: Record) -> None:
        record.resident = self.born_as
        self._take(record)
        self._records.append(record)
        record.step = self.steps
        self._change(record, record.nbytes, self._op)
        if record.nbytes:
            *_, module, op, record.line, _ = self._events[-1]
            record.maker = module, op

    def _reference(self, storage: torch.UntypedStorage, record: Record) -> _Ref:
        ref = _Ref(storage, self._freed)
        ref.key, ref.record = id(storage), record
        return ref

    def _freed(self, ref: _Ref) -> None:
        if self._refs.pop(ref.key, None) is ref:  # else its bytes were refused, so it was never counted
            self._end(ref.record)

    def _end(self, record: Record) -> None:
        self._give(record)
        if self._recording:
            record.freed = len(self._events)
            self._change(record, -record.nbytes, "")
        else:
            self.live -= record.nbytes

    def _resize(self, record: Record, nbytes: int, at: int | None = None) -> None:
        """Count a storage as ``nbytes`` from now on or, where it has become less, from before the event ``at`` on."""
        delta, record.nbytes = nbytes - record.nbytes, nbytes
        self._change(record, delta, self._op, at if delta < 0 else None)

    def _hold_over(self, current: int) -> None:
        """A step begins with so many bytes allocated: what no storage explains is older than the step."""
        self._workspace_at_start = self._workspace.nbytes
        if current > self.live:
            self._resize(self._earlier, self._earlier.nbytes + current - self.live)
        self._explain(current, self._workspace.nbytes)

    def _explain(self, current: int, workspace: int, at: int | None = None) -> None:
        """So many bytes are allocated now: what no storage explains is workspace.

        Where less is, a storage that nobody saw was freed: what is older goes before ``workspace`` bytes do.
        """
        rest = self._workspace.nbytes + current - self.live
        older = min(max(0, min(workspace, self._workspace_at_start) - rest), self._earlier.nbytes)
        self._resize(self._earlier, self._earlier.nbytes - older, at)
        self._resize(self._workspace, rest + older, at)

    def _take(self, record: Record) -> None:
        """A storage is about to be counted: a tracker that stands in for a card finds it a place."""

    def _give(self, record: Record) -> None:
        """A storage has been freed."""

    def _change(self, record: Record, delta: int, op: object, at: int | None = None) -> None:
        self.live += delta
        if delta:
            frame = self.loop()
            line = frame.f_lineno if frame is not None else 0
            event = (record, delta, self._phase, self._modules.name, op, line, self._now())
            self._events.append(event) if at is None else self._events.insert(at, event)

    def _now(self) -> float:
        """Seconds since the step began."""
        raise NotImplementedError

    def _is_parameter(self, tensor: torch.Tensor) -> TypeGuard[Parameter]:
        return type(tensor) is Parameter

    def _met(self, parameter: Parameter) -> None:
        """An operator takes or gives a parameter that was not known as one."""

    def _failure(self, asked: int | None) -> OutOfMemory:
        """Return the facts of an allocation of ``asked`` bytes that fails now."""
        raise NotImplementedError


def _name_of(record: Record, tensor: torch.Tensor, name: str, category: Category) -> str:
    """A tensor's name, unless its storage has more tensors than this one, as DDP's buckets of gradients have."""
    return name if record.nbytes < 2 * tensor.nbytes else f"bucket of {category.plural}"


def watching() -> list[Storages]:
    """The trackers that are on in this thread, the innermost last."""
    return [mode for mode in modes_of_this_thread() if isinstance(mode, Storages)]
