"""The installed cuDNN that can be asked."""

import platform
import re
import sys
from importlib import metadata, util
from pathlib import Path

# The wheels that have it: PyTorch's CUDA builds for Linux bring one of them.
WHEELS = ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12")
OLDEST = 90800  # the first that can be asked without a device


def library() -> Path | None:
    """cuDNN's library, or None where there is none that can be asked: that takes Linux on x86-64."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or version() < OLDEST:
        return None
    spec = util.find_spec("nvidia")  # a folder that NVIDIA's wheels share
    places = spec.submodule_search_locations if spec else None
    files = (Path(place) / "cudnn" / "lib" / "libcudnn.so.9" for place in places or ())
    return next((file for file in files if file.exists()), None)


def version() -> int:
    """Of the wheel that is installed, 92000 for 9.20.0, or 0. Nothing is loaded."""
    for wheel in WHEELS:
        try:
            found = re.match(r"(\d+)\.(\d+)\.(\d+)", metadata.version(wheel))
        except metadata.PackageNotFoundError:
            continue
        if found:
            major, minor, patch = map(int, found.groups())
            return 10_000 * major + 100 * minor + patch
    return 0
