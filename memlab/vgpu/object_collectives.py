"""Collectives of Python objects where the other ranks are not there.

PyTorch sends an object as the bytes of its pickle, and a card without numbers has none to give back. So each rank gets
a copy: what the others send is taken to be like what this one sends. Pickles, which are on a real card for a moment,
are not counted.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from torch import distributed

from memlab.errors import Unpredictable


def object_collectives() -> Iterator[tuple[str, Callable[..., None]]]:
    """Each function's name in ``torch.distributed``, and what stands in its place. Signatures are PyTorch's."""
    yield "all_gather_object", _all_gather
    yield "gather_object", _gather
    yield "broadcast_object_list", _broadcast
    yield "scatter_object_list", _scatter
    yield "send_object_list", _send
    yield "recv_object_list", _receive


def _all_gather(object_list: list[Any], obj: Any, group: Any = None) -> None:
    object_list[:] = [deepcopy(obj) for _ in range(distributed.get_world_size(group))]


def _gather(
    obj: Any, object_gather_list: Any = None, dst: int | None = None, group: Any = None, group_dst: int | None = None
) -> None:
    if _is_this_rank(dst, group_dst, group):
        _all_gather(object_gather_list, obj, group)


def _broadcast(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None
) -> None:
    if not _is_this_rank(src, group_src, group):
        raise _nobody_sends("broadcast_object_list")


def _scatter(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    if not _is_this_rank(src, group_src, group) or scatter_object_input_list is None:
        raise _nobody_sends("scatter_object_list")
    scatter_object_output_list[0] = deepcopy(scatter_object_input_list[distributed.get_rank(group)])


def _send(object_list: list[Any], *args: Any, **kwargs: Any) -> None:
    """Nobody receives them."""


def _receive(object_list: list[Any], *args: Any, **kwargs: Any) -> None:
    raise _nobody_sends("recv_object_list")


def _is_this_rank(rank: int | None, group_rank: int | None, group: Any) -> bool:
    """Return True if this process gathers or sends; its number is one of all ranks, or one of the group's."""
    if rank is None and group_rank is not None:
        return distributed.get_rank(group) == group_rank
    return distributed.get_rank() == (rank or 0)


def _nobody_sends(function: str) -> Unpredictable:
    return Unpredictable(
        f"Rank {distributed.get_rank()} waits in {function} for another rank's objects, and in a prediction the other "
        "ranks are not there: predict the rank that sends them (global_rank=0, as a rule)."
    )
