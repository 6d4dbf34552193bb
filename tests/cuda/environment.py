"""An environment with a CUDA build of PyTorch and all that memlab's tests need, kept in a cache folder."""

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.standin.build import cache

ROOT = Path(__file__).parents[2]


def python_with_cuda(torch: str) -> Path:
    """The Python of the environment with that version; made now, which downloads gigabytes, if it is not there.

    Raises:
        CalledProcessError: pip could not install it. What it did is kept, and the next call goes on.
    """
    folder = cache() / f"cuda-torch-{torch}"
    python, marker = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join(requirements(torch))
    if marker.exists() and marker.read_text() == wanted:
        return python
    marker.unlink(missing_ok=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    list_of_them = folder / "requirements.txt"
    list_of_them.write_text(wanted)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", list_of_them], check=True)
    marker.write_text(wanted)  # last, so that an install that broke off is tried again
    return python


def requirements(torch: str) -> list[str]:
    """What the environment holds: what memlab and its tests need, in the versions that were tested, but this torch.

    ``===`` takes the version that is called just so: not a CPU build (``2.13.0+cpu``) that an index may have too.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = {_name(line) for line in (*project["dependencies"], *extras["lab"], *extras["test"], *extras["models"])}
    pinned = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if _name(line) in named - UNUSED]
    return [f"torch==={torch}", *pinned]


UNUSED = {"torch", "ruff", "mypy", "pre-commit", "playwright"}  # torch is another; the rest does not run there


def _name(line: str) -> str:
    return line.partition(">")[0].partition("=")[0].strip()
