"""PyTorch's switches are the whole process's; a prediction's are its own, or are put back when it is over.

Which kernels attention may choose from is decided in Python here (:mod:`memlab.vgpu.attention.choice`), so each
prediction has these switches to itself: a loop within ``sdpa_kernel`` does not switch the kernels of a cell that trains
meanwhile, nor the other way round. Other switches PyTorch's C++ reads: they are set for all, and put back.
"""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from memlab.patching import Change, where
from memlab.vgpu.current_prediction import current, is_predicting
from memlab.vgpu.internals import ATTENTION_SWITCHES, SWITCHES, torch_c

# torch.backends.cudnn took hold of its functions when it was loaded.
_OF_CUDNN = ("allow_tf32", "benchmark", "deterministic", "enabled")

Setter = Callable[..., None]

_lock = threading.Lock()
_at_rest: dict[str, Any] | None = None  # the switches when the cell began that runs now
_cell: int | None = None  # the thread that runs it


def switches() -> dict[str, Any]:
    """The own ones of a prediction that begins now in this thread, by what reads them.

    While a cell runs in another thread they are as they were when it began: it may be within ``sdpa_kernel``.
    """
    with _lock:
        if _at_rest is not None and threading.get_ident() != _cell:
            return dict(_at_rest)
    return _read()


def cell_begins() -> None:
    """A cell of a notebook begins to run in this thread."""
    global _at_rest, _cell
    with _lock:
        _at_rest, _cell = _read(), threading.get_ident()


def cell_ended() -> None:
    """It has ended."""
    global _at_rest
    with _lock:
        _at_rest = None


def changes() -> Iterator[Change]:
    """Yield the changes of PyTorch's Python while predictions run."""
    for read, set_ in _known():
        yield torch_c, read, where(is_predicting, partial(_get, read), getattr(torch_c, read))
        yield torch_c, set_, where(is_predicting, partial(_set, read), getattr(torch_c, set_))
    for name in filter(lambda name: hasattr(torch_c, f"_set_{name}"), SWITCHES):
        setter, getter = (getattr(torch_c, f"_{do}_{name}") for do in ("set", "get"))
        yield torch_c, f"_set_{name}", _undone(setter, _back_to(getter))
    for name in _OF_CUDNN:
        switch = vars(type(torch.backends.cudnn))[name]
        yield switch, "setter", _undone(switch.setter, _back_to(switch.getter))
    for name, undoing in _OTHERS.items():
        yield torch_c, name, _undone(getattr(torch_c, name), undoing)


def _known() -> Iterator[tuple[str, str]]:
    """Those that this PyTorch has."""
    return ((read, set_) for read, set_ in ATTENTION_SWITCHES.items() if hasattr(torch_c, read))


def _read() -> dict[str, Any]:
    return {read: getattr(torch_c, read)() for read, _ in _known()}


def _get(name: str) -> Any:
    return current().switches[name]


def _set(name: str, value: Any) -> None:
    current().switches[name] = value


def _undone(setter: Setter, undoing: Callable[..., Callable[[], None]]) -> Setter:
    """The setter; in a prediction, whose end undoes what it does."""

    def set_(*args: Any, **kwargs: Any) -> None:
        current().undo.callback(undoing(setter, *args))
        setter(*args, **kwargs)

    return where(is_predicting, set_, setter)


def _back_to(getter: Callable[[], Any]) -> Callable[..., Callable[[], None]]:
    def undoing(setter: Setter, *args: Any) -> Callable[[], None]:
        before = getter()
        return partial(setter, *(before if isinstance(before, tuple) else (before,)))

    return undoing


def _deterministic(setter: Setter, *args: Any) -> Callable[[], None]:
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    return partial(setter, torch.are_deterministic_algorithms_enabled(), warn_only=warns)


def _precision(setter: Setter, backend: str, op: str, value: str) -> Callable[[], None]:
    return partial(setter, backend, op, torch_c._get_fp32_precision_getter(backend, op))


_OTHERS: dict[str, Callable[..., Callable[[], None]]] = {
    "_set_default_dtype": _back_to(torch.get_default_dtype),
    "_set_deterministic_algorithms": _deterministic,
    "_set_fp32_precision_setter": _precision,
}
