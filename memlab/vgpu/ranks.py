"""One rank of many: a process group whose other ranks are not there, and what the card's collectives give.

PyTorch's own ``fake`` process group answers every collective at once and moves nothing: on a card without numbers there
is nothing to move.
"""

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import distributed
from torch.distributed import distributed_c10d

from memlab.errors import BadValue
from memlab.patching import Change, Patches, where
from memlab.protocol import check_world_size, is_whole
from memlab.vgpu.current_prediction import current, is_predicting
from memlab.vgpu.deepspeed import deepspeed_on_the_card
from memlab.vgpu.facade import CARDS_OF_A_MACHINE
from memlab.vgpu.internals import (
    fake_store,
    finished_work,
    forget_meshes,
    plans_of_all_ranks,
    stages_that_ask_nobody,
    sync_batch_norm,
)
from memlab.vgpu.object_collectives import object_collectives

SHAPES = (
    "A stage of a pipeline asks its neighbours for the shapes that it is sent, and in a prediction they are not there: "
    "give PipelineStage input_args and output_args, tensors of a micro-batch on 'meta'."
)
_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_MASTER = ("127.0.0.1", "29500")  # torchrun's own: nobody is asked there


def check_ranks(world_size: int | None, global_rank: int) -> None:
    """Raise an error unless the rank can exist. A ``world_size`` of None is a loop that trains alone.

    Raises:
        BadValue: if not.
    """
    ranks = 1 if world_size is None else check_world_size(world_size)
    if not is_whole(global_rank) or not 0 <= global_rank < ranks:
        raise BadValue(f"global_rank={global_rank!r} is not a rank of {ranks}: give one from 0 to {ranks - 1}.")


@contextmanager
def process_group(world_size: int | None, rank: int) -> Iterator[None]:
    """A context in which this process is one rank of so many; with None, one that trains alone.

    Raises:
        BadValue: the process is one of a group already.
    """
    if world_size is None:
        yield
        return
    if distributed.is_initialized():
        raise BadValue(
            f"world_size={world_size} needs a process group of its own, and this process has one of "
            f"{distributed.get_world_size()} ranks: call torch.distributed.destroy_process_group() before."
        )
    before = {name: os.environ.get(name) for name in _VARIABLES}
    told = sys.excepthook  # a group puts its rank before what this process says when it fails
    local_world_size = min(world_size, CARDS_OF_A_MACHINE)
    numbers = (rank, rank % local_world_size, world_size, local_world_size, *_MASTER)
    os.environ.update(zip(_VARIABLES, map(str, numbers), strict=True))
    distributed.init_process_group("fake", store=fake_store(), rank=rank, world_size=world_size)
    try:
        with _ON_THE_CARD, deepspeed_on_the_card():
            yield
    finally:
        forget_meshes()
        distributed.destroy_process_group()
        sys.excepthook = told
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def _changes() -> Iterator[Change]:
    # Here, because they take half a second.
    with warnings.catch_warnings():  # one scripts functions of its own as it is imported, which no prediction may do
        warnings.simplefilter("ignore", DeprecationWarning)
        for name in ("tensor", "optim"):
            importlib.import_module(f"torch.distributed.{name}")

    for owner, name, method in stages_that_ask_nobody(SHAPES):
        yield owner, name, where(_is_alone, method, getattr(owner, name))
    for name, function in object_collectives():
        function = where(_is_alone, function, getattr(distributed, name))
        yield from ((owner, name, function) for owner in (distributed, distributed_c10d))
    forward = sync_batch_norm.forward
    everywhere = where(_is_predicted_rank, _with_samples_everywhere(forward), forward)
    yield sync_batch_norm, "forward", staticmethod(everywhere)
    # Before a checkpoint is written, its pieces are looked at: those of the other ranks are taken to be there.
    for owner, name in plans_of_all_ranks():
        yield owner, name, where(_is_alone, lambda *plans: [], getattr(owner, name))


def _with_samples_everywhere(forward: Callable[..., Any]) -> Callable[..., Any]:
    """``SyncBatchNorm`` leaves out ranks whose batch is empty, by numbers that are on the card: none is left out."""

    def called(*args: Any) -> Any:
        prediction = current()
        before = (prediction.chosen, dict(prediction.sized), dict(prediction.guessed), prediction.asked.copy())
        prediction.chosen = 1.0
        try:
            return forward(*args)
        finally:
            prediction.chosen, prediction.sized, prediction.guessed, prediction.asked = before

    return called


def _is_predicted_rank() -> bool:
    return is_predicting() and _is_alone()


def _is_alone() -> bool:
    """Return True where the other ranks of this process's group are not there."""
    return distributed.is_initialized() and distributed.get_backend() == "fake"


_ON_THE_CARD = Patches(_changes)


def with_results(out: Any) -> Any:
    """Return a collective's tensors with work that is already done, for those who wait for it (DDP's reducer)."""
    if not isinstance(out, tuple):
        return out
    tensors, _ = out
    return tensors, finished_work(tensors if isinstance(tensors, list) else [tensors])
