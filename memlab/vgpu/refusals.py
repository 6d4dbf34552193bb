"""Errors for what cannot be predicted: the line, the reason, and what to do."""

import linecache
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from memlab.errors import Unpredictable, WrongDevice
from memlab.text import message
from memlab.vgpu.internals import tree_leaves
from memlab.vgpu.names import CARD

_INSTALLED = {"site-packages", "dist-packages"}
_LIBRARIES = (Path(__file__).parents[1], Path(threading.__file__).parent)  # memlab, Python's own


def where(error: BaseException | None = None, *, frame: FrameType | None = None) -> str:
    """The line of the user's code that is running, in this frame or here, or that an error came from.

    It is the innermost outside all libraries.
    """
    file, line = _place(error, frame)
    if Path(file).parent.name.startswith("ipykernel_"):  # a notebook's cell, whose file has a number for a name
        return f"line {line} of a cell, {linecache.getline(file, line).strip()!r}"
    return f"{Path(file).name}:{line}" if file else library() or "an unknown line"


def library() -> str:
    """The line of the library that asks PyTorch for something, with its version; empty where the user's code asks."""
    for frame, line in traceback.walk_stack(None):
        file = frame.f_code.co_filename
        if is_readers_own(file):
            return ""
        if (name := _package(file)) not in ("", "torch"):
            version = getattr(sys.modules.get(name), "__version__", "")
            return f"{name} {version}".strip() + f", {Path(file).name}:{line}"
    return ""


@cache
def _package(file: str) -> str:
    """The name of an installed package that a file is of; empty for one of Python's own, or memlab's."""
    parts = Path(file).parts
    places = [place for place, part in enumerate(parts) if part in _INSTALLED]
    is_own = Path(file).is_relative_to(_LIBRARIES[0])
    return Path(parts[places[-1] + 1]).stem if places and not is_own else ""


def called(func: Any) -> str:
    """An operator, with the library that calls it, if one does."""
    return f"{func} (in {asking})" if (asking := library()) else str(func)


def in_head_of_while() -> bool:
    """Return True if the line at work is the condition of a ``while``."""
    return linecache.getline(*_place(None)).lstrip().startswith("while ")


def _place(error: BaseException | None, frame: FrameType | None = None) -> tuple[str, int]:
    walk = reversed([*traceback.walk_tb(error.__traceback__)]) if error else traceback.walk_stack(frame)
    return next(((frame.f_code.co_filename, line) for frame, line in _readers(walk)), ("", 0))


def _readers(walk: Iterable[tuple[FrameType, int]]) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of the user's code, each with its line.

    Not of functions that are made while the program runs, as a dataclass' constructor is: no line of a file is theirs.
    """
    for frame, line in walk:
        if (file := frame.f_code.co_filename) != "<string>" and is_readers_own(file):
            yield frame, line


def where_in_all() -> str:
    """Return the line of the user's code that is running, with the functions that have called it.

    As in ``"train.py:73 in loss, called at train.py:80 in evaluate"``.
    """
    own = [(frame.f_code, line) for frame, line in _readers(traceback.walk_stack(None))]
    end = next((place for place, (code, _) in enumerate(own) if code.co_name == "<module>"), len(own))
    lines = [
        f"{Path(code.co_filename).name}:{line}{'' if code.co_name == '<module>' else f' in {code.co_name}'}"
        for code, line in own[: end + 1]
        if code.co_name not in ("<listcomp>", "<genexpr>")
    ]
    first, *callers = lines or [where()]
    return f"{first}, called at {', at '.join(callers)}," if callers else first


def readers_frame() -> FrameType | None:
    """Return the innermost frame of the user's code that is running, None if none is."""
    return next((frame for frame, _ in _readers(traceback.walk_stack(None))), None)


def readers_call() -> FrameType | None:
    """Return the frame of the user's code that calls the module or makes the object at work, None where a library does.

    Frames of memlab, of PyTorch's way into a module, and of constructors that inherit are passed over.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        frame.f_globals.get("__name__", "").startswith(("memlab.", "torch.nn.modules.module"))
        or frame.f_code.co_name in ("__init__", "__post_init__")
    ):
        frame = frame.f_back
    return frame if frame is not None and is_readers_own(frame.f_code.co_filename) else None


@cache
def is_readers_own(file: str) -> bool:
    """Return True if code is the reader's own: not Python's, nor installed, nor memlab's. A notebook's cells are."""
    path = Path(file)
    installed = _INSTALLED & set(path.parts) or file.startswith("<frozen ")
    return not installed and not any(path.is_relative_to(folder) for folder in _LIBRARIES)


def depends_on_data(func: Any, line: str = "", error: Exception | None = None) -> Unpredictable:
    """The error for a result whose size depends on numbers; ``error`` is what comes of the least that it may be."""
    raised = f" (where nothing is chosen, {type(error).__name__}: {message(error)})" if error else ""
    place = f"{func} at {line}" if line else f"{called(func)} at {where()}"
    return Unpredictable(
        f"{place} has a result that depends on the data, which a prediction does not have{raised}: "
        f"{'say how much is chosen (chosen=0.5 or --chosen 0.5, 1, evenly), ' * bool(error)}write it with fixed sizes "
        "(torch.where in the place of a mask), or measure instead."
    )


def no_kernel(func: Any) -> Unpredictable:
    """The error for an operator of which only the result's numbers are defined, not its shape."""
    if "sparse" in str(func):
        return sparse(func)
    return Unpredictable(
        f"{called(func)} at {where()} cannot be predicted, it has no fake kernel: give it one "
        "(torch.library.register_fake), or measure instead."
    )


def two_devices(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> WrongDevice:
    """The error for an operator that is given tensors of the host and of the card."""
    tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
    host = next((tensor for tensor in tensors if tensor.device.type == "cpu"), None)
    card = next((tensor for tensor in tensors if tensor.device == CARD), None)
    return WrongDevice(
        f"{called(func)} at {where()} got {_shape(host)} on the CPU and {_shape(card)} on the GPU: "
        "move both with .to(device), the device that train is given."
    )


def other_device(device: torch.device) -> WrongDevice:
    """The error for a device that the predicted machine does not have."""
    return WrongDevice(
        f"train names the device {str(device)!r} at {where()}: a prediction is for one card, 'cuda' or 'cuda:0', "
        "and its host, 'cpu'."
    )


def own_thread() -> Unpredictable:
    """The error for a thread that the loop starts."""
    return Unpredictable(
        f"A thread beside the loop, at {where()}, cannot be predicted: do its work with the card in the loop itself, "
        "or measure instead."
    )


def bare_number(error: BaseException) -> WrongDevice:
    """The error for ``torch.zeros(3, device=0)`` where PyTorch knows no accelerator that 0 could be."""
    return WrongDevice(
        f"train names a device by its number alone at {where(error)}, which this PyTorch, built without CUDA, does not "
        "know: write 'cuda:0'."
    )


def guessed(lines: Iterable[str]) -> str:
    """Return the note for an error that may come of guesses at these lines."""
    return (
        f"In this prediction, numbers that only a real card knows were guessed at {', '.join(lines)}: a float is 1, an "
        "integer 0. If this error comes of one, give that number by hand, or with `--guess LINE=NUMBER`; where a "
        'router counts tokens for experts, have them spread evenly: chosen="evenly", `--chosen evenly`.'
    )


def chosen(sized: Iterable[str], spread: Iterable[str], share: float | str | None) -> Iterator[str]:
    """Yield the notes for a trace with results whose size a prediction does not know, by the lines that choose.

    Args:
        sized: lines where ``share`` is chosen; nothing if it is no number.
        spread: lines where it depends on picks that are taken to be spread evenly.
    """
    unknown = "depends on numbers that only a real card knows. Here"
    if lines := ", ".join(sized):
        nothing = "nothing is, so the peak is at least this; chosen=1 (--chosen 1) predicts that all is"
        taken = f"it is {share:g} of what there is" if isinstance(share, int | float) else nothing
        yield f"How much is chosen at {lines} {unknown} {taken}."
    if lines := ", ".join(spread):
        yield f"How much is chosen at {lines} {unknown} what is picked from several is spread evenly over them."


def scripted_code(what: str) -> Unpredictable:
    """The error for TorchScript, which runs the loop's code without PyTorch's Python."""
    return Unpredictable(
        f"{what} at {where()} cannot be predicted: predict the loop without it, which gives an upper bound, "
        "or measure instead."
    )


def without_end(line: str, times: int) -> Unpredictable:
    """The error for a loop that waits for a number which never comes."""
    return Unpredictable(
        f"The loop at {line} asked the card {times:,} times in one step for a number that a prediction does not have, "
        "and may never end: bound it by a count (for _ in range(n)), or measure instead."
    )


def nested(func: Any) -> Unpredictable:
    """The error for nested (jagged) tensors."""
    return Unpredictable(
        f"{called(func)} at {where()} works on a nested tensor, which cannot be predicted: pad it to a fixed size, or "
        "measure instead."
    )


def sparse(func: Any) -> Unpredictable:
    """The error for what is not known of sparse tensors."""
    return Unpredictable(
        f"{called(func)} at {where()} works on a sparse tensor, which cannot be predicted: work on a dense one "
        "(.to_dense(), sparse=False), or measure instead."
    )


def uncoalesced(what: str) -> RuntimeError:
    """PyTorch's own error, of a sparse tensor that may have an index twice."""
    return RuntimeError(f"Cannot get {what} on an uncoalesced tensor, please call .coalesce() first")


def scripted(error: BaseException) -> Unpredictable:
    """The error for TorchScript that fails on tensors without numbers."""
    return Unpredictable(
        f"TorchScript at {where(error)} cannot be predicted: predict the loop without torch.jit, or measure instead."
    )


def _shape(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return "a tensor"
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
