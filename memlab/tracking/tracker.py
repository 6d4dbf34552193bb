"""A dispatch mode that sees every tensor storage born, resized and freed, and says what each is for.

Storages are followed, not tensors, because views share them. Labels are given after the step: what a
storage was for (an activation, a temporary) is only known once it is known when it was freed.
"""

import os
import re
import threading
import weakref
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
)
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.module_tracker import ModuleTracker

from memlab.trace import Category, Event, OutOfMemory, Phase
from memlab.tracking.modules import ModulesAtWork
from memlab.units import parse_bytes

# The CPU's attention, which torch.utils.flop_counter does not know, does the arithmetic of a card's.
_aten = torch.ops.aten
_ON_CARDS = {
    _aten._scaled_dot_product_flash_attention_for_cpu: _aten._scaled_dot_product_flash_attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _aten._scaled_dot_product_flash_attention_backward,
}


class BudgetExceeded(torch.OutOfMemoryError):
    """An allocation that the budget does not allow: what :class:`Tracker` raises in the place of a card."""


@dataclass(frozen=True)
class Xray:
    """One tracked step: allocated bytes by category at its start, its events, its floating-point operations."""

    start: dict[Category, int]
    events: tuple[Event, ...]
    peak_allocated: int
    flops: int


class Allocator(Protocol):
    """The counters of a device's allocator."""

    def read_and_reset_peak(self) -> tuple[int, int]:
        """Bytes allocated now, and the most since the last call; the peak then starts again from now."""


class _Record:
    """What is known of one storage. ``born`` is an index into the step's events, -1 if older than the step."""

    __slots__ = ("block", "born", "category", "external", "freed", "nbytes", "phase", "recomputed", "resident")

    def __init__(self, nbytes: int, born: int, phase: Phase, recomputed: bool = False, external: bool = False):
        self.nbytes = nbytes
        self.born = born
        self.phase = phase
        self.recomputed = recomputed  # born while backward ran a part of the forward again
        self.external = external  # met first as an argument: it is older than the tracker's sight
        self.freed: int | None = None
        self.resident: Category | None = None  # known for certain: parameter, buffer, gradient, optimizer state
        self.category: Category | None = None  # the label, given at the end of the step
        self.block: object = None  # where it stands in a simulated allocator


class _Ref(weakref.ref):
    """A weak reference to a storage that carries the storage's record."""

    __slots__ = ("key", "record")


class Tracker(TorchDispatchMode):
    """Tracks the storages of one device. ``with tracker:`` around a training step X-rays that step.

    Storages stay known between steps (a weak reference sees them freed), so the tracker may be off
    for some steps and on again. Not re-entrant; only the thread that entered it is tracked, with the
    threads in which autograd runs its backward.

    Args:
        device: storages elsewhere are ignored.
        budget: bytes; an allocation past it raises :class:`BudgetExceeded`, as a smaller card would.
        allocator: reads what the device's own allocator counts, None where it has none (the CPU).
    """

    def __init__(self, device: torch.device, *, budget: int | None = None, allocator: Allocator | None = None):
        super().__init__()
        self.device = device
        self.budget = budget
        self._allocator = allocator
        self._workspace = _Record(0, -1, Phase.OTHER)
        self._workspace.resident = Category.WORKSPACE
        self.live = 0
        self.failed: OutOfMemory | None = None
        self._refs: dict[int, _Ref] = {}
        self._recording = False
        self._autograd = ModuleTracker()  # never entered: only asked whether backward is running
        self._modules = ModulesAtWork(self._tracked_thread, self._enter_root)
        self._parameters: dict[int, weakref.ref[torch.nn.Parameter]] = {}
        self._formulas: dict = {}  # operator -> its formula of floating-point operations, or None
        self._flop_counts: dict = {}

    # A step

    def __enter__(self) -> "Tracker":
        self._events: list[tuple[_Record, int, Phase, str, object]] = []
        self._records = [self._workspace, *(ref.record for ref in self._refs.values())]
        for record in self._records:
            record.born = -1
        self.peak = self.live
        self._flops = 0
        self._phase = Phase.OTHER
        self._begins: dict[Phase, list[int]] = {phase: [] for phase in Phase}
        self._recompute_ends: list[int] = []
        self._recomputing = False
        self._optimizer_depth = 0
        self._forward_begun = False
        self._op: object = ""
        self._threads = {threading.get_ident()}
        self._hooked: set[int] = set()  # parameters that have a hook in this step
        self._modules.start()
        self._hooks = ExitStack()
        self._hooks.callback(register_optimizer_step_pre_hook(self._enter_optimizer).remove)
        self._hooks.callback(register_optimizer_step_post_hook(self._leave_optimizer).remove)
        self._adopt_gradients()
        self._held = [(record, record.nbytes) for record in self._records]  # when the step begins
        super().__enter__()
        self._recording = True
        return self

    def __exit__(self, *exception) -> None:
        super().__exit__(*exception)
        self._recording = False
        self._hooks.close()
        self._modules.stop()

    def xray(self) -> Xray:
        """The step just tracked, labelled."""
        start: dict[Category, int] = {}
        for record in self._records:
            record.category = self._label(record)
        events = tuple(
            Event(delta, record.category, phase, module, _op_name(op))
            for record, delta, phase, module, op in self._events
        )
        for record, nbytes in self._held:
            if nbytes:
                start[record.category] = start.get(record.category, 0) + nbytes
        return Xray(start, events, self.peak, self._flops)

    # Operators

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self._see_operator(func, args, kwargs or {})

    def _see_operator(self, func, args, kwargs):
        self._update_phase(func, args)
        self._op = func
        for value in args:
            if isinstance(value, torch.Tensor):
                self._see(value, False)
            elif isinstance(value, list):  # foreach operators, cat, stack
                for item in value:
                    if isinstance(item, torch.Tensor):
                        self._see(item, False)
        for value in kwargs.values():
            if isinstance(value, torch.Tensor):
                self._see(value, False)
        out = self._call(func, args, kwargs)
        if isinstance(out, torch.Tensor):
            self._see(out, True)
        elif isinstance(out, tuple | list):
            for value in out:
                if isinstance(value, torch.Tensor):
                    self._see(value, True)
        if self._allocator:
            self._see_workspace(func, args, out)
        self._count_flops(func, args, kwargs, out)
        return out

    def _call(self, func, args, kwargs):
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:  # noted here, where the module at work is still known
            if is_out_of_memory(error):
                self.failed = self._failure(_asked(error))
            raise

    def _count_flops(self, func, args, kwargs, out) -> None:
        formula = self._formulas.get(id(func), self)  # by id: operators live for ever, and hash slowly
        if formula is self:
            packet = func.overloadpacket
            formula = self._formulas[id(func)] = flop_registry.get(_ON_CARDS.get(packet, packet))
        if formula:
            # The formulas cost more than a small product itself, and depend on nothing but this.
            key = (func, *(value.shape if isinstance(value, torch.Tensor) else str(value) for value in args))
            if key not in self._flop_counts:
                self._flop_counts[key] = formula(*args, **kwargs, out_val=out)
            self._flops += self._flop_counts[key]

    # Phases

    def _update_phase(self, func, args) -> None:
        if self._optimizer_depth:
            phase = Phase.OPTIMIZER
        elif self._autograd.is_bw:
            phase = Phase.BACKWARD
            # Backward runs ordinary operators without gradients; only a checkpoint that runs
            # its part of the forward again turns them on.
            if torch.is_grad_enabled():
                self._recomputing = True
            else:
                self._leave_recomputation()
        else:
            # Forward begins with the first operator that gradients will flow through, inside a module or
            # not, and lasts until backward: the loss is often computed outside the model.
            self._forward_begun = self._forward_begun or _starts_a_graph(func, args)
            phase = Phase.FORWARD if self._modules.in_forward or self._forward_begun else Phase.OTHER
        if phase is not self._phase:
            self._change_phase(phase)

    def _change_phase(self, phase: Phase) -> None:
        if self._phase is Phase.BACKWARD:
            self._leave_recomputation()
            self._modules.leave_backward()
        if phase is not Phase.FORWARD:
            self._forward_begun = False
        self._threads.add(threading.get_ident())
        self._phase = phase
        self._begins[phase].append(len(self._events))

    def _leave_recomputation(self) -> None:
        if self._recomputing:
            self._recompute_ends.append(len(self._events))
            self._recomputing = False

    # Storages

    def _see(self, tensor: torch.Tensor, born: bool) -> None:
        """A tensor that an operator takes or, if ``born``, gives."""
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError:
            return  # sparse: its indices and values are tensors of their own, seen on their own
        ref = self._refs.get(id(storage))
        if ref is not None:
            if ref.record.nbytes != storage.nbytes():
                self._give(ref.record)
                self._resize(ref.record, storage.nbytes())
                self._take(ref.record)
        elif tensor.device == self.device:
            nbytes = storage.nbytes()
            if born and self.budget is not None and self.live + nbytes > self.budget:
                self.failed = self._failure(nbytes)
                raise BudgetExceeded(f"{self.failed.sentence}.")
            ref = self._follow(storage, nbytes, external=not born)
        if ref is not None and type(tensor) is torch.nn.Parameter:
            ref.record.resident = Category.PARAMETER

    def _follow(self, storage: torch.UntypedStorage, nbytes: int, external: bool) -> _Ref:
        """Count a storage, from now on; if ``external`` it is older, only nothing showed it before."""
        record = _Record(nbytes, len(self._events), self._phase, self._recomputing, external)
        ref = _Ref(storage, self._freed)
        ref.key, ref.record = id(storage), record
        self._take(record)
        self._refs[ref.key] = ref
        self._records.append(record)
        self._change(record, nbytes, self._op)
        return ref

    def _freed(self, ref: _Ref) -> None:
        if self._refs.pop(ref.key, None) is not ref:
            return  # its bytes were refused, so it was never counted
        record = ref.record
        self._give(record)
        if self._recording:
            record.freed = len(self._events)
            self._change(record, -record.nbytes, "")
        else:
            self.live -= record.nbytes

    def _resize(self, record: _Record, nbytes: int) -> None:
        delta, record.nbytes = nbytes - record.nbytes, nbytes
        self._change(record, delta, self._op)

    def _take(self, record: _Record) -> None:
        """A storage is about to be counted: a tracker that stands in for a card finds it a place."""

    def _give(self, record: _Record) -> None:
        """A storage has been freed."""

    def _change(self, record: _Record, delta: int, op: object) -> None:
        self.live += delta
        if self.live > self.peak:
            self.peak = self.live
        if delta:
            self._events.append((record, delta, self._phase, self._modules.name, op))

    def _failure(self, asked: int | None) -> OutOfMemory:
        # Backward will not begin, and a checkpoint not end: what lives now is what would have been kept.
        self._begins[Phase.BACKWARD].append(len(self._events))
        self._recompute_ends.append(len(self._events))
        return OutOfMemory(asked, self.live, self.budget, self._phase, self._modules.name, _op_name(self._op))

    def _see_workspace(self, func, args, out) -> None:
        """What the allocator counts and no tensor explains, during the operator and after it."""
        current, peak = self._allocator.read_and_reset_peak()
        for allocated in (peak, current):
            self._resize(self._workspace, self._workspace.nbytes + allocated - self.live)

    # Labels

    def _label(self, record: _Record) -> Category:
        if record.resident:
            return record.resident
        if record.born < 0:  # alive since an earlier step, labelled there
            return record.category or Category.TEMPORARY
        if record.external:
            return Category.INPUT
        if record.recomputed:
            kept = self._alive_at(record, self._recompute_ends)
            return Category.RECOMPUTED if kept else Category.TEMPORARY
        if record.phase is Phase.FORWARD:
            kept = self._alive_at(record, self._begins[Phase.BACKWARD])
            return Category.ACTIVATION if kept else Category.TEMPORARY
        if record.phase is Phase.OTHER and self._alive_at(record, self._begins[Phase.FORWARD]):
            return Category.INPUT
        return Category.TEMPORARY

    @staticmethod
    def _alive_at(record: _Record, marks: list[int]) -> bool:
        """Whether the record still lived at the first of the marks (ascending) after its birth."""
        index = bisect_right(marks, record.born)
        return index < len(marks) and (record.freed is None or record.freed >= marks[index])

    def _mark(self, tensors, category: Category) -> None:
        for tensor in tensors:
            if tensor.is_sparse:
                continue
            self._see(tensor, False)
            if ref := self._refs.get(id(tensor.untyped_storage())):
                ref.record.resident = category

    def _adopt_gradients(self) -> None:
        """Count gradients born while the tracker was off: they are older than the step, not a part of it."""
        self._mark_gradients()
        for record, *_ in self._events:
            record.born = -1
        self._events.clear()

    def _mark_parameters(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        for parameter in parameters:
            self._mark([parameter], Category.PARAMETER)
            if id(parameter) not in self._hooked:
                self._hooked.add(id(parameter))
                self._parameters[id(parameter)] = weakref.ref(parameter)
                if parameter.requires_grad:
                    self._hooks.callback(parameter.register_post_accumulate_grad_hook(self._accumulated).remove)

    def _accumulated(self, parameter: torch.nn.Parameter) -> None:
        if parameter.grad is not None:
            self._mark([parameter.grad], Category.GRADIENT)

    def _mark_gradients(self) -> None:
        parameters = (ref() for ref in self._parameters.values())
        self._mark((p.grad for p in parameters if p is not None and p.grad is not None), Category.GRADIENT)

    def _mark_state(self, optimizer: torch.optim.Optimizer) -> None:
        for state in list(optimizer.state.values()):
            tensors = (value for value in tree_leaves(state) if isinstance(value, torch.Tensor))
            self._mark(tensors, Category.OPTIMIZER_STATE)

    # Hooks: they are process-wide, so they act only on the threads that are tracked

    def _tracked_thread(self) -> bool:
        return self._recording and threading.get_ident() in self._threads

    def _enter_root(self, module: torch.nn.Module) -> None:
        if not self._autograd.is_bw:
            self._mark_parameters(module.parameters())
            self._mark(module.buffers(), Category.BUFFER)

    def _enter_optimizer(self, optimizer: torch.optim.Optimizer, args, kwargs) -> None:
        if self._tracked_thread():
            self._mark_parameters(parameter for group in optimizer.param_groups for parameter in group["params"])
            self._mark_gradients()
            self._optimizer_depth += 1

    def _leave_optimizer(self, optimizer: torch.optim.Optimizer, args, kwargs) -> None:
        if self._tracked_thread():
            self._optimizer_depth -= 1
            self._mark_state(optimizer)


def _let_go() -> None:
    """In a process that was forked within a step, as a DataLoader's worker is: its work is not the step's.

    It must not be watched. On a card it could not be, the allocator's counters are not to be had there; in a prediction
    its tensors would have no numbers to send.
    """
    watching = [mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, Tracker)]
    for tracker in watching:
        tracker._recording = False
    if watching:
        _left_behind.append(_disable_current_modes())
        _left_behind[-1].__enter__()


_left_behind: list[object] = []  # never left again: the process ends without coming back to the step
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_let_go)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error says that a device, or the host, had no room for an allocation."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def _asked(error: BaseException) -> int | None:
    """The size that failed, from the allocators' own words: "Tried to allocate 12.00 MiB", "allocate 96 bytes"."""
    match = re.search(r"allocate:? (\d+(?:\.\d+)?) ?(GiB|MiB|KiB|bytes)", str(error))
    return match and parse_bytes(f"{match[1]} {match[2].replace('bytes', 'B')}")


def _op_name(op: object) -> str:
    return str(getattr(op, "overloadpacket", op))


def _starts_a_graph(func, args) -> bool:
    if not torch.is_grad_enabled() or func is torch.ops.aten.detach.default:  # how weights are copied
        return False
    return any(value.requires_grad for value in args if isinstance(value, torch.Tensor))
