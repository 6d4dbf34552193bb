"""Inductor's decision to pad the matrices of a product to whole pieces of 16 bytes, as tensor cores like them.

Inductor times both on the card (``torch/_inductor/fx_passes/pad_mm.py``). Here its own code runs on fake tensors, and
what it would time is estimated, as seconds of a step are (``memlab/vgpu/time``). On an H200 the six products with a
vocabulary of 50,257 that were looked at are decided so: a head of 4,096 tokens is padded in forward and backward, one
of 512 tokens everywhere but in the gradient of its weight, whose copy costs more than it saves, and float32 nowhere.

Timing takes tensors of the products' sizes, once on each machine, whose caches then have the decision. A prediction is
of a machine that has it, and says what the first run takes where that is more. The bytes are written at the end of what
Inductor writes, for its own cache spares the decision, too.
"""

from collections.abc import Callable, Iterator
from functools import partial
from inspect import unwrap
from typing import Any

import torch

from memlab.patching import Change
from memlab.tracking.operators import operator
from memlab.vgpu.cards import GIGA, TERA, Speed
from memlab.vgpu.compiled import internals
from memlab.vgpu.live_bytes import LiveBytes
from memlab.vgpu.mode import prim_device
from memlab.vgpu.time.estimate import likely_seconds_of
from memlab.vgpu.time.operator_work import NOTHING, work_of
from memlab.vgpu.time.speeds import of_products

TABLE = "MEMLAB_TIMED"


class Padding:
    """Decides about padding for one prediction, and counts the bytes that a card needs to decide it.

    Args:
        speed: of the card.
    """

    def __init__(self, speed: Speed):
        self._speed = speed
        self._timing = 0  # bytes, the most for a product of the graph that is compiled now

    def changes(self) -> Iterator[Change]:
        """Each change: where, its name, and what takes its place in a thread that compiles for the card."""
        pad, speed = internals.pad_mm, self._speed
        yield pad, "no_dispatch", lambda: internals.V.fake_mode
        yield pad, "get_do_bench", lambda: partial(milliseconds, speed=speed)
        # What was decided for other cards is kept in files and in this process.
        yield pad, "get_pad_cache", _Nothing
        yield pad, "_should_pad", partial(self._should_pad, unwrap(pad._should_pad))
        yield internals.inductor_utils, "get_device_tflops", partial(_tera_a_second, speed=speed)
        yield internals.inductor_utils, "get_gpu_dram_gbps", lambda: speed.memory / GIGA

    def table(self) -> str:
        """The bytes that timing takes at most for this graph, as a line of Python."""
        timing, self._timing = self._timing, 0
        return f"\n{TABLE} = {timing}\n"

    def _should_pad(self, decide: Callable[..., bool], *product: Any) -> bool:
        with _Counting() as counting:
            decision = decide(*product)
        if counting.peak:
            emptied = self._speed.cache  # by a tensor as large, before each time that a product is timed
            self._timing = max(self._timing, counting.peak + emptied)
        return decision


def milliseconds(function: Callable[[], object], *, speed: Speed) -> float:
    """Return the milliseconds that the operators of a function on fake tensors would probably take on the card."""
    with _Timing(speed) as timing:
        function()
    return 1000 * timing.seconds


def _tera_a_second(dtype: torch.dtype, *, speed: Speed) -> float:
    tf32 = torch.backends.cuda.matmul.fp32_precision == "tf32"
    return of_products(speed, dtype, tf32) / TERA


class _Nothing:
    """A cache that keeps nothing."""

    def lookup(self, *keys: str) -> None:
        pass

    def set_value(self, *keys: str, value: object) -> None:
        pass


class _Counting(internals.TorchDispatchMode):
    """Counts the bytes of the tensors that operators make, at most at once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = 0
        self._made = LiveBytes()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and not operator(func).is_view:
            self.peak = max(self.peak, self._made.add(out))  # which may be of another operator's, that this one calls
        return out


class _Timing(internals.TorchDispatchMode):
    """Adds up the likely seconds of operators."""

    def __init__(self, speed: Speed):
        super().__init__()  # type: ignore[no-untyped-call]
        self._speed = speed
        self.seconds = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is prim_device:  # no operator, although it comes along with them
            return out
        if (work := work_of(func, args, kwargs or {}, out)) is not NOTHING:
            self.seconds += likely_seconds_of(work, self._speed)
        return out
