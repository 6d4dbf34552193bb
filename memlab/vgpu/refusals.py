"""What cannot be predicted, in words: the line, the reason, and what to do."""

import threading
import traceback
from pathlib import Path

import torch

from memlab.errors import Unpredictable, WrongDevice
from memlab.vgpu.internals import tree_leaves
from memlab.vgpu.names import CARD

_LIBRARIES = (Path(__file__).parents[1], Path(threading.__file__).parent)  # memlab, Python's own


def where(error: BaseException | None = None) -> str:
    """The line of the user's code that is running, or that an error came from: the innermost outside all libraries."""
    walk = reversed([*traceback.walk_tb(error.__traceback__)]) if error else traceback.walk_stack(None)
    for frame, line in walk:
        path = Path(frame.f_code.co_filename)
        installed = {"site-packages", "dist-packages"} & set(path.parts)
        if not installed and not any(path.is_relative_to(folder) for folder in _LIBRARIES):
            return f"{path.name}:{line}"
    return "an unknown line"


def depends_on_data(func) -> Unpredictable:
    """The error for a result whose size depends on numbers."""
    return Unpredictable(
        f"{func} at {where()} has a result that depends on the data, which a prediction does not have: "
        "write it with fixed sizes (torch.where in the place of a mask), or measure instead."
    )


def no_kernel(func) -> Unpredictable:
    """The error for an operator of which only the result's numbers are defined, not its shape."""
    return Unpredictable(
        f"{func} at {where()} cannot be predicted, it has no fake kernel: give it one "
        "(torch.library.register_fake), or measure instead."
    )


def two_devices(func, args, kwargs) -> WrongDevice:
    """The error for an operator that is given tensors of the host and of the card."""
    tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
    host = next((tensor for tensor in tensors if tensor.device.type == "cpu"), None)
    card = next((tensor for tensor in tensors if tensor.device == CARD), None)
    return WrongDevice(
        f"{func} at {where()} got {_shape(host)} on the CPU and {_shape(card)} on the GPU: "
        "move both with .to(device), the device that train is given."
    )


def other_device(device: torch.device) -> WrongDevice:
    """The error for a device that the predicted machine does not have."""
    return WrongDevice(
        f"train names the device {str(device)!r} at {where()}: a prediction is for one card, 'cuda' or 'cuda:0', "
        "and its host, 'cpu'."
    )


def compiled_code() -> Unpredictable:
    """The error for ``torch.compile``: compiled code runs eagerly here, and what it saves is unseen."""
    return Unpredictable(
        f"torch.compile at {where()} cannot be predicted: predict the loop without it, which gives an upper bound, "
        "or measure instead."
    )


def without_end(line: str, times: int) -> Unpredictable:
    """The error for a loop that waits for a number which never comes."""
    return Unpredictable(
        f"The loop at {line} asked the card {times:,} times in one step for a number that a prediction does not have, "
        "and may never end: bound it by a count (for _ in range(n)), or measure instead."
    )


def _shape(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return "a tensor"
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
