"""The first of several ranks on a real card, where the others are not there: its loop runs, and nothing is sent."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from memlab.tracking.collectives import COLLECTIVES
from memlab.tracking.internals import TorchDispatchMode
from memlab.vgpu.ranks import process_group, with_results


@contextmanager
def alone(world_size: int | None) -> Iterator[None]:
    """A context in which this process is the first of so many ranks; with None, one that trains without others.

    Raises:
        BadValue: the process is one of a group already.
    """
    answered = nullcontext() if world_size is None else _Answered()  # type: ignore[no-untyped-call]  # of PyTorch
    with process_group(world_size, 0), answered:
        yield


class _Answered(TorchDispatchMode):
    """Gives what collectives answer to who waits for it, as DDP does: the process group alone answers nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **kwargs or {})
        return with_results(out) if func.overloadpacket in COLLECTIVES else out
