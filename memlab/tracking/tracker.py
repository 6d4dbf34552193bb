"""A dispatch mode that sees every operator of a training step, and from them every storage of one device."""

import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.utils.module_tracker import ModuleTracker

from memlab.categories import Category, Phase
from memlab.errors import Stopped
from memlab.oom import OutOfMemory, asked_bytes, is_out_of_memory
from memlab.trace import Event, Storage
from memlab.tracking import compiling, randomness
from memlab.tracking.buckets import MADE
from memlab.tracking.flops import FlopCounter
from memlab.tracking.inplace import in_place
from memlab.tracking.internals import (
    COMPILER,
    TorchDispatchMode,
    called_by_engine,
    custom_kernel,
    higher_order_kernel,
    is_fake,
    modes_above,
    modes_of_this_thread,
    on_again,
)
from memlab.tracking.labels import Marks, label
from memlab.tracking.leaks import Leak, find_leak
from memlab.tracking.lengths import READ
from memlab.tracking.modules import ModulesAtWork, is_evaluated
from memlab.tracking.nested import is_wrapper
from memlab.tracking.operators import operator
from memlab.tracking.optimizers import OptimizersAtWork
from memlab.tracking.residents import Residents
from memlab.tracking.resizing import SEEN
from memlab.tracking.sharding import UNSEEN
from memlab.tracking.storages import Allocator, Record, Storages

COMPILED = (
    "What is given to torch.compile ran eagerly in the X-rayed steps, which are shown, and compiled in the others."
)


@dataclass(frozen=True)
class Xray:
    """One tracked step: allocated bytes by category at its start, its events, floating-point operations."""

    start: dict[Category, int]
    events: tuple[Event, ...]
    storages: tuple[Storage, ...]
    peak_allocated: int
    flops: int
    reserved: tuple[tuple[int, int], ...]  # as a trace has it
    waits: tuple[tuple[float, float], ...]  # as a trace has them


class Tracker(Storages, TorchDispatchMode):
    """Tracks the storages of one device. ``with tracker:`` around a training step X-rays that step.

    Storages stay known between steps (a weak reference sees them freed), so the tracker may be off
    for some steps and on again. Not re-entrant; only the thread that entered it is tracked, with the
    threads in which autograd runs its backward.

    Args:
        device: storages elsewhere are ignored.
        budget: bytes; an allocation past it raises :class:`BudgetExceeded`, as a smaller card would.
        allocator: reads what the device's own allocator counts, None where it has none (the CPU).
    """

    supports_higher_order_operators = True  # they come to __torch_dispatch__ as any other

    def __init__(self, device: torch.device, *, budget: int | None = None, allocator: Allocator | None = None):
        TorchDispatchMode.__init__(self)
        Storages.__init__(self, device, budget)
        self._allocator: Any = allocator  # None on the CPU, where it is not asked
        self._autograd = ModuleTracker()  # never entered: only asked whether backward is running
        self._modules = ModulesAtWork(self._tracked_thread, self._enter_root)
        self._residents = Residents(self._mark)
        self._optimizers = OptimizersAtWork(self._tracked_thread, self._enter_optimizer, self._residents.state)
        self._flops = FlopCounter()
        self.notes: list[str] = []  # sentences about the run, each once
        self.leak: Leak | None = None  # as the last step that ended tells it
        self.failed_evaluating = False  # memory ran out in an evaluation
        self._root: Callable[[], torch.nn.Module | None] = lambda: None  # the last module that no other one called
        self.least_seconds: float | None = None  # of the last step, where a card is predicted
        self.likely_seconds: float | None = None
        self.stopping = threading.Event()  # when it is set, the step ends at its next operator

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # PyTorch would wrap __torch_dispatch__ to hide it from torch.compile, at 5 microseconds an operator.
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        # Or a function that is called under the mode would never be compiled again: the compiler remembers to skip it.
        return True

    # A step

    def __enter__(self) -> "Tracker":
        self._begun = time.perf_counter()
        self._start_events()
        self._flops.total = 0
        self.sent = 0  # bytes, to other ranks in the step that is tracked, or was last
        self.sent_to_other_machines = 0  # of these
        self._phase = Phase.OTHER
        self._marks = Marks()
        self._recomputing = False  # backward runs a part of the forward again
        self._differentiated = False  # backward is itself to be differentiated
        self._optimizing_in_backward = False
        self._forward_begun = False
        self._op: object = ""
        self._written: Record | None = None  # in place, where PyTorch would have made a new tensor for the mode
        self._threads: set[int] = set()  # that have been seen to have this mode
        self._reserved: list[tuple[int, int]] = []
        self._waits: tuple[tuple[float, float], ...] = ()
        self._modules.start()
        self._optimizers.start()
        self._hooks = ExitStack()
        self._hooks.enter_context(SEEN)
        self._hooks.enter_context(MADE)
        self._hooks.enter_context(UNSEEN)
        self._hooks.enter_context(READ)
        self._watches_compiler = False
        self._adopt()
        self._live_at_start = self.live
        self._held = [(record, record.nbytes) for record in self._records]  # when the step begins
        self._watch_compiler()
        with modes_above(None):  # one that train has entered, and not left when it yielded
            TorchDispatchMode.__enter__(self)
        self._recording = True
        return self

    def __exit__(self, *exception: Any) -> None:
        with modes_above(self):
            TorchDispatchMode.__exit__(self, *exception)
        self._recording = False
        self._name_variables()
        self._hooks.close()
        self._residents.stop()
        self._optimizers.stop()
        self._modules.stop()
        self.peak = max(accumulate([event[1] for event in self._events], initial=self._live_at_start))
        for ref in self._refs.values():  # while it is known when they were born
            ref.record.category = label(ref.record, self._marks)
        if self.failed is None:
            self.leak = find_leak((ref.record for ref in self._refs.values()), self.steps)

    def xray(self) -> Xray:
        """The step just tracked, labelled."""
        start: dict[Category, int] = {}
        for record in self._records:
            record.category = label(record, self._marks)
        places: dict[Record, int] = {}
        events = tuple(
            Event(
                delta,
                record.category,
                phase,
                module,
                operator(op).name,
                places.setdefault(record, len(places)),
                line,
                round(seconds, 7),
            )
            for record, delta, phase, module, op, line, seconds in self._events
        )
        for record, nbytes in self._held:
            if nbytes:
                places.setdefault(record, len(places))
                start[record.category] = start.get(record.category, 0) + nbytes
        held = dict(self._held)
        storages = tuple(_storage(record, held.get(record, 0)) for record in places)
        waits = tuple((round(begin, 7), round(end, 7)) for begin, end in self._waits)
        return Xray(start, events, storages, self.peak, self._flops.total, tuple(self._reserved), waits)

    # Operators

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if types and any(map(is_wrapper, types)):
            self._update_phase(func, args)
            return NotImplemented  # the wrapper's own rules are asked next; what they do with its inner tensors is seen
        if types and any(map(is_fake, types)):
            return func(*args, **(kwargs or {}))
        return self._see_operator(func, args, kwargs or {})

    def _see_operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.stopping.is_set():
            raise Stopped
        known = operator(func)
        if known.is_mark:
            return func(*args, **kwargs)  # what Python allocates next is of the operator before
        if known.is_higher_order and (kernel := higher_order_kernel(func, self.device.type)):
            with on_again(self):
                return kernel(*args, **kwargs)
        if known.is_composite and self.is_real:
            with on_again(self):
                return func.decompose(*args, **kwargs)
        if known.definition is not None and self.is_real and (kernel := self._kernel(known.definition, args)):
            with on_again(self):
                return kernel(*args, **kwargs)
        if not self._watches_compiler and COMPILER in sys.modules:
            self._watch_compiler()
        self._update_phase(func, args)
        previous, self._op = self._op, func
        for value in args:
            if isinstance(value, Tensor):
                self._see(value, False)
            elif isinstance(value, list):  # foreach operators, cat, stack
                for item in value:
                    if isinstance(item, Tensor):
                        self._see(item, False)
        for value in kwargs.values():
            if isinstance(value, Tensor):
                self._see(value, False)
        run = self._as_without_a_mode(func, args, kwargs, previous) if known.may_be_in_place else func
        out = self._call(run, args, kwargs)
        first = len(self._events)
        if isinstance(out, Tensor):
            self._see(out, True)
        elif isinstance(out, tuple | list):
            for value in out:
                if isinstance(value, Tensor):
                    self._see(value, True)
        if self._allocator:
            self._see_workspace(func, args, out, first)
        if known.formula:
            self._flops.count(known.formula, func, args, kwargs, out)
        if known.collective:
            self.sent += known.collective.sent(args)
            self.sent_to_other_machines += known.collective.sent_to_other_machines(args)
            self._marks.talks = self.is_real and self.sent > 0
            self._mark_unknown(known.collective.buffers(args), Category.COMMUNICATION)
        return out

    def _kernel(self, definition: Any, args: tuple[Any, ...]) -> Any:
        """The Python function that a custom operator runs for these arguments, or None."""
        kinds = (value.device.type for value in args if isinstance(value, Tensor))
        return custom_kernel(definition, next(kinds, self.device.type))

    def _as_without_a_mode(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], previous: Any) -> Any:
        """The operator itself, or what autograd would do in place were no mode on."""
        if self._phase is not Phase.BACKWARD or kwargs or torch.is_grad_enabled():
            return func
        ref = self._refs.get(id(args[0].untyped_storage())) if args[0].layout is torch.strided else None
        record = ref.record if ref is not None else None
        made_by = previous if record is self._records[-1] else None
        run = in_place(func, args, made_by, written=record is not None and record is self._written)
        self._written = record if run else self._written
        return run or func

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return randomness.call(func, args, kwargs)
        except RuntimeError as error:  # noted here, where the module at work is still known
            if is_out_of_memory(error):
                self.failed = replace(self._failure(asked_bytes(error)), message=str(error))
            raise

    def _watch_compiler(self) -> None:
        """Have compiled code run as :meth:`compiler` says while the tracker is on."""
        if compiling.is_imported():
            self._hooks.enter_context(compiling.AS_WATCHED)
            self._watches_compiler = True

    def compiler(self, readers: Any) -> Any:
        """Run it as it is written, and say so."""
        if readers is not None:  # nothing is compiled in what is disabled, or with the stance "force_eager"
            self.note(COMPILED)
        return None

    def note(self, sentence: str) -> None:
        """Keep a sentence about the run, once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    # Phases

    def _update_phase(self, func: Any, args: tuple[Any, ...]) -> None:
        if self._autograd.is_bw and not (self._optimizers.at_work and self._optimizing_in_backward):
            phase = Phase.BACKWARD
            self._see_backward()
        elif self._optimizers.at_work and not (self._modules.in_forward or self._forward_begun):  # else in its closure
            phase = Phase.OPTIMIZER
        else:
            # Forward begins with the first operator that gradients will flow through, inside a module or
            # not, and lasts until backward: the loss is often computed outside the model.
            self._forward_begun = self._forward_begun or _starts_a_graph(func, args)
            phase = Phase.FORWARD if self._modules.in_forward or self._forward_begun else Phase.OTHER
        if phase is not self._phase:
            self._change_phase(phase)

    def _see_backward(self) -> None:
        # Backward runs operators without gradients, unless it is to be differentiated itself (create_graph=True). Else
        # only Python turns them on: a checkpoint that runs its part of the forward again.
        if not torch.is_grad_enabled():
            self._leave_recomputation()
        elif not self._differentiated:
            self._differentiated = called_by_engine()
            self._recomputing = not self._differentiated

    def _change_phase(self, phase: Phase) -> None:
        if self._phase is Phase.BACKWARD:
            self._leave_recomputation()
            self._differentiated = False
            self._modules.leave_backward()
        if phase is not Phase.FORWARD:
            self._forward_begun = False
        self._phase = phase
        self._marks.begins[phase].append(len(self._events))
        if phase is Phase.BACKWARD:
            self._name_variables()

    def _leave_recomputation(self) -> None:
        if self._recomputing:
            self._marks.recompute_ends.append(len(self._events))
            self._recomputing = False

    def _failure(self, asked: int | None) -> OutOfMemory:
        # Backward will not begin, and a checkpoint not end: what lives now is what would have been kept.
        self._marks.failed = True
        self._name_variables()
        root = self._root()
        self.failed_evaluating = self._modules.in_forward and root is not None and is_evaluated(root)
        self._residents.all_modules()
        self._marks.begins[Phase.BACKWARD].append(len(self._events))
        self._marks.recompute_ends.append(len(self._events))
        if self._allocator:  # it has given back what it could
            self._note_reserved(self._allocator.read_and_reset_peak()[2], None)
        return OutOfMemory(asked, self.live, self.budget, self._phase, self._modules.name, operator(self._op).name)

    def _see_workspace(self, func: Any, args: tuple[Any, ...], out: Any, first: int | None) -> None:
        """Note workspace, bytes that the allocator counts and no tensor explains; a decrease goes before ``first``."""
        if not operator(func).is_view:
            self.count_workspace(first)

    def count_workspace(self, first: int | None) -> None:
        current, peak, reserved = self._allocator.read_and_reset_peak()
        if reserved != self._reserved[-1][1]:
            self._note_reserved(reserved, first)
        before = self._workspace.nbytes
        if peak > current:
            self._resize(self._workspace, before + peak - self.live, first)
            first = None
        self._explain(current, before, first)

    def _note_reserved(self, reserved: int, first: int | None) -> None:
        """The operator whose events begin with ``first`` has changed what is held from the driver."""
        last, before = self._reserved[-1]
        end = len(self._events)
        # It has grown for the first thing that the operator allocates.
        place = max(last, min(first + 1, end) if first is not None and reserved > before else end)
        if place == last:
            self._reserved.pop()
        self._reserved.append((place, reserved))

    def _adopt(self) -> None:
        """Count what was born while the tracker was off: it is older than the step, not a part of it."""
        self._residents.gradients()
        if self._allocator:
            current, _, reserved = self._allocator.read_and_reset_peak()
            self._hold_over(current)
            self._reserved.append((0, reserved))
        for record, *_ in self._events:
            record.born = -1
        self._events.clear()

    def _now(self) -> float:
        return time.perf_counter() - self._begun

    # Hooks: they are process-wide, so they act only on the threads that are tracked

    def _tracked_thread(self) -> bool:
        thread = threading.get_ident()
        if thread not in self._threads and any(mode is self for mode in modes_of_this_thread()):
            self._threads.add(thread)
        return self._recording and thread in self._threads

    def _enter_root(self, module: torch.nn.Module) -> None:
        self._root = weakref.ref(module)
        if not self._autograd.is_bw:
            self._residents.module(module)

    def _met(self, parameter: torch.nn.Parameter) -> None:
        self._residents.parameter(parameter)

    def _enter_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self._residents.parameters(parameter for group in optimizer.param_groups for parameter in group["params"])
        self._residents.gradients()
        self._optimizing_in_backward = self._autograd.is_bw
        self._forward_begun = False


def _storage(record: Record, start: int) -> Storage:
    dtype = str(record.dtype).removeprefix("torch.") if record.dtype is not None else ""
    name = record.name or (_maker(record) if record.category is Category.HELD else "")
    return Storage(name, tuple(map(int, record.shape)), dtype, record.category, start, record.variable)


def _maker(record: Record) -> str:
    module, op = record.maker
    return f"{module} {operator(op).name.removeprefix('aten.')}".strip()


def _starts_a_graph(func: Any, args: tuple[Any, ...]) -> bool:
    if not torch.is_grad_enabled() or func is torch.ops.aten.detach.default:  # how weights are copied
        return False
    return any(value.requires_grad for value in args if isinstance(value, Tensor))
