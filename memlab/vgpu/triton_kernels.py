"""Triton kernels that a loop launches itself, or a library for it, as Liger's.

A launch allocates nothing on the card, so in a prediction a kernel is not compiled, and does nothing but count the
bytes that it moves. Where Triton is not installed, a prediction finds a module of that name whose decorators and
language mean nothing; PyTorch itself does not see it.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

from memlab.vgpu.current_prediction import current, is_predicting

NAME = "triton"


def launched(kernel: Any, *args: Any, **kwargs: Any) -> None:
    """A kernel is launched, by whatever way Triton has."""
    current().launch((*args, *kwargs.values()))


def provide() -> None:
    """Let threads that predict find a Triton from now on, if there is none."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())  # the last: an installed one is found first


def take_away() -> None:
    """Forget the one that a prediction has found: what has imported it keeps it."""
    for name in [name for name, module in sys.modules.items() if isinstance(module, _Module)]:
        del sys.modules[name]


class _Finder(MetaPathFinder):
    """Finds ``triton``, and all that is in it, where a loop or a library asks in a prediction."""

    def __init__(self) -> None:
        self._deciding = False

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] != NAME or self._deciding or not is_predicting() or _pytorch_asks():
            return None
        self._let_pytorch_decide()
        return ModuleSpec(name, _Loader(), is_package=True)

    def _let_pytorch_decide(self) -> None:
        """PyTorch looks once for a Triton, and keeps what it has found: there is none."""
        self._deciding = True
        try:
            from memlab.vgpu.internals import look_for_triton

            look_for_triton()
        finally:
            self._deciding = False


def _pytorch_asks() -> bool:
    """Return True if the import in progress was started by a file of PyTorch."""
    frame: FrameType | None = sys._getframe(2)  # below find_spec
    while frame is not None and frame.f_globals.get("__name__", "").startswith("importlib."):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "torch"


class _Loader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == f"{NAME}.language":
            vars(module).update(constexpr=_Constant)
        if module.__name__ == NAME:
            vars(module).update(
                __version__="3.0.0",
                jit=_jit,
                autotune=_as_it_is,
                heuristics=_as_it_is,
                cdiv=lambda x, y: -(-x // y),
                next_power_of_2=lambda n: 1 << (n - 1).bit_length(),
            )


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Word()


@dataclass(frozen=True)
class _Constant:
    """``triton.language.constexpr``: a number for kernels."""

    value: Any


class _Word:
    """A word of Triton's language: a type, a function, a decorator."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else self

    def __getattr__(self, name: str) -> "_Word":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key: object) -> "_Word":
        return self


class _Kernel:
    """A function that would be compiled."""

    def __init__(self, function: Callable[..., Any]):
        self.fn = function
        self.__name__ = function.__name__
        self.__module__ = function.__module__

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self._launch

    def run(self, *args: Any, grid: object = None, warmup: bool = False, **kwargs: Any) -> None:
        """Launch it."""
        self._launch(*args, **kwargs)

    def _launch(self, *args: Any, **kwargs: Any) -> None:
        if not is_predicting():
            raise RuntimeError(
                f"{self.__name__} is a Triton kernel, and Triton is not installed: it can be predicted, and not run."
            )
        launched(self, *args, **kwargs)


def _jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    return _Kernel if function is None else _Kernel(function)


def _as_it_is(*args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    return lambda kernel: kernel
