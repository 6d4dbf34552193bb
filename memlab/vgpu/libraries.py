"""Libraries that need a word of their own.

Some ask whether a tensor is PyTorch's fake one, to find out whether somebody traces their code. In a prediction nobody
does: the code shall go the way that it goes on a card. Others keep tensors for good, beside the loop, ask CUDA for
memory without PyTorch, or load weights in threads.
"""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from math import prod
from typing import Any

import torch

from memlab.patching import Change, Patches, where
from memlab.vgpu.current_prediction import is_predicting
from memlab.vgpu.internals import FakeTensor
from memlab.vgpu.triton_kernels import launched

BITSANDBYTES = "bitsandbytes.functional"  # its name2qmap: the numbers that bits stand for, on the card
TRANSFORMERS = "transformers.utils.import_utils"  # its masks are larger where code is traced (masking_utils.py)

TRITON = "triton.runtime.jit"  # its kernels are compiled for a card
TUNER = "triton.runtime.autotuner"  # and timed on it

_LOADING = ("transformers.core_model_loading",)  # modules that load in a pool, and wait there for nobody


def _paged(*shape: int, dtype: torch.dtype = torch.float32, device: Any = None) -> torch.Tensor:
    """The state of a paged optimizer: memory of the host, which a card reads page by page. None of it is needed here.

    As floats that nobody has written, for those are without numbers on the host, see ``host.py``.
    """
    nbytes = prod(shape) * dtype.itemsize
    paged: Any = torch.empty(-(-nbytes // 4)).view(torch.uint8)[:nbytes].view(dtype).view(shape)
    paged.is_paged = True
    paged.page_deviceid = 0
    return paged


def _nothing(*args: Any, **kwargs: Any) -> None:
    pass


_ANSWERS: dict[str, dict[str, Callable[..., Any]]] = {
    TRANSFORMERS: {"is_fake_tensor": lambda tensor: False},
    BITSANDBYTES: {"get_paged": _paged, "fill": _nothing, "prefetch_tensor": _nothing},
    TRITON: {"JITFunction.run": launched},
    TUNER: {"Autotuner.run": launched},
}


def _changes(library: str) -> Iterator[Change]:
    for place, answer in _ANSWERS[library].items():
        of_class, _, name = place.rpartition(".")
        owner = getattr(sys.modules[library], of_class, None) if of_class else sys.modules[library]
        if hasattr(owner, name):
            yield owner, name, where(is_predicting, answer, getattr(owner, name))


_PATCHES = {library: Patches(partial(_changes, library)) for library in _ANSWERS}


def answer_for(known: set[str], until: ExitStack) -> None:
    """Let the libraries that have been imported, and are not known yet, run as on a card until then."""
    for library in (_PATCHES.keys() & sys.modules.keys()) - known:
        known.add(library)
        until.enter_context(_PATCHES[library])


def submitting(submit: Callable[..., Any]) -> Callable[..., Any]:
    """``pool.submit(load)``: weights go to the card in the thread that predicts, for a pool's threads find none."""

    def submitted(pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if getattr(function, "__module__", "") not in _LOADING:
            return submit(pool, function, *args, **kwargs)
        done: Future[Any] = Future()
        done.set_result(function(*args, **kwargs))
        return done

    return submitted


def keep_apart(until: ExitStack) -> None:
    """Let what libraries keep be a prediction's own until then: a real loop would take what is left of it."""
    before = dict(_kept())
    _kept().clear()

    def put_back() -> None:
        _kept().clear()
        _kept().update(before)
        if manager := getattr(sys.modules.get(BITSANDBYTES), "GlobalPageManager", None):
            paged = manager.get_instance().paged_tensors
            paged[:] = [tensor for tensor in paged if not isinstance(tensor, FakeTensor)]

    until.callback(put_back)


def _kept() -> dict[str, Any]:
    kept: dict[str, Any] = getattr(sys.modules.get(BITSANDBYTES), "name2qmap", {})
    return kept
