"""Mixed precision as on CUDA: which operators run in half precision, which in float32, and the cache of cast weights.

PyTorch ships CUDA's lists in its own header ``ATen/autocast_mode.h``. They are read from there, so that they
are those of the torch in use. What each list means is written in the comments of that header.
"""

import re
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.library import Library

from memlab.errors import NoVirtualGpu
from memlab.vgpu.internals import without_autocast
from memlab.vgpu.names import CARD, SLOT_NAME

KEY = "AutocastPrivateUse1"


LISTS = {  # macro of the header: our kernel for its operators
    "AT_FORALL_LOWER_PRECISION_FP": "_in_lower_precision",
    "AT_FORALL_FP32": "_in_float32",
    "AT_FORALL_FP32_SET_OPT_DTYPE": "_with_float32_result",
    "AT_FORALL_PROMOTE": "_in_widest",
}

_cache = threading.local()  # .casts: id of a weight -> (a weak reference to it, its cast)


def kernels() -> list[object]:
    """Register the kernels; what is returned must be kept."""
    library = Library("aten", "IMPL", KEY)
    for macro, name in LISTS.items():
        for operator in operators(macro):
            library.impl(operator.name(), partial(globals()[name], operator), KEY)
    for operator in ("norm.Scalar", "norm.ScalarOpt_dim"):  # AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE
        overload = getattr(torch.ops.aten.norm, operator.removeprefix("norm."))
        library.impl(operator, partial(_norm_in_float32, overload), KEY)
    rest = Library("_", "IMPL", KEY)
    rest.fallback(torch.library.fallthrough_kernel)
    return [library, rest]


def operators(macro: str) -> list[Any]:
    """The operators of one of CUDA's lists, by the name of its macro in the header.

    Raises:
        NoVirtualGpu: the header is missing or has another form.
    """
    header = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
    try:
        body = re.findall(rf"#define {macro}\(_\)((?:.*\\\n)+.*)", header.read_text())[0]
    except (OSError, IndexError):
        raise NoVirtualGpu(
            f"CUDA's autocast lists are not in {header}: install PyTorch from its own packages, which carry it. "
            "measure still works."
        ) from None
    names = re.findall(r"_\((\w+)(?:, (\w+))?\)", body)
    packets = ((getattr(torch.ops.aten, name, None), overload or "default") for name, overload in names)
    return [getattr(packet, overload) for packet, overload in packets if hasattr(packet, overload)]


def _in_lower_precision(operator: Any, *args: Any, **kwargs: Any) -> Any:
    dtype = torch.get_autocast_dtype(SLOT_NAME)
    return _call(operator, dtype, args, kwargs)


def _in_float32(operator: Any, *args: Any, **kwargs: Any) -> Any:
    return _call(operator, torch.float32, args, kwargs)


def _with_float32_result(operator: Any, *args: Any, **kwargs: Any) -> Any:
    names = [argument.name for argument in operator._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    if _is_low(args[0]) and given.get("dtype") is None:
        kwargs = kwargs | {"dtype": torch.float32}
        args = args[: names.index("dtype")]
    return _call(operator, None, args, kwargs)


def _norm_in_float32(operator: Any, tensor: torch.Tensor, p: Any = 2, *dim: Any, **kwargs: Any) -> Any:
    if not _is_low(tensor):
        return _call(operator, None, (tensor, p, *dim), kwargs)
    with without_autocast():
        if not dim:
            return torch.ops.aten.norm.ScalarOpt_dtype(tensor, p, dtype=torch.float32)
        dim, keepdim = (*dim, False)[:2]
        return torch.ops.aten.norm.ScalarOpt_dim_dtype(tensor, p, dim, keepdim, dtype=torch.float32)


def _in_widest(operator: Any, *args: Any, **kwargs: Any) -> Any:
    widest = torch.get_autocast_dtype(SLOT_NAME)
    for value in _tensors((args, kwargs)):
        if _is_eligible(value) and value.dtype is torch.float32:
            widest = torch.float32
    return _call(operator, widest, args, kwargs)


def _call(operator: Callable[..., Any], dtype: torch.dtype | None, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    with without_autocast():
        if dtype is not None:
            # From the last to the first, as the compiler of PyTorch has cached_cast evaluated (autocast_mode.h).
            kwargs = {name: _cast(value, dtype) for name, value in reversed(kwargs.items())}
            args = [_cast(value, dtype) for value in reversed(args)][::-1]
        return operator(*args, **kwargs)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, list | tuple):
        return [_cast(item, dtype) for item in value]
    if not isinstance(value, torch.Tensor) or not _is_eligible(value) or value.dtype is dtype:
        return value
    if not _is_cached(value, dtype):
        return value.to(dtype)
    casts = _casts()
    known = casts.get(id(value))
    if known is None or known[0]() is not value:
        # Weights are cast once in an autocast region, and the casts live until it ends.
        known = casts[id(value)] = (weakref.ref(value), value.to(dtype))
    return known[1]


def _is_eligible(value: torch.Tensor) -> bool:
    return value.is_floating_point() and value.device == CARD and value.dtype is not torch.float64


def _is_low(value: torch.Tensor) -> bool:
    return _is_eligible(value) and value.dtype in (torch.float16, torch.bfloat16)


def _is_cached(value: torch.Tensor, dtype: torch.dtype) -> bool:
    return (
        dtype is torch.get_autocast_dtype(SLOT_NAME)
        and value.dtype is torch.float32
        and value.requires_grad
        and value.is_leaf
        and not value._is_view()
        and torch.is_autocast_cache_enabled()
    )


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def empty_cache() -> None:
    """Forget the casts of this thread."""
    _casts().clear()


def casts() -> list[torch.Tensor]:
    """Return the casts of this thread that are used again."""
    return [cast for _, cast in _casts().values()]


def keep(something: Any) -> None:
    """Keep something as long as the casts."""
    _casts()[id(something)] = (weakref.ref(something), something)


def _casts() -> dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]]:
    if not hasattr(_cache, "casts"):
        _cache.casts = {}
    return _cache.casts
