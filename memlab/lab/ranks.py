"""Ranks on a panel: choices that are no settings of ``train``.

``world_size`` is how many processes train together, ``global_rank`` which of them is on show: the first or the last.
Without that choice it is the first. A run measures all of them, and shows the same one, beside its prediction.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from memlab.cluster import ClusterRun
from memlab.cluster.size import backend
from memlab.devices import open_device
from memlab.errors import BadValue
from memlab.lab.choices import Choice, Doubling, OneOf
from memlab.lab.jobs import Stopping
from memlab.protocol import Train, check_world_size
from memlab.run import Run
from memlab.trace import Step, Trace

WORLD_SIZE, GLOBAL_RANK = "world_size", "global_rank"
NAMES = {WORLD_SIZE, GLOBAL_RANK}
_ENDS = "first", "last"


def make_choice_of_ranks(name: str, values: Any) -> Choice:
    """Of ``world_size`` a menu of the numbers in a list; ``(1, 1024)`` makes a slider over the powers of two between.

    Raises:
        BadValue: for anything else, and for a ``global_rank`` that is not "first" or "last".
    """
    if name == GLOBAL_RANK:
        if isinstance(values, list) and values and all(value in _ENDS for value in values):
            return OneOf(GLOBAL_RANK, values)
        raise BadValue(f'global_rank={values!r} makes no control: give ["first", "last"].')
    if isinstance(values, tuple) and len(values) == 2 and all(isinstance(end, int) for end in values):
        low, high = values
        options = [1 << power for power in range(high.bit_length()) if low <= 1 << power <= high]
        if len(options) > 1:
            return Doubling(WORLD_SIZE, options)
    elif isinstance(values, list) and values:
        return OneOf(WORLD_SIZE, [check_world_size(value) for value in values])
    raise BadValue(f"world_size={values!r} makes no control: give (1, 1024) for a slider or [1, 2, 4] for a menu.")


def of_train(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings on a panel that are arguments of ``train``: all but those of ranks."""
    return {name: value for name, value in settings.items() if name not in NAMES}


def of_ranks(settings: Mapping[str, Any]) -> tuple[int | None, int]:
    """Return how many ranks the settings on a panel say, and which one is on show, as ``predict`` takes both."""
    world_size = settings.get(WORLD_SIZE)
    is_last = settings.get(GLOBAL_RANK) == _ENDS[-1]
    return world_size, (world_size or 1) - 1 if is_last else 0


def settings_of(trace: Trace) -> dict[str, Any]:
    """Return the settings of a run as a panel has them. A rank between the first and the last has no name there."""
    ends = dict(zip((trace.world_size - 1, 0), reversed(_ENDS), strict=True))
    end = {GLOBAL_RANK: ends[trace.rank]} if trace.rank in ends else {}
    return {**trace.settings, WORLD_SIZE: trace.world_size, **end}


def check_run(settings: Mapping[str, Any], device: str | None) -> None:
    """Refuse what this machine cannot run, before anything is predicted of it.

    Raises:
        BadValue: the machine has not enough GPUs, or cores, for so many ranks.
    """
    if WORLD_SIZE in settings:
        backend(settings[WORLD_SIZE], device)


def open_run(train: Train, settings: Mapping[str, Any], device: str | None, **options: Any) -> Run | ClusterRun:
    """A run that measures: in this process or, where there is a choice of ranks, in as many as it says.

    Raises:
        BadTrain, BadValue: as :class:`memlab.run.Run` and :class:`memlab.cluster.ClusterRun`.
    """
    if WORLD_SIZE in settings:
        options |= {"world_size": settings[WORLD_SIZE], "shown": of_ranks(settings)[1]}
        return ClusterRun(train, of_train(settings), device=device, **options)
    return Run(train, settings, open_device(device), **options)


def open_prediction(
    train: Train,
    settings: Mapping[str, Any],
    gpu: str,
    *,
    is_endless: bool = False,
    on_compiling: Callable[[], object] = lambda: None,
    **options: Any,
) -> Run:
    """A run that predicts; where there is a choice of ranks, the first or the last of them.

    Args:
        is_endless: whether the card has room for everything.
        on_compiling: called before it compiles anything, which may take a while.

    Raises:
        BadTrain, BadValue, NoVirtualGpu: as :func:`memlab.run.predict`.
    """
    from memlab.vgpu.gpu import VirtualGpu  # here, because a PyTorch that cannot carry it can still measure

    world_size, rank = of_ranks(settings)
    device = VirtualGpu(gpu, world_size=world_size, global_rank=rank, is_endless=is_endless, on_compiling=on_compiling)
    return Run(train, of_train(settings), device, **options)


def steps_of_ranks(run: Run | ClusterRun) -> Sequence[Sequence[Step]]:
    """The steps of each rank, where there are several."""
    return run.steps_of_ranks if isinstance(run, ClusterRun) and run.world_size > 1 else ()


def steps_until(stopping: Stopping, run: Run | ClusterRun) -> Iterator[Step]:
    """The steps of a run, up to the one in which it is asked to stop."""
    steps = iter(run)
    while not stopping.is_set():
        with stopping.breakable():
            step = next(steps, None)
        if step is None:
            return
        yield step
