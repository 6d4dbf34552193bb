"""A training script as it is: a file and the words of its command line."""

import sys
import types
from pathlib import Path
from typing import Any, Self

from memlab.errors import BadValue
from memlab.files import working_folder
from memlab.script.options import Option, in_source


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
        known = {option.name: option for option in in_source(self.path)}
        words = (known.get(name, Option(f"--{name}")).word(value) for name, value in settings.items())
        return type(self)(self.path, *self.arguments, *filter(None, words))

    def __call__(self, device: object) -> None:
        """Run it in this process, as ``python`` would; it chooses its device itself."""
        sys.argv[:] = [str(self.path), *self.arguments]
        sys.path.insert(0, str(self.path.parent.resolve()))
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        main.__dict__.update(__file__=str(self.path), __builtins__=__builtins__)
        exec(compile(self.path.read_bytes(), str(self.path), "exec", dont_inherit=True), main.__dict__)


def _checked(path: Path) -> Path:
    if path.is_dir():
        raise BadValue(f"{path} is a folder: give the script in it that trains.")
    if not path.is_file():
        raise BadValue(f"{path} is not there (looked in {working_folder()}): give the path of a Python script.")
    if path.suffix == ".ipynb":
        raise BadValue(f"{path} is a notebook: copy its train function to a .py file and give FILE:FUNCTION.")
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise BadValue(f"{path} is not Python ({error}): give a script that python runs.") from None
    return path
