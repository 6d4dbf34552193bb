"""The tracker of a prediction: every storage that it sees takes a block of the card's memory."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, TypeGuard

import torch

from memlab.allocator import Block, OutOfRoom
from memlab.categories import Category, Phase
from memlab.errors import Stopped
from memlab.oom import is_out_of_memory
from memlab.tracking import BudgetExceeded, Tracker
from memlab.tracking.internals import on_again
from memlab.tracking.labels import Marks, label
from memlab.tracking.operators import operator
from memlab.tracking.storages import Record
from memlab.vgpu.compiled.origins import Origin, operator_of
from memlab.vgpu.composites import way_of
from memlab.vgpu.current_prediction import Prediction, outside
from memlab.vgpu.history import History
from memlab.vgpu.internals import FAKE_MODE, FakeTensor, disable_modes, set_mode, tree_leaves, unset_mode
from memlab.vgpu.libraries import TRITON, answer_for
from memlab.vgpu.mode import VirtualMode, engine_device, has_own_rules, prim_device
from memlab.vgpu.moments import BEGIN, BORN, EXPLAIN, FREED, RESULTS, WORK, Born, Moment
from memlab.vgpu.names import CARD
from memlab.vgpu.scratch.rule import Result
from memlab.vgpu.sparse import operators as sparse
from memlab.vgpu.subclasses import as_plain
from memlab.vgpu.time.clock import Clock

_FAKE = (FakeTensor,)
_EMPTY = torch.ops.aten.empty_strided.default  # what compiled code allocates with, for whatever operator


class VirtualTracker(Tracker):
    """The tracker of a prediction. It must be on in every step: only it sees what is allocated."""

    is_real = False

    def __init__(self, prediction: Prediction, mode: VirtualMode):
        super().__init__(CARD, allocator=prediction.memory)
        self.memory = prediction.memory
        self.mode = mode
        self.clock = Clock(prediction.card.speed)
        self._prediction = prediction
        prediction.launch, prediction.work_for = self._launch, self._work_for
        self._origin: Origin | None = None
        self._frames: Any = None  # what is compiled; PyTorch's compiler takes seconds to import
        self._compiles = True
        self._libraries: set[str] = set()
        self.history: History | None = None
        self.moments: list[Moment] | None = None  # where what happens is written, while somebody wants to know
        self.on_root: Callable[[torch.nn.Module], object] = lambda module: None  # a module that no other one calls
        self.on_end: Callable[[], object] = lambda: None  # of a step
        self.on_compiling: list[Callable[[], object]] = []  # each is called before anything is compiled

    def keep_history(self) -> History:
        """From now on what the card's allocator does is written down."""
        self.history = History(self.memory.blocks, self._at_work)
        return self.history

    def compiler(self, readers: Any) -> Any:
        """Return what compiles a frame for the card; None for code that runs as it is written."""
        if not callable(readers) or not self._compiles:  # or code that PyTorch keeps its compiler from
            return None
        if self._frames is None:
            for told in self.on_compiling:
                told()
            try:
                # Its files look for cards and devices when they are imported, and use names that are deprecated.
                with outside(), disable_modes(), warnings.catch_warnings(action="ignore"):
                    from memlab.vgpu.compiled.frames import Frames
            except (ImportError, AttributeError) as error:
                self._compiles = False
                self._prediction.note(
                    f"torch {torch.__version__} lacks what compiling for the virtual card needs ({error}), so what is "
                    "given to torch.compile is predicted as it is written, which is mostly an upper bound."
                )
                return None
            self._frames = Frames(self._prediction, self._seeing, self)
        return self._frames.compiler(readers)

    @contextmanager
    def _seeing(self) -> Iterator[None]:
        """The context in which operators are seen, where PyTorch has set all modes aside."""
        before = unset_mode(FAKE_MODE)
        set_mode(self.mode)
        try:
            with on_again(self):
                yield
        finally:
            unset_mode(FAKE_MODE)
            if before is not None:
                set_mode(before)

    def _launch(self, args: tuple[Any, ...]) -> None:
        """A kernel of compiled code is launched: it moves its arguments, each once, and allocates nothing."""
        self.clock.launch(args, self.memory.blocks.stream)

    def _work_for(self, origin: Origin | None) -> None:
        """Compiled code makes a buffer for a part of the model, or ends."""
        self._origin = origin
        if origin is not None and origin.differentiated and not self._autograd.is_bw:
            self.begin_phase(Phase.FORWARD, starts_graph=True)  # it need not be in a module
        self._modules.work_for(origin.path if origin is not None else "")

    def _at_work(self) -> tuple[str, str, str]:
        return operator(self._op).name, self._modules.name, str(self._phase)  # the viewer knows no enumeration

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is prim_device:  # half of all that is dispatched, so it is answered at once
            return engine_device(args[0])
        if types and types != _FAKE:
            if any(map(has_own_rules, types)):
                self._update_phase(func, args)
                return NotImplemented  # as on a real device: what a DTensor does with its part is seen
            if any(issubclass(kind, FakeTensor) and kind is not FakeTensor for kind in types):
                with as_plain(args, kwargs):  # PyTorch's rules for shapes would call the reader's methods
                    return self.__torch_dispatch__(func, _FAKE, args, kwargs)
        if self.stopping.is_set():
            raise Stopped
        # In inference mode PyTorch leaves it to a dispatch mode to take operators apart.
        if torch.is_inference_mode_enabled() and (way := way_of(func)):
            with on_again(self):
                return way(*args, **(kwargs or {}))
        if way := sparse.way_of(func, args, kwargs):
            with on_again(self):
                return way(*args, **(kwargs or {}))
        if (definition := operator(func).definition) and types and (kernel := self._kernel(definition, args)):
            try:
                with on_again(self):
                    return kernel(*args, **(kwargs or {}))
            except Exception as error:  # it reaches for numbers, or for C++ of its own
                if isinstance(error, Stopped) or is_out_of_memory(error):
                    raise
                self.note(f"Of {operator(func).name} only the results are counted: no prediction can run its code.")
        self._types = types
        # The host's own affair.
        if not types and not (kwargs and "device" in kwargs) and not operator(func).is_higher_order:
            out = self.mode.run(func, types, args, kwargs or {})
            self._prediction.host.see(out)
            return out
        return self._see_operator(func, args, kwargs or {})

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if TRITON in sys.modules and TRITON not in self._libraries:  # imported since, and its kernels need no module
            answer_for(self._libraries, self._prediction.undo)
        self.memory.streams.follow()
        if self._prediction.graphs is not None and not operator(func).is_view:
            self._refuse_overwritten(args)
            self._prediction.graphs.see(func, args, kwargs)
        if self.moments is not None:
            self.moments.append((BEGIN, self._op, self._modules.name))
        self.memory.read_and_reset_peak()  # what was freed since the last operator is gone from this one's peak
        out = self.mode.run(func, self._types, args, kwargs)
        if type(out) is not FakeTensor or out.fake_device.type == "cpu":  # else it is on the card, as most are
            self._prediction.host.see(out)
        work = self.clock.count(func, args, kwargs, out, self.mode.answer, self.memory.blocks.stream)
        if self.moments is not None and work is not None:
            self.moments.append((WORK, work, self.memory.blocks.stream))
        try:
            in_backward = self._phase is Phase.BACKWARD
            self.memory.run_kernel(func, args, kwargs, out, in_backward, partial(self._see_result, out))
        except OutOfRoom as error:
            self._refuse(error.segment)
        if self.moments is not None:
            self.moments.append((RESULTS,))
        if func is _EMPTY and self._origin is not None:
            self._op = operator_of(self._origin.op) or func
        return out

    def count_workspace(self, first: int | None) -> None:
        if self.moments is not None:
            self.moments.append((EXPLAIN,))
        super().count_workspace(first)

    def __enter__(self) -> "VirtualTracker":
        self.clock.start()
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.on_end()
        super().__exit__(*exception)
        self.least_seconds, self.likely_seconds = self.clock.least_seconds(), self.clock.likely_seconds()
        self._place_waits()
        if self.history is not None and not self.stopping.is_set():  # it does not end with what is freed in the end
            for record in self._records:
                record.category = label(record, self._marks)
            self.history.end_step()

    def _now(self) -> float:
        return self.clock.now()

    def _place_waits(self) -> None:
        """Put what follows the last collective behind the wait for it."""
        waits = [] if self.likely_seconds is None else [*self.clock.waits]
        if last := self.clock.last_wait():
            since, until = last
            if self.failed is None or any(event[-1] > since for event in self._events):  # else memory ran out before it
                waits.append(last)
            late = until - since
            self._events = [(*event[:-1], event[-1] + late * (event[-1] > since)) for event in self._events]
        self._waits = tuple(waits)

    def _see_result(self, out: Any, which: Result) -> None:
        """Take blocks for results now, when the operator's kernel does; for the rest they are taken after it."""
        results = out if isinstance(out, tuple | list) else (out,)
        for value in results if which.index is None else (results[which.index],):
            if isinstance(value, torch.Tensor):
                self._see(value, True)

    def _enter_root(self, module: torch.nn.Module) -> None:
        answer_for(self._libraries, self._prediction.undo)  # here, for a loop may import them
        self.on_root(module)
        super()._enter_root(module)

    def _is_parameter(self, tensor: torch.Tensor) -> TypeGuard[torch.nn.Parameter]:
        return "_is_param" in tensor.__dict__  # as torch.nn.Parameter marks tensors of other types

    def _begin(self, record: Record) -> None:
        if self._origin is not None and self._origin.recomputed:
            record.settled = Category.RECOMPUTED
        super()._begin(record)

    def _take(self, record: Record) -> None:
        if self.moments is not None:
            self.moments.append((BORN, record))
        blocks = self.memory.blocks
        try:
            record.block = type(blocks).allocate(blocks, record.nbytes)  # a recording is of what others take
        except OutOfRoom as error:
            self._refuse(error.segment)
        if self.history is not None and record.block is not None:
            self.history.belongs(record)
        self._count_slack(record, 1)

    def _give(self, record: Record) -> None:
        if self.moments is not None:
            self.moments.append((FREED, record, self._modules.name))
        if record.block is not None:
            self._count_slack(record, -1)  # before the block merges with its neighbours
            blocks = self.memory.blocks
            type(blocks).release(blocks, record.block)
            record.block = None

    def _count_slack(self, record: Record, sign: int) -> None:
        """Count what a block is larger than its storage, at once, so that the sum is right at every moment."""
        slack = sign * (record.block.size - record.nbytes) if record.block is not None else 0
        if slack and self._recording:
            self._resize(self._workspace, self._workspace.nbytes + slack)
        elif slack:
            self._workspace.nbytes += slack
            self.live += slack

    # For CUDA graphs, whose pool holds what a replay gives

    def records(self) -> list[Record]:
        """Those of all storages that live."""
        return [ref.record for ref in self._refs.values()]

    def record_of_storage(self, storage: torch.UntypedStorage) -> Record | None:
        """Return what is known of a storage."""
        ref = self._refs.get(id(storage))
        return None if ref is None else ref.record

    def place(self, storage: torch.UntypedStorage, address: int) -> None:
        """A storage stands for memory that a pool holds."""
        record = Record(0, len(self._events), self._phase)
        record.place = address
        self.adopt(storage, record)

    def leave(self, record: Record, address: int) -> None:
        """A storage lives on without its block, whose address it keeps."""
        self._give(record)
        self._resize(record, 0)
        record.place = address

    def own(self, storage: torch.UntypedStorage, block: Block) -> None:
        """A storage has this block from now on."""
        record = self._refs[id(storage)].record
        record.place, record.block = None, block
        self._records.append(record)
        self._resize(record, storage.nbytes())
        self._count_slack(record, 1)

    def _change_size(self, record: Record, nbytes: int) -> None:
        if record.place is None:
            super()._change_size(record, nbytes)

    def _refuse_overwritten(self, args: tuple[Any, ...]) -> None:
        """Fail as PyTorch does where an operator reads what a graph has written over since."""
        for value in tree_leaves(args):
            record = self.record_of(value) if isinstance(value, torch.Tensor) else None
            if record is not None and record.overwritten:
                raise RuntimeError(record.overwritten)

    # For calls of a model that are played again

    def is_alone_at_work(self) -> bool:
        """Return True if no module but the one that was called last is at work, in forward, and nothing is compiled."""
        at_work = self._recording and self._modules.depth == 1 and not self._autograd.is_bw
        return at_work and self.history is None and self._frames is None

    @property
    def events(self) -> list[Any]:
        """Those of the step."""
        return self._events

    @property
    def marks(self) -> Marks:
        """The moments of the step."""
        return self._marks

    @property
    def flops(self) -> int:
        """Floating-point operations of the step so far."""
        return self._flops.total

    @flops.setter
    def flops(self, total: int) -> None:
        self._flops.total = total

    def begin_phase(self, phase: Phase, *, starts_graph: bool = False) -> None:
        """Begin a phase, unless it has begun; gradients will flow through it if it ``starts_graph``."""
        if phase is not self._phase:
            self._change_phase(phase)
        self._forward_begun |= starts_graph

    @property
    def module_at_work(self) -> str:
        """The innermost one."""
        return self._modules.name

    @module_at_work.setter
    def module_at_work(self, name: str) -> None:
        self._modules.name = name

    def begin_operator(self, op: object, module: str) -> None:
        """An operator of a module begins."""
        self._op, self._modules.name = op, module
        self.memory.read_and_reset_peak()

    def begin_storage(self, born: Born) -> Record:
        """A storage is born."""
        record = Record(born.nbytes, len(self._events), born.phase, born.recomputed)
        record.shape, record.dtype, record.settled = born.shape, born.dtype, born.category
        self._begin(record)
        return record

    def end_storage(self, record: Record) -> None:
        """Its bytes are free, although it may live."""
        self._end(record)
        record.nbytes = 0

    def adopt(self, storage: torch.UntypedStorage, record: Record) -> None:
        """A storage has this record, and its block."""
        self._refs[id(storage)] = self._reference(storage, record)

    def take(self, nbytes: int) -> Block:
        """A block for a kernel, of some bytes."""
        try:
            block = self.memory.blocks.allocate(nbytes)
        except OutOfRoom as error:
            self._refuse(error.segment)
        assert block is not None
        return block

    def _refuse(self, segment: int) -> NoReturn:
        memory = self.memory
        message = memory.out_of_memory(segment)
        self.failed = replace(
            self._failure(segment), in_use=memory.blocks.allocated, limit=memory.limit, message=message
        )
        raise BudgetExceeded(message)
