"""The tracker of a prediction: every storage that it sees takes a block of the card's memory."""

import sys
import warnings
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, TypeGuard

import torch

from memlab.allocator import OutOfRoom
from memlab.categories import Phase
from memlab.errors import Stopped
from memlab.tracking import BudgetExceeded, Tracker
from memlab.tracking.internals import on_again
from memlab.tracking.labels import label
from memlab.tracking.operators import operator
from memlab.tracking.storages import Record
from memlab.vgpu.composites import way_of
from memlab.vgpu.current_prediction import Prediction, outside
from memlab.vgpu.history import History
from memlab.vgpu.internals import FakeTensor, disable_modes
from memlab.vgpu.libraries import TRITON, answer_for
from memlab.vgpu.mode import VirtualMode, engine_device, has_own_rules, prim_device
from memlab.vgpu.names import CARD
from memlab.vgpu.scratch.rule import Result
from memlab.vgpu.sparse import operators as sparse
from memlab.vgpu.subclasses import as_plain
from memlab.vgpu.time.clock import Clock

_FAKE = (FakeTensor,)


class VirtualTracker(Tracker):
    """The tracker of a prediction. It must be on in every step: only it sees what is allocated."""

    is_real = False

    def __init__(self, prediction: Prediction, mode: VirtualMode):
        super().__init__(CARD, allocator=prediction.memory)
        self._memory = prediction.memory
        self._mode = mode
        self.clock = Clock(prediction.card.speed)
        self._prediction = prediction
        prediction.launch = self._launch
        self._frames: Any = None  # what is compiled; PyTorch's compiler takes seconds to import
        self._compiles = True
        self._libraries: set[str] = set()
        self.history: History | None = None

    def keep_history(self) -> History:
        """From now on what the card's allocator does is written down."""
        self.history = History(self._memory.blocks, self._at_work)
        return self.history

    def compiler(self, readers: Any) -> Any:
        """Return what compiles a frame for the card; None for code that runs as it is written."""
        if not callable(readers) or not self._compiles:  # or code that PyTorch keeps its compiler from
            return None
        if self._frames is None:
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
            self._frames = Frames(self._prediction)
        return self._frames.compiler(readers)

    def _launch(self, args: tuple[Any, ...]) -> None:
        """A kernel of compiled code is launched: it moves its arguments, each once, and allocates nothing."""
        self.clock.launch(args, self._memory.blocks.stream)

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
        self._types = types
        # The host's own affair.
        if not types and not (kwargs and "device" in kwargs) and not operator(func).is_higher_order:
            out = self._mode.run(func, types, args, kwargs or {})
            self._prediction.host.see(out)
            return out
        return self._see_operator(func, args, kwargs or {})

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if TRITON in sys.modules and TRITON not in self._libraries:  # imported since, and its kernels need no module
            answer_for(self._libraries, self._prediction.undo)
        self._memory.streams.follow()
        self._memory.read_and_reset_peak()  # what was freed since the last operator is gone from this one's peak
        out = self._mode.run(func, self._types, args, kwargs)
        if type(out) is not FakeTensor or out.fake_device.type == "cpu":  # else it is on the card, as most are
            self._prediction.host.see(out)
        self.clock.count(func, args, kwargs, out, self._mode.answer, self._memory.blocks.stream)
        try:
            in_backward = self._phase is Phase.BACKWARD
            self._memory.run_kernel(func, args, kwargs, out, in_backward, partial(self._see_result, out))
        except OutOfRoom as error:
            self._refuse(error.segment)
        return out

    def __enter__(self) -> "VirtualTracker":
        self.clock.start()
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self.least_seconds, self.likely_seconds = self.clock.least_seconds(), self.clock.likely_seconds()
        if self.history is not None and not self.stopping.is_set():  # it does not end with what is freed in the end
            for record in self._records:
                record.category = label(record, self._marks)
            self.history.end_step()

    def _now(self) -> float:
        return self.clock.now()

    def _see_result(self, out: Any, which: Result) -> None:
        """Take blocks for results now, when the operator's kernel does; for the rest they are taken after it."""
        results = out if isinstance(out, tuple | list) else (out,)
        for value in results if which.index is None else (results[which.index],):
            if isinstance(value, torch.Tensor):
                self._see(value, True)

    def _enter_root(self, module: torch.nn.Module) -> None:
        answer_for(self._libraries, self._prediction.undo)  # here, for a loop may import them
        super()._enter_root(module)

    def _is_parameter(self, tensor: torch.Tensor) -> TypeGuard[torch.nn.Parameter]:
        return "_is_param" in tensor.__dict__  # as torch.nn.Parameter marks tensors of other types

    def _take(self, record: Record) -> None:
        try:
            record.block = self._memory.blocks.allocate(record.nbytes)
        except OutOfRoom as error:
            self._refuse(error.segment)
        if self.history is not None and record.block is not None:
            self.history.belongs(record)
        self._count_slack(record, 1)

    def _give(self, record: Record) -> None:
        if record.block is not None:
            self._count_slack(record, -1)  # before the block merges with its neighbours
            self._memory.blocks.release(record.block)
            record.block = None

    def _count_slack(self, record: Record, sign: int) -> None:
        """Count what a block is larger than its storage, at once, so that the sum is right at every moment."""
        slack = sign * (record.block.size - record.nbytes) if record.block is not None else 0
        if slack and self._recording:
            self._resize(self._workspace, self._workspace.nbytes + slack)
        elif slack:
            self._workspace.nbytes += slack
            self.live += slack

    def _refuse(self, segment: int) -> NoReturn:
        memory = self._memory
        message = memory.out_of_memory(segment)
        self.failed = replace(
            self._failure(segment), in_use=memory.blocks.allocated, limit=memory.limit, message=message
        )
        raise BudgetExceeded(message)
