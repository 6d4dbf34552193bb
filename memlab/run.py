"""Drive a ``train`` generator: one training step for each ``yield``, its memory measured or predicted."""

import gc
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice, product
from pathlib import Path
from types import CellType, FrameType, GeneratorType
from typing import Any, Protocol, runtime_checkable

import torch

from memlab.devices import Device, open_device
from memlab.devices.leftovers import clear_broken_backward
from memlab.errors import BadTrain
from memlab.garbage import frozen
from memlab.oom import asked_bytes, out_of_memory_behind
from memlab.protocol import (
    Train,
    check_settings,
    check_steps,
    check_xray,
    line_of,
    loss_of,
    name_of,
    notes_on,
    plain,
    start,
)
from memlab.trace import OutOfMemory, Phase, Step, Trace
from memlab.tracebacks import show_readers_frames
from memlab.tracking import Xray
from memlab.tracking.randomness import RandomNumbers
from memlab.turns import turn
from memlab.units import format_bytes, parse_bytes


@runtime_checkable
class RunsElsewhere(Protocol):
    """A script, which :func:`measure` and :func:`predict` accept in place of a function; it runs in its own process."""

    def measure(self, **options: Any) -> Trace:
        """A trace of real training."""

    def predict(self, **options: Any) -> Trace:
        """A trace of a prediction."""

    def want(self, **options: Any) -> Trace:
        """The same, but nothing that it prints is seen, and without a budget it has all the memory that it wants."""


def measure(
    train: Train | RunsElsewhere,
    /,
    *,
    steps: int = 3,
    device: str | torch.device | None = None,
    budget: str | int | None = None,
    xray: str = "auto",
    **settings: Any,
) -> Trace:
    """Train for real and measure the memory that it takes.

    Args:
        train: ``train(device, **settings)``, a generator that yields its loss once a step.
        steps: how many steps to run, fewer if ``train`` ends earlier.
        device: ``"cpu"`` or ``"cuda"``; by default CUDA where there is one.
        budget: ``"15 GiB"`` or bytes; more than that is out of memory, as on a smaller card.
        xray: ``"auto"`` tracks every storage in the first three steps and in every tenth after
            them, ``"every"`` in all steps. A plain step only reads the peak (CUDA) or nothing (CPU: there
            an X-ray does not see what is held since before the step before it).
        **settings: passed on to ``train``; the rest keep its defaults.

    Every run draws random numbers of its own, from the same seed. Another run in this process is waited for.
    Out of memory is a result: it ends the run and stands in ``Trace.oom``.

    Raises:
        BadTrain: ``train`` is not a generator, yields nothing, or yields something that is not a scalar.
        BadValue: a setting that ``train`` does not have, an unreadable budget, a device that is not there.
        Exception: whatever ``train`` itself raises, as it is.
    """
    if isinstance(train, RunsElsewhere):
        return train.measure(steps=steps, device=device, budget=budget, **settings)
    return Run(train, settings, open_device(device), steps=steps, budget=budget, xray=xray).complete()


def predict(
    train: Train | RunsElsewhere,
    /,
    *,
    gpu: str = "T4",
    world_size: int | None = None,
    global_rank: int = 0,
    steps: int = 3,
    budget: str | int | None = None,
    snapshot: str | Path | None = None,
    chosen: float | str | None = None,
    **settings: Any,
) -> Trace:
    """Predict the memory that training would take on a GPU that need not be there.

    The same ``train`` runs, unmodified, on a virtual GPU that computes nothing and accounts for every byte as the
    card's own allocator would.

    Args:
        train: ``train(device, **settings)``, a generator that yields its loss once a step.
        gpu: the card, ``"T4"`` or another of ``memlab.vgpu.CARDS``; any other by its memory, as PyTorch prints it, and
            its compute capability, ``"24 GiB sm_86"``, with the number of its multiprocessors if that is known,
            ``"24 GiB sm_86 82 SMs"``. The trace's notes say which card the rest is taken from.
        world_size: how many ranks train together, each on such a card; by default one, without a process group.
        global_rank: which of them is predicted, from 0. In the process group that ``train`` finds, the others answer at
            once.
        steps: how many steps to run. The first sets up, the second and the third are steady.
        budget: ``"6 GiB"`` or bytes, where less than the whole card is free.
        snapshot: a file for what the card's allocator does, which PyTorch's own viewer opens (pytorch.org/memory_viz,
            ``python -m torch.cuda._memory_viz trace_plot FILE``).
        chosen: the share, from 0 to 1, that is chosen where numbers decide which only a real card knows
            (``x[x > 0]``), 1 for the most that it can be; or ``"evenly"``: what ``topk``, ``max``, ``argmax`` or
            ``multinomial`` picks from several is spread evenly over them, as tokens over experts. By default nothing is
            chosen, and ``Trace.is_lower_bound`` says so.
        **settings: passed on to ``train``; the rest keep its defaults.

    Inside, ``"cuda"`` means the card, and ``torch.cuda`` answers for it. What ``train`` saves with PyTorch, NumPy or
    safetensors is not written, and what was made outside of it is as it was afterwards, but for the random numbers of
    Python and NumPy. A loop that branches on numbers which only a real card knows is predicted for
    one branch; ``Trace.guesses`` has the lines. Losses and seconds are None. Out of memory is a result, as for
    :func:`measure`.

    Raises:
        BadTrain, BadValue: as :func:`measure`; also for an unknown card.
        NotWritten: the snapshot cannot be written.
        WrongDevice: the loop mixes devices, or names one that is neither the card nor its host.
        Unpredictable: an operator, a size or a loop that depends on the data.
        NoVirtualGpu: this PyTorch cannot carry the virtual GPU.
        Exception: whatever ``train`` itself raises, as it is.
    """
    if isinstance(train, RunsElsewhere):
        given = {"world_size": world_size, "global_rank": global_rank, "chosen": chosen}
        return train.predict(gpu=gpu, steps=steps, budget=budget, snapshot=snapshot, **given, **settings)
    from memlab.vgpu.gpu import VirtualGpu  # here, because a process that only measures has no use for it

    keeps = snapshot is not None
    device = VirtualGpu(gpu, world_size=world_size, global_rank=global_rank, keeps_history=keeps, chosen=chosen)
    trace = Run(train, settings, device, steps=steps, budget=budget).complete()
    if snapshot is not None:
        device.save_snapshot(snapshot)
    return trace


def sweep(train: Train | RunsElsewhere, /, **settings: Any) -> list[Trace]:
    """:func:`measure`, or with ``gpu`` :func:`predict`, for every combination of the settings given as a list.

    ``sweep(train, checkpoint_every=[1, 2, 4], batch_size=8)`` gives three traces, in that order. Takes
    what those two take and raises what they raise.
    """
    choices = {name: value if isinstance(value, list) else [value] for name, value in settings.items()}
    one = predict if "gpu" in settings else measure
    return [one(train, **dict(zip(choices, values, strict=True))) for values in product(*choices.values())]


class Run:
    """A measurement or prediction in progress: iterate for its steps, ask for ``trace()`` at any time after one.

    Leaving the ``with`` block stops the run and frees what it held. The arguments are those of
    :func:`measure`, but for the device, an object. The generator is advanced in the thread that iterates.

    Args:
        stopping: when it is set, a step that is predicted or X-rayed ends at its next operator.
        on_wait: called if the run has to wait for another one that is being measured.

    Raises:
        Stopped: ``stopping`` was set in the middle of a step, or while the run was waiting.
    """

    def __init__(
        self,
        train: Train,
        settings: Mapping[str, Any],
        device: Device,
        *,
        steps: int = 3,
        budget: str | int | None = None,
        xray: str = "auto",
        stopping: threading.Event | None = None,
        on_wait: Callable[[], None] | None = None,
    ):
        self.settings = check_settings(train, settings)
        self.steps: list[Step] = []
        self.oom: OutOfMemory | None = None
        self.xray_step = 0  # of the X-ray that trace() would show
        self._train = train
        self._count = check_steps(steps)
        self._device = device
        self._budget = None if budget is None else parse_bytes(budget)
        self.peak_reserved: int | None = None  # bytes, of all steps so far; None where no allocator reserves
        self._xray: Xray | None = None
        # Bytes, in the last step that was X-rayed; not in what comes after it, until train ends.
        self._sent, self._sent_to_other_machines = 0, 0
        self._least_seconds: float | None = None  # of that step
        self._likely_seconds: float | None = None
        self._every = check_xray(xray) or device.tracks_every_step(self._budget)
        self._tracker = device.tracker(self._budget)
        self._tracker.stopping = self._stopping = stopping or threading.Event()
        self._on_wait = on_wait
        self._numbers = RandomNumbers()

    def __enter__(self) -> "Run":
        with ExitStack() as undo:
            if self._device.takes_turns:
                undo.enter_context(turn(self._stopping, self._on_wait, brief=not self._device.computes))
            self._device.clear_leftovers()
            undo.enter_context(frozen())
            undo.callback(self._device.release)
            undo.callback(clear_broken_backward)
            undo.enter_context(self._device.occupied(self._train, self.settings))
            self._device.set_budget(self._budget)
            undo.callback(self._device.set_budget, None)
            self._begin(undo)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, kind: object, error: BaseException | None, frames: object) -> None:
        if error is not None:
            show_readers_frames(error)
        self._undo.close()
        del self._undo

    def _begin(self, undo: ExitStack) -> None:
        """Start ``train``, whose end is a part of ``undo``."""
        with self._device.running(), self._numbers:
            self._generator = start(self._train, self._device.device, self.settings)
        self._tracker.loop = partial(_frame_of, weakref.ref(self._generator))
        undo.callback(self._close)

    def _close(self) -> None:
        """End ``train``; what its ``finally`` says still means this device."""
        with self._device.running():
            self._generator.close()
        del self._generator

    def __iter__(self) -> Iterator[Step]:
        while len(self.steps) < self._count and self.oom is None and self._advance():
            yield self.steps[-1]
        if not self.steps:
            raise BadTrain(f"{name_of(self._train)} yielded nothing: yield the loss once in every training step.")

    def complete(self) -> Trace:
        """Run all the steps and return the trace."""
        with self:
            for _ in self:
                pass
        return self.trace()

    def trace(self) -> Trace:
        """Return what is known so far. At least one step must have run."""
        assert self._xray is not None
        losses = [step.loss for step in self.steps]
        return Trace(
            source=self._device.source,
            device=self._device.name,
            torch_version=torch.__version__,
            settings={name: plain(value) for name, value in self.settings.items()},
            steps=tuple(self.steps),
            peak_reserved=self.peak_reserved,
            xray_step=self.xray_step,
            start=self._xray.start,
            events=self._xray.events,
            storages=self._xray.storages,
            flops=self._xray.flops,
            reserved=self._xray.reserved,
            waits=self._xray.waits,
            oom=self.oom,
            notes=(*filter(None, [self.leaks]), *self._tracker.notes, *self._device.notes, *notes_on(losses)),
            guesses=self._device.guesses,
            is_lower_bound=self._device.is_lower_bound,
            host_peak=self._device.host_peak,
            rank=self._device.rank,
            world_size=self._device.world_size,
            sent=self._sent,
            sent_to_other_machines=self._sent_to_other_machines,
            least_seconds=None if self.oom else self._least_seconds,
            likely_seconds=None if self.oom else self._likely_seconds,
        )

    @property
    def leaks(self) -> str:
        """A sentence about what steps leave behind for good, and when the card is full of it; or ``""``."""
        if self._tracker.leak is None:
            return ""
        nbytes, line = self._tracker.leak
        limit = self._device.room if self._budget is None else self._budget
        last = self.peak_reserved or max(step.peak_allocated or 0 for step in self.steps)
        left = "" if limit is None or self.oom else f", so memory runs out in about step {self._fills(limit, last)}"
        return (
            f"Each step leaves {format_bytes(nbytes)} behind, allocated {self._place(line)} and still alive two steps "
            f"later{left}: look for what keeps it, such as a list of outputs or of losses with their graphs"
        )

    def _fills(self, limit: int, peak: int) -> int:
        """The number of the step in which a leak has filled the card, from 1."""
        assert self._tracker.leak is not None
        return len(self.steps) + 1 + max(0, limit - peak) // self._tracker.leak.nbytes

    def _place(self, line: int) -> str:
        """A line of ``train``, in words."""
        return f"in {line_of(self._train, line)}" if line else "where no line of it is at work"

    @property
    def variables(self) -> list[Any]:
        """The values of the local variables of ``train``, which waits at a ``yield``; empty when it is over.

        Those of generators that it holds come last: one that it yields from may have the model.
        """
        # Before Python 3.13 f_locals is a copy that the frame keeps: every tensor would live on in the next step.
        generators, held = [self._generator], []
        for generator in generators:
            values = gc.get_referents(generator)
            held += values
            generators += [one for one in values if isinstance(one, GeneratorType) and one not in generators]
        return [one.cell_contents if isinstance(one, CellType) and one != CellType() else one for one in held]

    @property
    def allocated(self) -> int:
        """Bytes allocated at this moment, between two steps: what the next one begins with."""
        return self._tracker.live

    def _advance(self) -> bool:
        """Run one step. False when ``train`` has ended."""
        before = len(self.steps)
        with self._step() as yielded:
            yielded.extend(islice(self._generator, 1))
        return len(self.steps) > before

    @contextmanager
    def _step(self) -> Iterator[list[Any]]:
        """One step is what runs inside, if it puts what the step yielded into the list, or runs out of memory."""
        index = len(self.steps)
        xrayed = self._every or index < 3 or index % 10 == 0
        # Where nobody else counts, an X-ray knows what the step before it holds over only if that is tracked too.
        tracked = xrayed or (index % 10 == 9 and self._device.peak_allocated() is None)
        self._device.start_step()
        self._tracker.failed = None
        begun = time.perf_counter()
        yielded: list[Any] = []
        loss = None
        try:
            with self._numbers, self._device.running(), self._tracker if tracked else nullcontext():
                yield yielded
                if yielded:
                    self._tracker.yielded(yielded[0])
            if not yielded:
                return
            loss = loss_of(yielded.pop(), self._train, self._device.computes)
        except RuntimeError as error:
            short = out_of_memory_behind(error)
            if short is None:
                raise
            self._run_out(error, short)
        self._device.wait()
        seconds = time.perf_counter() - begun if self._device.computes else None
        peak = self._keep_xray(index) if xrayed else self._device.peak_allocated()
        self.steps.append(Step(loss, seconds, peak, xrayed))
        if (reserved := self._device.peak_reserved()) is not None:
            self.peak_reserved = max(reserved, self.peak_reserved or 0)

    def _run_out(self, error: RuntimeError, short: BaseException) -> None:
        """Memory ran out: ``short`` said so, and came out as ``error``."""
        failed = self._tracker.failed or OutOfMemory(asked_bytes(short), 0, self._budget, Phase.OTHER, "", "")
        self.oom = replace(failed, limit=failed.limit or self._budget, message=str(short))
        # The frames of the failed step still hold its tensors.
        for raised in (error, short):
            traceback.clear_frames(raised.__traceback__)

    def _keep_xray(self, index: int) -> int:
        """Keep the X-ray of this step if its peak is the highest so far, or memory ran out; the step's peak."""
        peak = self._tracker.peak
        self._sent, self._sent_to_other_machines = self._tracker.sent, self._tracker.sent_to_other_machines
        self._least_seconds, self._likely_seconds = self._tracker.least_seconds, self._tracker.likely_seconds
        best = -1 if self._xray is None else self._xray.peak_allocated
        # Of equal peaks a steady step tells more than the first, which also sets up; later ones tell nothing new.
        if self.oom or peak > best or (peak == best and index < 3):
            self._xray, self.xray_step = self._tracker.xray(), index
        return peak


def _frame_of(generator: "weakref.ref[GeneratorType[Any, None, None]]") -> FrameType | None:
    """The frame of ``train``; None when it is over."""
    train = generator()
    return train.gi_frame if train is not None else None
