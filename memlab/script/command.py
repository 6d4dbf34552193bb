"""A training script as it is: a file and the words of its command line."""

import ast
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from memlab.errors import BadValue


class Command:
    """A file, and what stands behind it on a command line; see :class:`memlab.script.Script`."""

    def __init__(self, path: str | Path, *arguments: object):
        self.path = _checked(Path(path))
        self.arguments = tuple(map(str, arguments))
        self.__name__ = self.path.name

    def __repr__(self) -> str:
        return " ".join((self.__name__, *self.arguments))

    def with_options(self, **settings: Any) -> Self:
        """The same script, with settings as options: ``batch_size=32`` is ``--batch-size=32`` where it knows that.

        True is an option alone where the script defines it so, and then False is none.
        """
        known = {option.name: option for option in _options(self.path)}
        words = (known.get(name, Option(f"--{name}")).word(value) for name, value in settings.items())
        return type(self)(self.path, *self.arguments, *filter(None, words))

    def __call__(self, device: object) -> None:
        """Run it in this process, as ``python`` would; it chooses its device itself."""
        sys.argv[:] = [str(self.path), *self.arguments]
        sys.path.insert(0, str(self.path.parent.resolve()))
        runpy.run_path(str(self.path), run_name="__main__")


@dataclass(frozen=True)
class Option:
    """An option of a command line, ``"--batch-size"``; ``is_flag`` where it takes no value."""

    flag: str
    is_flag: bool = False

    @property
    def name(self) -> str:
        """As a setting is named: ``"batch_size"``."""
        return self.flag.lstrip("-").replace("-", "_")

    def word(self, value: Any) -> str:
        """What stands on the command line for this value; nothing for a flag that is not set."""
        if self.is_flag and isinstance(value, bool):
            return self.flag if value else ""
        return f"{self.flag}={value}"


def _options(path: Path) -> Iterator[Option]:
    """The options that a file gives to ``add_argument``."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            names = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            actions = [ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg == "action"]
            for name in names:
                if name.startswith("--"):
                    yield Option(name, is_flag="'store_true'" in actions)


def _checked(path: Path) -> Path:
    if path.is_dir():
        raise BadValue(f"{path} is a folder: give the script in it that trains.")
    if not path.is_file():
        raise BadValue(f"{path} is not there (looked in {Path.cwd()}): give the path of a Python script.")
    if path.suffix == ".ipynb":
        raise BadValue(f"{path} is a notebook: copy its train function to a .py file and give FILE:FUNCTION.")
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise BadValue(f"{path} is not Python ({error}): give a script that python runs.") from None
    return path
