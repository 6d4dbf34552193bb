"""One virtual card, as a run sees its device."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memlab.devices.base import Device
from memlab.errors import BadValue, MemlabError
from memlab.files import write_atomically
from memlab.oom import is_out_of_memory
from memlab.text import message
from memlab.units import format_bytes
from memlab.vgpu import triton_kernels
from memlab.vgpu.assembly import register
from memlab.vgpu.current_prediction import Prediction
from memlab.vgpu.history import History
from memlab.vgpu.internals import lift_on_the_host, lifts_on_the_host
from memlab.vgpu.libraries import keep_apart
from memlab.vgpu.lookup import find_card
from memlab.vgpu.memory import VirtualMemory
from memlab.vgpu.mode import VirtualMode
from memlab.vgpu.names import CARD
from memlab.vgpu.patches import PATCHES
from memlab.vgpu.ranks import check_ranks, process_group
from memlab.vgpu.refusals import bare_number, chosen, depends_on_data, guessed, scripted
from memlab.vgpu.repeats import Repeats
from memlab.vgpu.restoring import Belongings
from memlab.vgpu.switches import switches
from memlab.vgpu.time.clock import Clock
from memlab.vgpu.tracker import VirtualTracker
from memlab.vgpu.values import EVENLY
from memlab.vgpu.versions import unchecked


class VirtualGpu(Device):
    """A card that is not there. See :class:`memlab.devices.Device` for what it answers.

    Args:
        name: of the card, as in ``"T4"``.
        world_size: how many ranks train together, each on such a card; None for a loop without a process group.
        global_rank: which of them this one is.
        is_endless: whether it has room for everything: for what a loop wants, where that is more than it gets.
        keeps_history: whether what its allocator does in a run is written down.
        guesses: numbers that only a real card knows, by the line that asks for one, ``{"train.py:12": 1.5}``. Others
            are guessed: a float is 1, an integer 0.
        chosen: the share (0 to 1) that is chosen where such numbers decide how much is, or ``"evenly"``: what is picked
            from several, as an expert is for a token, is spread evenly over them. None where nobody knows: then nothing
            is chosen, and the prediction is a lower bound.
        on_compiling: called before a run compiles anything, which may take a while.

    Raises:
        BadValue: for an unknown card, a rank that cannot be, or a share that is none.
        NoVirtualGpu: where this PyTorch cannot carry it.
    """

    source = "predicted"
    computes = False
    device = CARD

    def __init__(
        self,
        name: str,
        *,
        world_size: int | None = None,
        global_rank: int = 0,
        is_endless: bool = False,
        keeps_history: bool = False,
        guesses: Mapping[str, float] | None = None,
        chosen: float | str | None = None,
        on_compiling: Callable[[], object] = lambda: None,
    ):
        check_ranks(world_size, global_rank)
        if not (chosen in (None, EVENLY) or (isinstance(chosen, int | float) and 0 <= chosen <= 1)):
            raise BadValue(f"chosen={chosen!r} is no share: give a number from 0 (nothing) to 1 (all), or {EVENLY!r}.")
        self._ranks = world_size
        self.rank, self.world_size = global_rank, world_size or 1
        self.takes_turns = world_size is not None  # a process has one process group at a time
        self.card = find_card(name).endless if is_endless else find_card(name)
        self._keeps_history = keeps_history
        self._given = dict(guesses or {})
        self._chosen = chosen
        self._on_compiling = on_compiling
        self._history: History | None = None
        self._clock: Clock | None = None
        register()
        triton_kernels.provide()
        self._prediction = self._new()
        self._mode = VirtualMode(self._prediction)  # one for all runs: what it has learned about PyTorch stays

    @property
    def name(self) -> str:
        """The name that pictures carry."""
        return self.card.name

    @property
    def room(self) -> int | None:
        """Bytes that PyTorch can have of the card; None where it is endless."""
        return None if self.card.is_endless else self.card.room

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what the prediction had to leave out, and about what it takes for granted."""
        told = self._clock.communication() if self._clock else ""
        memory = self._prediction.memory
        remarks = [remark.sentence for remark in memory.remarks]
        left_out = (memory.unfollowed, *self._prediction.notes, *remarks, *self._prediction.on_given)
        sizes = chosen(self._prediction.sized, self._prediction.spread, self._chosen)
        assumed = [*sizes, told, self._first_run(), self.card.assumption, unchecked()]
        return tuple(filter(None, (*left_out, *assumed)))

    def _first_run(self) -> str:
        """A sentence about what compiling takes beside, on a machine that has not done it before; or ``""``."""
        taken = self._prediction.timing
        if taken <= self._prediction.memory.peak_allocated:
            return ""
        return (
            f"The first run on a machine takes about {format_bytes(taken)} for a moment: PyTorch's compiler times "
            "products with padding and without, until it has cached its choice."
        )

    @property
    def guesses(self) -> tuple[str, ...]:
        """Lines of the loop that asked for a number which a prediction does not have."""
        return tuple(self._prediction.guessed)

    @property
    def is_lower_bound(self) -> bool:
        """True if bytes are left out, or results have sizes that only a real card knows, and no share was given."""
        is_sized = bool(self._prediction.sized) and self._chosen in (None, EVENLY)
        return is_sized or any(remark.leaves_out for remark in self._prediction.memory.remarks)

    @property
    def host_peak(self) -> int:
        """Bytes that tensors took of the host's memory at most."""
        return self._prediction.host.peak

    def tracker(self, budget: int | None) -> VirtualTracker:
        """The tracker of a new run on this card, which starts empty; the card's allocator keeps the budget."""
        self._prediction = self._mode.prediction = self._new()
        tracker = VirtualTracker(self._prediction, self._mode)
        Repeats(tracker, self._prediction)
        tracker.on_compiling.append(self._on_compiling)
        self._history = tracker.keep_history() if self._keeps_history else None
        self._clock = tracker.clock
        return tracker

    def tracks_every_step(self, budget: int | None) -> bool:
        """Always: only the tracker sees what is allocated."""
        return True

    @contextmanager
    def occupied(self, *belongings: Any) -> Iterator[None]:
        """The context of a whole run: afterwards PyTorch and all that ``belongings`` lead to are as they were."""
        with process_group(self._ranks, self.rank), PATCHES, self._prediction.undo:
            self._prediction.undo.callback(self._prediction.end)
            self._prediction.undo.callback(Belongings(*belongings).restore)
            keep_apart(self._prediction.undo)
            self._prediction.undo.callback(triton_kernels.take_away)
            yield

    @contextmanager
    def running(self) -> Iterator[None]:
        """The context in which ``train`` runs: tensors on the card can be made and used.

        From numbers, as in ``torch.tensor(1, device="cuda")`` or ``x[[0, 2]]``, they are made on the host first, where
        a switch of the thread says so.
        """
        before = lifts_on_the_host()
        lift_on_the_host(True)
        try:
            with self._mode:
                yield
        except Exception as error:
            if "TorchScript interpreter" in message(error):
                raise scripted(error) from error
            if "Cannot access accelerator device" in message(error):  # device=0, in PyTorch without CUDA
                raise bare_number(error) from error
            if not isinstance(error, MemlabError) and not is_out_of_memory(error):
                self._explain(error)
            raise
        finally:
            lift_on_the_host(before)

    def _explain(self, error: Exception) -> None:
        """Add to an error of the loop the guesses that it may come of.

        Raises:
            Unpredictable: something would have been chosen, and nothing was.
        """
        asked, sized = self._prediction.asked, self._prediction.sized
        if chosen := [line for line in asked if line in sized]:
            raise depends_on_data(sized[chosen[-1]], chosen[-1], error) from error
        if asked:
            error.add_note(guessed(asked))

    def _new(self) -> Prediction:
        memory = VirtualMemory(self.card)
        return Prediction(
            self.card, memory, world_size=self.world_size, switches=switches(), given=self._given, chosen=self._chosen
        )

    def start_step(self) -> None:
        """The lines that ask for unknown numbers are counted for each step."""
        self._prediction.start_step()

    def save_snapshot(self, path: str | Path) -> None:
        """Write what the allocator did in the last run, whose history must have been kept.

        Raises:
            NotWritten: it cannot be written.
        """
        assert self._history is not None
        write_atomically(path, self._history.pickled())

    def peak_allocated(self) -> None:
        """None: the tracker knows."""

    def peak_reserved(self) -> int:
        """The most bytes held from the driver so far."""
        return self._prediction.memory.peak_reserved

    def set_budget(self, budget: int | None) -> None:
        """Let the allocator hold at most ``budget`` bytes; None gives the whole card back."""
        if budget is not None:
            self._prediction.memory.allow(budget)

    def release(self) -> None:
        """Nothing is left behind."""
