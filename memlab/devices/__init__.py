"""The devices that a run trains on and measures: the CPU and CUDA cards."""

import torch

from memlab.devices.base import Device
from memlab.devices.cpu import Cpu
from memlab.devices.cuda import Cuda
from memlab.errors import BadValue

__all__ = ["Cpu", "Cuda", "Device", "open_device"]


def open_device(device: str | torch.device | None) -> Cpu | Cuda:
    """The device to measure on: the one named, else CUDA where there is one, else the CPU.

    Raises:
        BadValue: for a device that this machine lacks or that memlab cannot measure.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    legal = "'cpu', 'cuda' or 'cuda:1'"
    try:
        device = torch.device(device)
    except RuntimeError:
        raise BadValue(f"device {device!r} is not a device that torch knows: give {legal}.") from None
    if device.type == "cpu":
        return Cpu()
    if device.type != "cuda":
        raise BadValue(f"device {str(device)!r} cannot be measured: give {legal}.")
    if (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count()
        raise BadValue(
            f"device {str(device)!r} is not here, torch sees {found} CUDA devices: give 'cpu' or leave it out."
        )
    return Cuda(device)
