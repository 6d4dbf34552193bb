"""An environment with a CUDA build of PyTorch and all that memlab's tests need."""

from pathlib import Path

from tests.environments import pinned, python_with

UNUSED = {"torch", "ruff", "mypy", "pre-commit", "playwright"}  # torch is another; the rest does not run there


def python_with_cuda(torch: str) -> Path:
    """The Python of the environment with that version; made now, which downloads gigabytes, if it is not there.

    Raises:
        CalledProcessError: pip could not install it. What it did is kept, and the next call goes on.
    """
    return python_with(f"cuda-torch-{torch}", requirements(torch))


def requirements(torch: str) -> list[str]:
    """Return the requirements of memlab and its tests, in the versions that were tested, but with this torch.

    ``===`` takes the version that is called just so: not a CPU build (``2.13.0+cpu``) that an index may have too.
    """
    return [f"torch==={torch}", *pinned("lab", "test", "models", without=UNUSED)]
