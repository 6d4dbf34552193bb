"""Environments for checks that need other packages than ``.venv`` has, kept in a cache folder."""

import subprocess
import sys
import tomllib
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from tests.standin.build import cache

ROOT = Path(__file__).parents[1]


def python_with(name: str, wanted: Collection[str], base: str = sys.executable) -> Path:
    """The Python of the environment with that name; made now if it is not there, or has other packages than ``wanted``.

    Args:
        base: the Python that it is made of.

    Raises:
        CalledProcessError: pip could not install it. What it did is kept, and the next call goes on.
    """
    folder = cache() / name
    python, marker = folder / "bin" / "python", folder / "installed"
    lines = "\n".join(wanted)
    if marker.exists() and marker.read_text() == lines:
        return python
    marker.unlink(missing_ok=True)
    subprocess.run([base, "-m", "venv", folder], check=True)
    list_of_them = folder / "requirements.txt"
    list_of_them.write_text(lines)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", list_of_them], check=True)
    marker.write_text(lines)  # last, so that an install that broke off is tried again
    return python


def python_of(version: str) -> str:
    """A Python of that version if one runs here (pyenv may have only its name), else the one that runs this."""
    name = f"python{version}"
    with suppress(OSError, subprocess.CalledProcessError):
        subprocess.run([name, "-c", ""], check=True, capture_output=True)
        return name
    return sys.executable


def pinned(*extras: str, without: Collection[str] = ()) -> list[str]:
    """Return the requirements of memlab and some extras, in the versions that were tested: a line each, for pip."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = [line for extra in extras for line in project["optional-dependencies"][extra]]
    named = {_name(line) for line in (*project["dependencies"], *optional)}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if _name(line) in named - set(without)]


def _name(line: str) -> str:
    return line.partition(">")[0].partition("=")[0].strip()
