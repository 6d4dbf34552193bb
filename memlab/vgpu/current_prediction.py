"""The prediction that this thread is in."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from memlab.vgpu.cards import Card
from memlab.vgpu.host_memory import HostMemory
from memlab.vgpu.live_bytes import LiveBytes
from memlab.vgpu.memory import VirtualMemory
from memlab.vgpu.node_order import NodeOrder

STREAMS = 32  # of one priority; after that many PyTorch begins with the first again


@dataclass
class Prediction:
    """The state of one prediction.

    Attributes:
        card: what is predicted for.
        memory: what the card's allocator holds.
        host: what tensors hold of the host's memory.
        undo: is closed when the prediction is over: what is real is given back as it was.
        notes: sentences for the trace.
        asked: lines of the loop that asked the card for a number that nobody knows, and how often in this step.
        guessed: all of them, in order.
        given: numbers for such lines, which somebody has said; ``used``: those of these lines that have asked.
        chosen: the share (0 to 1) that is chosen where numbers decide that nobody knows, or ``"evenly"``: what is
            picked from several is spread evenly over them; None if nobody has said it.
        sized: those where the size of a result depends on numbers that nobody knows, and what gives it; ``spread``:
            those where these numbers come of picks that are spread evenly.
        files: what the loop "saved", by path or file object, for it to load again.
        written: storages of the host that the loop has written to.
        away: storages of the host that tensors of the card have for their data, by number and referred to weakly, and
            what stands for them.
        world_size: how many ranks train together, this one among them.
        node_order: which nodes of autograd's graphs backward runs first.
        switches: PyTorch's, as they are for it, by the function that reads them.
        numbers: how often the loop has read numbers of the card, or drawn some on the host. Not counted are those of
            which ``sources``, while a call of a model is written down, says where they come from.
        score_tables: the tables of attention's scores that a fused kernel would spare.
        repeats: what is called for models that the loop calls again and again.
        launch: is called with the arguments of each kernel that a compiler has made, in the place of the kernel.
        timing: bytes allocated at most while kernels are timed, on a machine where that was not done before.
        graphs: the CUDA graphs of compiled code (``compiled/graphs.py``), None without any.
        capturing: whether one of them is made of what is given to the card.
        work_for: is called with the origin of what compiled code does next (``compiled/origins.py``), None at its end.
    """

    card: Card
    memory: VirtualMemory
    host: HostMemory = field(default_factory=HostMemory)
    undo: ExitStack = field(default_factory=ExitStack)
    notes: dict[str, None] = field(default_factory=dict)  # in order, each once
    asked: Counter[str] = field(default_factory=Counter)
    guessed: dict[str, None] = field(default_factory=dict)
    given: Mapping[str, float] = field(default_factory=dict)
    used: dict[str, None] = field(default_factory=dict)
    chosen: float | str | None = None
    sized: dict[str, str] = field(default_factory=dict)
    spread: dict[str, str] = field(default_factory=dict)
    files: dict[Any, Any] = field(default_factory=dict)
    written: dict[int, Any] = field(default_factory=dict)
    away: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    world_size: int = 1
    node_order: NodeOrder = field(default_factory=NodeOrder)
    switches: dict[str, Any] = field(default_factory=dict)
    numbers: int = 0
    sources: Any = None
    score_tables: LiveBytes = field(default_factory=LiveBytes)
    repeats: Any = None
    launch: Callable[[tuple[Any, ...]], None] = lambda args: None
    work_for: Callable[[Any], None] = lambda origin: None
    timing: int = 0
    graphs: Any = None
    capturing: bool = False
    _streams: int = 0  # made so far

    def start_step(self) -> None:
        """Count anew how often a line asks."""
        self.asked.clear()

    def next_stream(self) -> int:
        """The number of a new stream; 0 is the default one."""
        self._streams += 1
        return 1 + (self._streams - 1) % STREAMS

    def end(self) -> None:
        """Let go of the host's tensors: PyTorch may keep what belongs to a prediction for longer than it lasts."""
        self.files.clear()
        self.written.clear()
        self.away.clear()

    def ask(self, line: str) -> int:
        """A line asks for a number that nobody knows; how often it has in this step."""
        (self.used if line in self.given else self.guessed)[line] = None
        self.asked[line] += 1
        return self.asked[line]

    @property
    def on_given(self) -> Iterator[str]:
        """Sentences about the numbers that somebody has said."""
        for line, number in self.given.items():
            if line in self.used:
                yield f"The number that {line} asks for was given as {number:g}."
            else:
                yield f"Nothing asks for a number at {line}, so the {number:g} that was given for it had no effect."

    def see_timing(self, taken: int) -> None:
        """Note the bytes that timing kernels takes beside, where PyTorch compiles this first on a machine."""
        if taken:
            self.timing = max(self.timing, self.memory.blocks.allocated + taken)

    def note(self, sentence: str) -> None:
        """Have the trace say this."""
        self.notes[sentence] = None


_thread = threading.local()


def current() -> Prediction:
    """The prediction that this thread is in; it must be in one."""
    prediction: Prediction | None = getattr(_thread, "prediction", None)
    assert prediction is not None, "only called in a prediction"
    return prediction


def is_predicting() -> bool:
    """Return True if this thread is inside a prediction."""
    return getattr(_thread, "prediction", None) is not None


def is_beside() -> bool:
    """Return True if a predicting thread, or a library for it, has started this thread. It has no card."""
    return getattr(_thread, "beside", False)


def stand_beside() -> None:
    """This thread was started by one that predicts."""
    _thread.beside = True


def enter(prediction: Prediction | None) -> Prediction | None:
    """Make it this thread's; the one that was."""
    before: Prediction | None = getattr(_thread, "prediction", None)
    _thread.prediction = prediction
    return before


@contextmanager
def outside() -> Iterator[None]:
    """The context in which this thread is in no prediction: PyTorch's functions answer it themselves."""
    before = enter(None)
    try:
        yield
    finally:
        enter(before)


def _forget() -> None:
    """In a process that was forked in a prediction: what it does is real."""
    _thread.prediction = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
