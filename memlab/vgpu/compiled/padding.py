"""Inductor's decision to pad the matrices of a product to whole pieces of 16 bytes, as tensor cores like them.

Inductor times both on the card (``torch/_inductor/fx_passes/pad_mm.py``). Here its own code runs on fake tensors, and
what it would time is estimated, as seconds of a step are (``memlab/vgpu/time``). On an H200 the six products with a
vocabulary of 50,257 that were looked at are decided so: a head of 4,096 tokens is padded in forward and backward, one
of 512 tokens everywhere but in the gradient of its weight, whose copy costs more than it saves, and float32 nowhere.

To time them takes tensors of the products' sizes. So the first steps of a script take more on a machine that has not
run it before than on one whose caches have the decisions: GPT-2 small's loss, compiled alone, 9.03 GB and 8.20 GB (8
sequences, a T4). The virtual card is such a new machine. What was timed is written at the end of what Inductor writes,
since its own cache spares the decision, too, and is allocated when that is loaded.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from inspect import unwrap
from types import FunctionType
from typing import Any, NamedTuple

import torch

from memlab.patching import Change
from memlab.vgpu.cards import GIGA, TERA, Speed
from memlab.vgpu.compiled import internals
from memlab.vgpu.mode import prim_device
from memlab.vgpu.names import CARD
from memlab.vgpu.time.estimate import likely_seconds_of
from memlab.vgpu.time.operator_work import NOTHING, work_of
from memlab.vgpu.time.speeds import of_products

TABLE = "MEMLAB_TIMED"


class Matrix(NamedTuple):
    """A tensor of a product, in the place of PyTorch's fake one."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @property
    def device(self) -> torch.device:
        return CARD

    def size(self) -> tuple[int, ...]:
        return self.shape

    def stride(self) -> tuple[int, ...]:
        return self.strides


class Timed(NamedTuple):
    """A product whose two forms a card has timed.

    Attributes:
        op: ``"mm"``, ``"addmm"`` or ``"bmm"`` of ``torch.ops.aten``.
        matrices: those that are multiplied.
        added: what is added to their product, or None.
        planned: which of the matrices, by the names of ``pad_mm``'s parameters, is made so that it is padded already.
    """

    op: str
    matrices: tuple[Matrix, Matrix]
    added: Matrix | None
    planned: dict[str, bool]


class Padding:
    """What one prediction's compiler decides about padding, and what it takes to decide it.

    Args:
        speed: of the card.
        seeing: makes the context in which operators run on the card, although no step counts them.
    """

    def __init__(self, speed: Speed, seeing: Callable[[], AbstractContextManager[None]]):
        self._speed = speed
        self._seeing = seeing
        self._is_timing = False
        self._timed: list[Timed] = []  # for the graph that is compiled now
        self._known: dict[str, Any] = {}  # what this card has timed so far

    def changes(self) -> Iterator[Change]:
        """Each change: where, its name, and what takes its place in a thread that compiles for the card."""
        pad, speed = internals.pad_mm, self._speed
        yield pad, "no_dispatch", lambda: internals.V.fake_mode
        yield pad, "get_do_bench", lambda: self._estimate
        # What was decided for other cards is kept in files and in this process.
        yield pad, "get_pad_cache", _Nothing
        yield pad, "_should_pad", partial(self._should_pad, unwrap(pad._should_pad))
        yield internals.inductor_utils, "get_device_tflops", partial(_tera_a_second, speed=speed)
        yield internals.inductor_utils, "get_gpu_dram_gbps", lambda: speed.memory / GIGA

    def table(self) -> str:
        """What has been timed for the graph, as a line of Python."""
        timed, self._timed = self._timed, []
        plain = [
            (one.op, [tuple(matrix) for matrix in one.matrices], one.added and tuple(one.added), one.planned)
            for one in timed
        ]
        return f"\n{TABLE} = {plain!r}\n"

    def _should_pad(
        self, decide: Callable[..., bool], match: Any, mat1: Any, mat2: Any, op: Any, added: Any = None
    ) -> bool:
        self._is_timing = False
        decision = decide(match, mat1, mat2, op, added)
        if self._is_timing:
            planned = {name: internals.pad_mm.should_exclude_padding_time(match, name) for name in ("mat1", "mat2")}
            matrices = _matrix(mat1), _matrix(mat2)
            self._timed.append(Timed(op.__name__, matrices, _matrix(added) if added is not None else None, planned))
        return decision

    def _estimate(self, function: Callable[[], object]) -> float:
        self._is_timing = True
        return milliseconds(function, speed=self._speed)

    def play(self, timed: Sequence[Any]) -> None:
        """Allocate on the card what it takes to time these products, those of a table, unless it has timed them."""
        if timed:
            with self._seeing(), torch.no_grad():
                for op, (one, two), added, planned in timed:
                    bias = added and Matrix(*added)
                    self._on_the_card(planned, Matrix(*one), Matrix(*two), getattr(torch.ops.aten, op), bias)

    def _on_the_card(self, *product: Any) -> None:
        """PyTorch's own function, that times them, without what belongs to compiling."""
        pad, known = internals.pad_mm, self._known
        names = vars(pad) | {
            "FakeTensor": Matrix,
            "no_dispatch": nullcontext,
            "is_mm_compute_bound": lambda *_: True,
            "should_exclude_padding_time": dict.__getitem__,
            "get_do_bench": lambda: self._time,
            "get_cached_should_pad": known.get,
            "get_cached_base_mm_benchmark_time": known.get,
            "set_cached_base_mm_benchmark_time": known.__setitem__,
            "is_padded_faster": lambda key, *_: known.setdefault(key, True),
        }
        names["should_pad_bench_key"] = _copied(pad.should_pad_bench_key, names)
        _copied(unwrap(pad._should_pad), names)(*product)

    def _time(self, function: Callable[[], object]) -> float:
        """As ``torch._inductor.runtime.benchmarking.InductorBenchmarker``, which empties the card's cache meanwhile."""
        function()
        buffer = torch.empty(self._speed.cache // 4, dtype=torch.int, device=CARD)
        function()
        del buffer
        return 0.0


def _copied(function: Any, names: dict[str, Any]) -> Callable[..., Any]:
    """The function with other global names."""
    return FunctionType(function.__code__, names, function.__name__, function.__defaults__)


def _matrix(tensor: Any) -> Matrix:
    hints = internals.pad_mm.hint_symbols
    return Matrix(tuple(hints(tensor.size())), tuple(hints(tensor.stride())), tensor.dtype)


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
