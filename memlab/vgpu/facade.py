"""``torch.cuda`` and its relatives while a prediction runs: they mean the virtual card, and are answered from it.

``ANSWERS`` has a line for each name that is answered. Everything else of ``torch.cuda`` is PyTorch's own Python on top
of these (``memory_allocated``, ``memory_summary``, ``torch.random.fork_rng``).
"""

import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from memlab.errors import Unpredictable
from memlab.units import KIB
from memlab.vgpu import streams
from memlab.vgpu.current_prediction import current
from memlab.vgpu.names import CARD, SLOT_NAME
from memlab.vgpu.refusals import other_device, where
from memlab.vgpu.typed import KINDS, typed

CARDS_OF_A_MACHINE = 8


def _device_count() -> int:
    """Cards of one machine: one for each rank, as ``torchrun`` gives them out. All mean the one that is predicted."""
    return min(current().world_size, CARDS_OF_A_MACHINE)


def card_device(device: Any = None) -> torch.device:
    """The card, by any of the names that people give it: ``"cuda"``, ``0``, ``torch.device("cuda:0")``, None.

    Raises:
        WrongDevice: for another device.
    """
    if isinstance(device, int):
        device = f"cuda:{device}"
    named = CARD if device is None else torch.device(device)
    if named.type != CARD.type or (named.index or 0) >= _device_count():
        raise other_device(named)
    return CARD


_device = torch.device


class ByNumber:
    """``torch.device(0)``: PyTorch without CUDA does not know which that is."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Make PyTorch's own device."""
        if len(args) == 1 and type(args[0]) is int:
            args = (f"{CARD.type}:{args[0]}",)
        return _device(*args, **kwargs)


class OnDevice:
    """The replacement for ``torch.cuda.device``: a context in which nothing changes."""

    def __init__(self, device: Any = None):
        card_device(device)

    def __enter__(self) -> "OnDevice":
        return self

    def __exit__(self, *exception: object) -> None:
        pass


def _use(device: Any = None) -> None:
    """The card is named by what initializes CUDA."""
    card_device(device)
    current().memory.initialize()


def properties(device: Any = None) -> types.SimpleNamespace:
    """``torch.cuda.get_device_properties``, of the card."""
    _use(device)
    card = current().card
    return types.SimpleNamespace(
        name=card.name,
        total_memory=card.capacity,
        major=card.sm // 10,
        minor=card.sm % 10,
        multi_processor_count=card.processors,
        max_threads_per_multi_processor=card.threads,
        warp_size=32,
        is_integrated=0,
        is_multi_gpu_board=0,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=48 * KIB,
        shared_memory_per_block_optin=card.architecture.shared_optin * KIB,
        shared_memory_per_multiprocessor=card.architecture.shared * KIB,
        L2_cache_size=card.speed.cache,
    )


def _mem_get_info(device: Any = None) -> tuple[int, int]:
    _use()
    card, memory = current().card, current().memory
    return card.capacity - card.context - memory.blocks.reserved, card.capacity


def _set_fraction(fraction: float, device: Any = None) -> None:
    current().memory.allow(int(fraction * current().card.capacity))


@contextmanager
def _range(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield


class Generator(torch.Generator):
    """Of the host, or of the card, whose numbers are not known in any case."""

    _named: torch.device

    def __new__(cls, device: Any = "cpu") -> "Generator":
        made = super().__new__(cls)
        made._named = torch.device(device)
        return made

    def __init__(self, device: Any = "cpu"):
        pass

    @property
    def device(self) -> torch.device:  # type: ignore[override]  # PyTorch's stubs say that it can be set
        """As it was asked for."""
        return self._named


def _no_graphs(*args: Any, **kwargs: Any) -> None:
    raise Unpredictable(
        f"A CUDA graph at {where()} cannot be predicted: predict the loop without it, or measure instead."
    )


class _Graph:
    def __new__(cls, *args: Any, **kwargs: Any) -> "_Graph":
        _no_graphs()
        return super().__new__(cls)


def _scatter(
    tensor: torch.Tensor, devices: Sequence[int], chunk_sizes: Any, dim: int, on: Sequence[Any] | None
) -> list[torch.Tensor]:
    """``DataParallel`` gives each of its cards a part; here there is one."""
    for device in devices[1:]:
        raise other_device(torch.device(CARD.type, device))
    with on[0] if on else nullcontext():
        return [part.to(CARD) for part in tensor.chunk(1, dim)]


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _always(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value


def _state(*args: Any) -> torch.Tensor:
    return torch.zeros(16, dtype=torch.uint8)  # the size of a CUDA generator's state


def _snapshot(*args: Any, **kwargs: Any) -> list[dict[str, Any]]:
    return current().memory.blocks.snapshot()


def _memory(name: str) -> Callable[..., Any]:
    """A method of the prediction's memory, whatever device is named."""
    return lambda *args, **kwargs: getattr(current().memory, name)()


_cuda, _accelerator = torch.cuda, torch.accelerator
_MEMORY = {
    "empty_cache": _memory("empty_cache"),
    "reset_peak_memory_stats": _memory("forget_peaks"),
}

ANSWERS: list[tuple[Any, dict[str, Any]]] = [
    (
        _cuda,
        {
            "_lazy_init": _use,
            "init": _use,
            "is_available": _always(True),
            "is_initialized": _always(True),
            "is_bf16_supported": lambda including_emulation=True: including_emulation or current().card.bf16,
            "is_tf32_supported": lambda: current().card.sm >= 80,
            "is_current_stream_capturing": lambda: current().capturing,
            "device_count": _device_count,
            "current_device": _always(0),
            "_exchange_device": _always(0),
            "_maybe_exchange_device": _always(0),
            "set_device": _use,
            "synchronize": _nothing,
            "ipc_collect": _nothing,
            "get_device_name": lambda device=None: properties(device).name,
            "get_device_capability": lambda device=None: divmod(current().card.sm, 10),
            "get_device_properties": properties,
            "get_arch_list": _always([]),
            "can_device_access_peer": _always(False),
            "current_stream": streams.current_stream,
            "default_stream": streams.default_stream,
            "set_stream": streams.set_stream,
            "graph_pool_handle": _no_graphs,
            "make_graphed_callables": _no_graphs,
        },
    ),
    # The card's recurrent networks run as PyTorch's own loops over time.
    (torch.backends.cudnn, {"is_acceptable": _always(False)}),
    (torch.distributed, {"is_nccl_available": _always(True)}),
    (
        torch.cuda.nvtx,
        {"range": _range} | dict.fromkeys(("range_push", "range_pop", "range_start", "range_end", "mark"), _nothing),
    ),
    (
        _accelerator,
        {
            "is_available": _always(True),
            "device_count": _device_count,
            "current_accelerator": _always(torch.device("cuda")),
            "current_device_index": _always(0),
            "set_device_index": _nothing,
            "synchronize": _nothing,
            "current_stream": streams.current_stream,
        },
    ),
]
# These two modules hold the same functions under the same names.
for _module in (_cuda, torch.cuda.memory):
    ANSWERS.append(
        (
            _module,
            _MEMORY
            | {
                "memory_stats_as_nested_dict": _memory("statistics"),
                "reset_accumulated_memory_stats": _nothing,
                "mem_get_info": _mem_get_info,
                "set_per_process_memory_fraction": _set_fraction,
                "memory_snapshot": _snapshot,
                "_record_memory_history": _nothing,
                "_dump_snapshot": _nothing,
            },
        )
    )
for _module in (_cuda, torch.cuda.random):
    ANSWERS.append(
        (
            _module,
            {
                "get_rng_state": _state,
                "get_rng_state_all": lambda: [_state()],
                "initial_seed": _always(0),
            }
            | dict.fromkeys(
                ("set_rng_state", "set_rng_state_all", "manual_seed", "manual_seed_all", "seed", "seed_all"), _nothing
            ),
        )
    )
for _module in (_accelerator, torch.accelerator.memory):
    ANSWERS.append(
        (
            _module,
            _MEMORY
            | {
                "memory_stats": lambda *device: torch.cuda.memory_stats(),
                "memory_allocated": lambda *device: torch.cuda.memory_allocated(),
                "max_memory_allocated": lambda *device: torch.cuda.max_memory_allocated(),
                "memory_reserved": lambda *device: torch.cuda.memory_reserved(),
                "max_memory_reserved": lambda *device: torch.cuda.max_memory_reserved(),
                "get_memory_info": _mem_get_info,
            },
        )
    )
# Classes: outside of a prediction they make the real thing.
CLASSES: list[tuple[Any, str, type]] = [
    (_cuda, "Stream", streams.Stream),
    (_cuda, "Event", streams.Event),
    (_cuda, "device", OnDevice),
    (_cuda, "stream", streams.OnStream),
    (_cuda, "CUDAGraph", _Graph),
    (_cuda, "graph", _Graph),
    (torch, "Generator", Generator),
    (torch, "Stream", streams.Stream),
    (_accelerator, "device_index", OnDevice),
    *((_cuda, kind.__name__, typed(kind)) for kind in KINDS),
]
# What libraries look up in torch._C as soon as there is a card; builds without CUDA lack most of it.
OF_CUDA_BUILDS: dict[str, Callable[..., Any]] = {
    "_cuda_getCurrentRawStream": _always(0),  # of the default stream
    "_host_emptyCache": _nothing,  # of pinned memory
    "_cuda_cudaCachingAllocator_is_enabled": _always(True),
    "_nccl_version": _always(2 << 32 | 29 << 16 | 7),  # of PyTorch's own packages; DDP asks before it sends bfloat16
    "_nccl_version_suffix": _always(b""),
    "_scatter": _scatter,
    "_accelerator_setAllocatorSettings": lambda settings: current().memory.configure(settings),
}
# PyTorch's C++ functions whose first argument names a device, "cuda" by default: autocast lives in the slot.
AUTOCAST = ("is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype", "set_autocast_dtype")


def of_the_slot(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, asked for the slot where it is asked for CUDA."""

    def asked(*args: Any) -> Any:
        if not args or isinstance(args[0], bool):
            args = (SLOT_NAME, *args)
        elif args[0] == CARD.type:
            args = (SLOT_NAME, *args[1:])
        return function(*args)

    return asked
