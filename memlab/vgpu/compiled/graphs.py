"""CUDA graphs of compiled code (``mode="reduce-overhead"``): PyTorch's own trees of graphs, on the virtual card.

What is warmed up, recorded and replayed, what is copied, what lives where and when the pool goes back to an earlier
state is decided by ``torch/_inductor/cudagraph_trees.py`` itself. It sees a ``torch`` in which what it asks of CUDA is
answered here: capturing takes blocks from a private pool of the simulated allocator, a replay takes none, and what a
replay gives stands at addresses that the pool holds.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import torch

from memlab.allocator import Block, Checkpoint, checkpoint, restore
from memlab.patching import Change, Patches, where
from memlab.vgpu.arguments import Arguments
from memlab.vgpu.compiled import internals
from memlab.vgpu.current_prediction import Prediction, current, is_predicting
from memlab.vgpu.internals import disable_modes, storage_id, torch_c
from memlab.vgpu.names import CARD
from memlab.vgpu.results import make_fake
from memlab.vgpu.time.operator_work import Work
from memlab.vgpu.versions import TORCH

Pool = tuple[int, int]
_ADDRESSES = 1 << 46  # of the card's memory: away from the numbers of storages that are nowhere


class Graphs:
    """The graphs of one prediction.

    Args:
        prediction: to whose ``undo`` they belong.
        tracker: follows the storages of the card.
    """

    def __init__(self, prediction: Prediction, tracker: Any):
        self._prediction = prediction
        self._tracker = tracker
        self._blocks = prediction.memory.blocks
        self._users: Counter[Pool] = Counter()  # graphs and contexts that use each pool
        self._pools = 0
        self.made: Graph | None = None  # while it is captured
        self.of_trees: dict[str, Any] = {  # what cudagraph_trees.py keeps for a thread
            "tree_manager_containers": {},
            "tree_manager_locks": defaultdict(threading.Lock),
        }
        self.capturing = type("graph", (internals.capturing_context,), {})  # with a default stream of its own
        prediction.undo.enter_context(_PATCHES)
        prediction.undo.callback(self._forget)

    def _forget(self) -> None:
        for container in self.of_trees["tree_manager_containers"].values():
            if container.tree_manager is not None:
                container.tree_manager.shutdown()
        self.of_trees["tree_manager_containers"].clear()
        readers = internals.cudagraph_trees.local.tree_manager_containers.values()
        if not any(container.tree_manager for container in readers):  # nobody else in this thread has graphs
            internals.expect_cached_tensors(False)
            internals.cudagraph_trees.MarkStepBox.mark_step_counter = 0

    # Pools

    def new_pool(self) -> Pool:
        """A private pool, which nobody uses yet."""
        self._pools += 1
        return 0, self._pools

    def begin(self, device: int, pool: Pool) -> None:
        """Blocks come from this pool from now on."""
        self._users[pool] += 1
        self._blocks.graphs = pool[1]

    def end(self, device: int, pool: Pool) -> None:
        """They come from where all do."""
        self._blocks.graphs = 0

    def release(self, device: int, pool: Pool) -> None:
        """One user less of a pool."""
        self._users[pool] -= 1
        if not self._users[pool]:
            self._blocks.let_go(pool[1])

    def clear_workspaces(self) -> None:
        """Free what matrix products keep."""
        self._prediction.memory.clear_workspaces()

    # The state of a pool

    def state(self, device: int, pool: Pool) -> Checkpoint:
        """The state of a pool."""
        return checkpoint(self._blocks, pool[1])

    def set_state(self, device: int, state: Checkpoint, stale: Sequence[int], live: Sequence[int]) -> None:
        """Go back to it; what was in use then belongs from now on to the storages that live, or to nobody."""
        for record in self._tracker.records():
            if record.block is not None and record.block.segment.graphs == state.graphs:
                self._tracker.leave(record, _ADDRESSES + record.block.address)
        used = restore(self._blocks, state)
        self._tracker.count_workspace(None)
        for storage in map(_storage, live):
            address = self.address(storage) - _ADDRESSES
            if address in used:
                self._tracker.own(storage, used.pop(address))

    def delete(self, address: int) -> None:
        """Free the block at an address."""
        self._blocks.release(self._blocks.at(address - _ADDRESSES))

    def free(self, reference: int) -> None:
        """Free the memory of a storage that lives on without."""
        record = self._tracker.record_of_storage(_storage(reference))
        if record is not None and record.block is not None:
            self._tracker.leave(record, _ADDRESSES + record.block.address)

    def overwrite(self, storage: torch.UntypedStorage, words: str) -> None:
        """Have it be an error, in these words, to read a storage."""
        record = self._tracker.record_of_storage(storage)
        if record is not None:
            record.overwritten = words

    def is_in_use(self, device: int, pool: Pool, addresses: set[int]) -> bool:
        """Return whether these are the addresses of all blocks of a pool that are in use."""
        return {_ADDRESSES + block.address for block in self._blocks.used_by(pool[1])} == addresses

    # Tensors

    def address(self, storage: torch.UntypedStorage) -> int:
        """The address of a storage."""
        record = self._tracker.record_of_storage(storage)
        if record is None or (record.place is None and record.block is None):
            return storage_id(storage)
        return record.place if record.place is not None else _ADDRESSES + record.block.address

    def storage_at(self, address: int, device: torch.device, nbytes: int) -> torch.UntypedStorage:
        """A storage at an address, which does not own what is there."""
        with disable_modes():
            storage = torch.UntypedStorage(nbytes, device="meta")
        self._tracker.place(storage, address)
        return storage

    def tensor(self, metadata: dict[str, Any], storage: torch.UntypedStorage) -> torch.Tensor:
        """A tensor of a storage, as it is described."""
        shape = metadata["storage_offset"], metadata["size"], metadata["stride"]
        with disable_modes():
            made = torch.empty(0, dtype=metadata["dtype"], device="meta").set_(storage, *shape)
            return make_fake(self._tracker.mode, made, CARD)

    # Work

    def random_state(self) -> list[Block]:
        """Blocks for a graph's seed and offset: on the default stream (``CUDAGeneratorCaptureState::initialize``)."""
        before = self._blocks.stream, self._blocks.graphs
        self._blocks.stream = self._blocks.graphs = 0
        try:
            return [self._tracker.take(8), self._tracker.take(8)]
        finally:
            self._blocks.stream, self._blocks.graphs = before

    def forget_random_state(self, state: list[Block]) -> None:
        """Their graph is gone."""
        for block in state:
            self._blocks.release(block)

    def see(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An operator runs: the first that draws in a graph gives that its random state, since 2.15."""
        if self.made is None or torch.Tag.nondeterministic_seeded not in getattr(func, "tags", ()):
            return
        if getattr(Arguments(func, args, kwargs), "dropout_p", 1):  # attention has it, and draws for nothing else
            self.made.draw()

    def capture(self) -> list[Work]:
        """Keep what is given to the card from now on, without doing it."""
        captured: list[Work] = []
        self._tracker.clock.captured, self._prediction.capturing = captured, True
        return captured

    def end_capture(self) -> None:
        """It is done again."""
        self._tracker.clock.captured, self._prediction.capturing = None, False

    def replay(self, captured: list[Work]) -> None:
        """Do what was kept."""
        self._tracker.clock.replay(captured, self._blocks.stream)


class Graph:
    """In the place of ``torch.cuda.CUDAGraph``."""

    def __init__(self) -> None:
        self._graphs: Graphs = current().graphs
        self._pool: Pool | None = None
        self._random_state: list[Block] = []
        self._captured: list[Work] = []

    def capture_begin(self, pool: Pool, **options: Any) -> None:
        """From now on this graph is made."""
        self._pool = pool
        self._graphs.made = self
        if TORCH < (2, 15):
            self.draw()
        self._graphs.begin(CARD.index, pool)
        self._captured = self._graphs.capture()

    def capture_end(self) -> None:
        """End the recording; the graph keeps its pool."""
        assert self._pool is not None
        self._graphs.end_capture()
        self._graphs.end(CARD.index, self._pool)
        self._graphs.made = None

    def draw(self) -> None:
        """Have a seed and an offset."""
        self._random_state = self._random_state or self._graphs.random_state()

    def replay(self) -> None:
        """The card does all of it once."""
        self._graphs.replay(self._captured)

    def pool(self) -> Pool | None:
        """Its private pool."""
        return self._pool

    def register_generator_state(self, state: Any) -> None:
        """Numbers are not known in any case."""

    def __del__(self) -> None:
        if self._pool is not None:
            self._graphs.forget_random_state(self._random_state)
            self._graphs.release(CARD.index, self._pool)


def _storage(reference: int) -> torch.UntypedStorage:
    """The storage that somebody refers to weakly."""
    return internals.storage_of(reference)


def _are_equal(tensors: Sequence[Any], addresses: Sequence[int | None], indices: Sequence[int]) -> bool:
    """``_tensors_data_ptrs_at_indices_equal``: whether tensors are where they were."""
    return all(tensors[index].data_ptr() == addresses[index] for index in indices)


def _nothing(*args: Any) -> None:
    pass


def _asked(name: str) -> Callable[..., Any]:
    """A method of the prediction's graphs."""
    return lambda *args: getattr(current().graphs, name)(*args)


_ANSWERS: dict[str, Any] = {
    "_cuda_clearCublasWorkspaces": _asked("clear_workspaces"),
    "_cuda_get_conv_benchmark_empty_cache": lambda: True,
    "_cudnn_set_conv_benchmark_empty_cache": _nothing,
    "_cuda_beginAllocateCurrentThreadToPool": _asked("begin"),
    "_cuda_endAllocateToPool": _asked("end"),
    "_cuda_releasePool": _asked("release"),
    "_cuda_getCheckpointState": _asked("state"),
    "_cuda_setCheckpointPoolState": _asked("set_state"),
    "_cuda_cudaCachingAllocator_raw_delete": _asked("delete"),
    "_cuda_checkPoolLiveAllocations": _asked("is_in_use"),
    "_free_And_Remove_DeleterFn": _asked("free"),
    "_has_Standard_Deleter": lambda reference: True,
    "_construct_storage_from_data_pointer": _asked("storage_at"),
    "_construct_CUDA_Tensor_From_Storage_And_Metadata": _asked("tensor"),
    "_tensors_data_ptrs_at_indices_equal": _are_equal,
    "_set_storage_access_error_msg": lambda tensor, words: current().graphs.overwrite(tensor.untyped_storage(), words),
    "_set_storage_data_ptr_access_error_msg": lambda ref, words: current().graphs.overwrite(_storage(ref), words),
}


class _Seen(ModuleType):
    """A module of PyTorch's, with other answers in a thread whose prediction has graphs."""

    def __init__(self, real: Any, answers: Callable[[], dict[str, Any]]):
        super().__init__(real.__name__)
        self._real = real
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        if _has_graphs():
            answers = self._answers()
            if name in answers:
                return answers[name]
        return getattr(self._real, name)


def _has_graphs() -> bool:
    return is_predicting() and current().graphs is not None


def _changes() -> Iterator[Change]:
    trees = internals.cudagraph_trees
    cuda = {"CUDAGraph": Graph, "graph_pool_handle": lambda: current().graphs.new_pool()}
    seen = {
        "_C": _Seen(torch_c, lambda: _ANSWERS),
        "cuda": _Seen(torch.cuda, lambda: cuda | {"graph": current().graphs.capturing}),
    }
    yield trees, "torch", _Seen(torch, lambda: seen)
    yield trees, "get_obj", where(_has_graphs, lambda _, name: current().graphs.of_trees[name], trees.get_obj)


_PATCHES = Patches(_changes)
