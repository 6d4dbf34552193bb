"""Plans for a script that runs out of memory: its own options and changes of its source, each tried in a prediction."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from memlab.categories import Category
from memlab.errors import MemlabError
from memlab.script.child import Answer, ask
from memlab.script.command import Command
from memlab.script.options import Option, is_in_half, leaner
from memlab.text import listed
from memlab.units import format_bytes

# Changes of the source that :mod:`memlab.script.edits` makes.
OFFLOAD = "offload"
EDITS = ("autocast", "checkpointing", "compile", "fused", "adam8bit", OFFLOAD)
NEEDS = {"adam8bit": "bitsandbytes"}  # packages that an edit cannot be tried without
EVALUATING = ("autocast",)  # those that change what an evaluation takes, too
NO_GRAD = "torch.no_grad()"  # around what evaluates
ACCUMULATE = "accumulate"  # the gradients of two batches: of more, the second has all in memory that the others have
EXPANDABLE = "expandable segments"  # where all that is allocated has room, and the blocks that hold it have not
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")  # a variable of the environment, and its value
STEPS = 2  # the second has all that stays; a third tells what stays of each
MOST_OPTIONS = 4
MOST_TOLD = 3
WORTH_HAVING = 0.99  # of the peak without it
WHAT_IS_LEFT = (
    "Other ways: train fewer weights, as LoRA does (notebook 09), keep them in 16 or 4 bits (notebooks 05 and 21), or "
    "share them among cards with FSDP (notebook 18)."
)
MEND_FIRST = "Mend that first: as long as it is there, no other change is tried."


@dataclass(frozen=True)
class Move:
    """One change: of an option's value, or of the source.

    Attributes:
        option: the one that gets another value, with the one that it has; None for a change of the source.
        value: the other one.
        edit: of ``EDITS``, or ``EXPANDABLE``, or ``NO_GRAD``.
    """

    option: Option | None = None
    value: Any = None
    edit: str = ""

    @property
    def name(self) -> str:
        """The move in a few words."""
        if self.option is None:
            return self.edit
        if isinstance(self.option.value, bool):
            return self.option.word(self.value) or self.option.flag
        return f"{self.option.flag} {self.option.value} -> {self.value}"

    @property
    def is_smaller_batch(self) -> bool:
        """True if it makes a batch smaller, of the training or of the evaluation."""
        return self.option is not None and self.option.is_of_batch and isinstance(self.value, int)

    @property
    def at_first(self) -> "Move":
        """The same; of a smaller batch with the largest that it may be: beside other moves that may do."""
        return replace(self, value=self.option.value // 2) if self.option and self.is_smaller_batch else self

    @property
    def batches(self) -> int:
        """Number of smaller batches that replace one of the training's; 1 if the move does not change their size."""
        changes = self.option is not None and self.is_smaller_batch and not self.option.is_of_evaluation
        return self.option.value // self.value if self.option and changes else 1

    @property
    def keeps_the_result(self) -> bool:
        """True if the same model is trained on the same numbers, but for rounding."""
        return self.option is None or self.is_smaller_batch or isinstance(self.option.value, bool)


@dataclass(frozen=True)
class Attempt:
    """Some moves together, and what the script then takes.

    Attributes:
        moves: what was changed.
        lines: the changes of the source as they would be written, with their places.
        peak: bytes allocated at most.
        reserved: bytes reserved at most.
        seconds: an estimate of the time for as many samples as a step has without them; None if there is none.
        answer: that of the prediction.
    """

    moves: tuple[Move, ...]
    lines: tuple[str, ...]
    peak: int
    reserved: int
    seconds: float | None
    answer: Answer

    @property
    def keeps_the_result(self) -> bool:
        """True if all the moves do."""
        return all(move.keeps_the_result for move in self.moves)

    @property
    def name(self) -> str:
        """Its moves in a few words."""
        return listed([move.name for move in self.moves])

    @property
    def is_lower_bound(self) -> bool:
        """True if it may need more than was predicted."""
        return self.answer.trace.is_lower_bound

    @property
    def with_bytes(self) -> str:
        """Its name, and what would be reserved."""
        return f"{self.name} ({self.answer.trace.text_of(self.reserved)} reserved)"

    @property
    def shrinks_the_batch(self) -> bool:
        """True if it processes a batch in several parts."""
        return any(move.batches > 1 for move in self.moves)

    @property
    def is_slow(self) -> bool:
        """True if other changes together may be faster: it offloads, or processes a batch in several parts."""
        return self.shrinks_the_batch or any(move.edit == OFFLOAD for move in self.moves)

    def told(self, whole: "Attempt") -> Iterator[str]:
        """The lines that tell it, beside what the script takes as it is."""
        time = ""
        if self.seconds and whole.seconds:
            time = f", about {self.seconds / whole.seconds:.2g} times as long"
        other = "" if self.keeps_the_result else "; this changes what is trained"
        peak = self.answer.trace.text_of(self.peak)
        yield f"- {self.name}: {peak}, {format_bytes(self.reserved)} reserved{time}{other}"
        yield from (f"    {line}" for line in self.lines)


class Plan:
    """Tries changes of a script that has run out of memory.

    Args:
        predicted: asks for a prediction of a command with changes of its source and so many steps, with all the
            memory that it wants.
        command: the script.
        options: those that it has.
        room: bytes that may be reserved.
        tell: called with a sentence about what is being tried.
        evaluates: whether memory ran out in an evaluation, which keeps nothing for a backward.
        known_fault: what was said of the script already, see :class:`memlab.script.child.Answer`.
    """

    def __init__(
        self,
        predicted: Callable[[Command, Sequence[str], int], Answer],
        command: Command,
        options: Sequence[Option],
        room: int,
        tell: Callable[[str], None],
        evaluates: bool = False,
        known_fault: str = "",
    ):
        self._known_fault = known_fault
        self._predicted = predicted
        self._command = command
        has_autocast = is_in_half(options)
        edits = [name for name in (EVALUATING if evaluates else EDITS) if not (name == "autocast" and has_autocast)]
        self._lacking = [name for name in edits if name in NEEDS and find_spec(NEEDS[name]) is None]
        self._moves = [Move(edit=name) for name in edits if name not in self._lacking]
        self._has_batch = any(option.is_of_batch for option in options)
        values = leaner(list(options), evaluates=evaluates)
        self._moves += [Move(option, value) for option, value in values[:MOST_OPTIONS]]
        accumulated = (option for option in options if re.search("accum", option.name) and type(option.value) is int)
        self._accumulated = next(accumulated, None)
        self._room = room
        self._tell = tell
        self._is_interrupted = False
        self._steps = STEPS + 1  # to see what each leaves
        self._why: dict[str, str] = {}  # it does not run with a change, in a sentence
        self._always: list[str] = []  # edits without which nothing else is tried

    def lines(self) -> Iterator[str]:
        """Yield what the script needs, and with what it fits, the fastest first; then what was tried besides.

        Raises:
            KeyboardInterrupt: Ctrl-C has ended it, after what was found until then.
        """
        whole = self._attempt()
        assert whole is not None  # it has run before
        if whole.answer.fault:
            if whole.answer.fault != self._known_fault:
                yield whole.answer.fault
            mended = self._attempt(Move(edit=NO_GRAD)) if whole.answer.lacks_no_grad else None
            if mended is None:
                yield MEND_FIRST
                return
            yield f"With it: {format_bytes(mended.peak)}, {format_bytes(mended.reserved)} reserved."
            if self._fits(mended):
                return
            yield "That does not fit yet, so what follows is tried with it."
            whole, self._always = mended, [NO_GRAD]
        else:
            yield f"{whole.answer.trace.with_room_enough(self._room)}."
        if not whole.answer.varies:
            self._steps = STEPS
        moves = [*[Move(edit=EXPANDABLE)] * (whole.peak <= self._room < whole.reserved), *self._moves]
        found = self._each(moves)
        if self._is_interrupted and not found:
            yield "Interrupted before a change was tried to its end."
            raise KeyboardInterrupt
        singles = [
            one for one in found.values() if one and (one.peak < WORTH_HAVING * whole.peak or self._frees(one, whole))
        ]
        told = self._ways(singles)
        if fits := any(map(self._fits, told)):
            it_fits = "It probably fits" if any(one.is_lower_bound for one in told) else "It fits"
            yield f"{it_fits} with one of these, the fastest first (by estimates, for the same number of samples):"
        else:
            yield f"Nothing that was tried makes it fit.{' What saves the most:' * bool(told)}"
        for one in told:
            yield from one.told(whole)
        if fits and whole.answer.varies:
            yield f"That is with the batches of the first {self._steps} steps, which differ: the largest decides."
        if more := [one for one in singles if self._fits(one) and one not in told]:
            yield f"It fits as well with one of {listed([one.with_bytes for one in more])}."
        if short := [one for one in singles if not self._fits(one) and one not in told]:
            yield f"What helps, too, and does not suffice alone: {listed([one.with_bytes for one in short])}."
        if not fits:
            yield WHAT_IS_LEFT
        if not fits and not self._has_batch:
            yield (
                "Not tried: a smaller batch. No option, constant or DataLoader of the script names one: give it an "
                "option, and predict again."
            )
        for name in self._lacking if whole.answer.trace.by_category.get(Category.OPTIMIZER_STATE) else ():
            yield f"Not tried: {name}, which needs {NEEDS[name]}: install it, and predict again."
        if useless := [move.name for move, one in found.items() if one not in singles]:
            yield f"Tried, and of no use here: {listed(useless)}."
        if self._is_interrupted:
            rest = [move.name for move in moves if move not in found]
            yield f"Interrupted, so not tried: {listed([*rest, 'several changes together'])}."
            raise KeyboardInterrupt

    def _each(self, moves: Sequence[Move]) -> dict[Move, Attempt | None]:
        """Try each of the moves alone; those that were not when Ctrl-C came are left out."""
        found: dict[Move, Attempt | None] = {}
        pool = ThreadPoolExecutor(os.cpu_count())
        futures = {pool.submit(self._beside, (), move): move for move in moves}
        try:
            for future in as_completed(futures):
                move, one = futures[future], future.result()
                found[move] = one
                self._tell(f"{len(found)} of {len(moves)} tried: {self._outcome(move, one)}")
        except KeyboardInterrupt:
            self._is_interrupted = True
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # what was found is told before the last process is gone
        return {move: found[move] for move in moves if move in found}

    def _outcome(self, move: Move, found: Attempt | None) -> str:
        if found is None:
            return f"with {move.name} it does not run ({self._why.get(move.name, 'it was ended')})"
        fits = "fits" if self._fits(found) else "does not fit"
        return f"{found.name}, {format_bytes(found.reserved)} reserved, {fits}"

    def _ways(self, singles: Sequence[Attempt]) -> list[Attempt]:
        """Those that fit, the fastest first; where none does, those that save the most."""
        fitting = [one for one in singles if self._fits(one)]
        if not any(one.keeps_the_result and not one.is_slow for one in fitting) and not self._is_interrupted:
            try:
                fitting += filter(None, [self._together(singles)])
            except KeyboardInterrupt:
                self._is_interrupted = True
        fitting.sort(key=lambda one: (not one.keeps_the_result, one.is_lower_bound, one.seconds or 0))
        return (fitting or sorted(singles, key=lambda one: one.peak))[:MOST_TOLD]

    def _fits(self, attempt: Attempt) -> bool:
        return attempt.reserved <= self._room

    def _frees(self, attempt: Attempt, whole: Attempt) -> bool:
        """True if it makes the script fit, perhaps without taking less: fewer of the bytes reserved lie idle."""
        return self._fits(attempt) and not self._fits(whole)

    def _beside(self, moves: tuple[Move, ...], move: Move) -> Attempt | None:
        """One move more; of a smaller batch the largest that fits, or the smallest that there is."""
        found = self._attempt(*moves, move)
        if found and move.is_smaller_batch and move.value > 1 and not self._fits(found):
            return self._beside(moves, replace(move, value=move.value // 2))
        return found

    def _together(self, singles: Sequence[Attempt]) -> Attempt | None:
        """As few moves together as make it fit, none of which changes what is trained.

        Those that save the most come first, then smaller batches, and last offloading, which takes the longest.
        """
        useful = sorted((one for one in singles if one.keeps_the_result), key=lambda one: one.peak)
        useful.sort(key=lambda one: (OFFLOAD in one.name, one.shrinks_the_batch))
        moves: tuple[Move, ...] = ()
        for (move,) in (one.moves for one in useful):
            if not moves:
                moves = (move,)
            elif found := self._beside(moves, move.at_first):
                if self._fits(found):
                    return self._without_the_rest(found)
                moves = found.moves
        return None

    def _without_the_rest(self, found: Attempt) -> Attempt:
        """The same without a move that it fits without as well, unless that is slower, as without autocast."""
        for move in found.moves[:-1]:
            rest = tuple(one for one in found.moves if one is not move)
            fewer = self._attempt(*rest) if len(rest) > 1 else None
            if fewer and self._fits(fewer) and (fewer.seconds or 0) <= (found.seconds or 0):
                return self._without_the_rest(fewer)
        return found

    def _attempt(self, *moves: Move) -> Attempt | None:
        """Predict the script with these changes; None where it does not run so."""
        names, batches = [move.name for move in moves], max((move.batches for move in moves), default=1)
        self._tell(f"trying {listed(names)}" if names else "predicting it with room enough, to compare")
        edits = self._always + [move.edit for move in moves if move.edit and move.edit != EXPANDABLE]
        options = [(move.option, move.value) for move in moves if move.option]
        command = self._command
        for option, value in options:
            command = command.with_option(option, value)
        if expands := EXPANDABLE in names:
            command = command.within(command.environment | dict([ALLOCATOR]))
        accumulates = batches > 1 and not (self._accumulated and self._accumulated.value > 1)
        try:
            answer = self._predicted(command, [*edits, *[ACCUMULATE] * accumulates], self._steps)
        except MemlabError as error:
            self._why[listed(names)] = str(error).rstrip(".")
            return None
        trace = answer.trace
        assert trace.peak_reserved is not None
        seconds = trace.likely_seconds and trace.likely_seconds * batches / (1 + accumulates)
        variable = [f"{'='.join(ALLOCATOR)} before it starts"] * expands
        written = [option.told(value) for option, value in options if option.place]
        lines = (*written, *answer.edits, *variable, *self._accumulating(batches))
        return Attempt(moves, lines, trace.peak_allocated, trace.peak_reserved, seconds, answer)

    def _accumulating(self, batches: int) -> Iterator[str]:
        if batches > 1 and self._accumulated:
            yield f"{self._accumulated.told(self._accumulated.value * batches)}, for the same result"
        elif batches > 1:
            yield f"loss / {batches}, and optimizer.step() and zero_grad() each {batches} batches, for the same result"


def plan(
    command: Command,
    answer: Answer,
    *,
    gpu: str,
    ranks: tuple[int | None, int],
    until: str | None,
    guesses: Mapping[str, float],
    chosen: float | str | None,
    room: int,
    tell: Callable[[str], None],
) -> Iterator[str]:
    """For a script that has run out of memory: lines that say what it needs, and with which changes it fits.

    Args:
        command: the script.
        answer: what a prediction of it has said.
        gpu: the card.
        ranks: how many there are, None for a script without a process group, and which one is predicted.
        until, guesses, chosen: as for :func:`memlab.script.child.ask`.
        room: bytes that may be reserved.
        tell: called with a sentence about what is being tried.
    """

    def predicted(changed: Command, edits: Sequence[str], steps: int) -> Answer:
        options: dict[str, Any] = {"gpu": gpu, "ranks": ranks, "steps": steps, "until": until}
        options |= {"guesses": guesses, "chosen": chosen}
        return ask(changed, **options, edits=edits, is_endless=True, is_quiet=True)

    if answer.fault and not answer.lacks_no_grad:  # said with the prediction
        return iter([MEND_FIRST])
    return Plan(predicted, command, answer.options, room, tell, answer.evaluates, answer.fault).lines()
