"""A training script as it is: a file and the words of its command line."""

import copy
import os
import sys
import types
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from memlab.errors import BadValue
from memlab.files import working_folder
from memlab.script.options import Option, in_source, with_constants


class Words(list[str]):
    """A command line that knows whether it was read: argparse, click, absl and others take a slice or go through it."""

    was_read = False

    def __getitem__(self, place: Any) -> Any:
        self.was_read |= place != 0  # the script's own name
        return super().__getitem__(place)

    def __iter__(self) -> Iterator[str]:
        self.was_read = True
        return super().__iter__()


class Command:
    """A file, and what stands behind it on a command line; see :class:`memlab.script.Script`.

    Attributes:
        module: its name, where it is started by that (``python -m``).
        environment: variables that its launcher sets.
        values: of constants and arguments in its source that are changed, by the keys of their options.
        words: its command line, once it runs.
    """

    def __init__(self, path: str | Path, *arguments: object, module: str | None = None):
        self.path = _checked(Path(path))
        self.arguments = tuple(map(str, arguments))
        self.module = module
        self.environment: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.words = Words()
        self.__name__ = module or self.path.name

    @classmethod
    def of_module(cls, module: str, *arguments: object) -> Self:
        """Return the command that ``python -m module`` runs.

        Raises:
            BadValue: there is no such module.
        """
        place = Path(*module.split("."))
        folders = [Path(), *map(Path, sys.path)]
        files = (folder / file for folder in folders for file in (place.with_suffix(".py"), place / "__main__.py"))
        found = next(filter(os.path.isfile, files), None)
        if found is None:
            raise BadValue(f"{module} is no module (looked in {working_folder()}): give one that python -m runs.")
        return cls(found, *arguments, module=module)

    def __repr__(self) -> str:
        return " ".join((self.__name__, *self.arguments))

    def with_words(self, *words: str) -> Self:
        """The same script with more arguments; empty ones are left out."""
        new = copy.copy(self)
        new.arguments = (*self.arguments, *filter(None, words))
        return new

    def with_option(self, option: Option, value: Any) -> Self:
        """The same script with another value of an option, on its command line or in its source."""
        if not option.place:
            return self.with_words(option.word(value))
        new = copy.copy(self)
        new.values = {**self.values, option.key: value}
        return new

    def within(self, environment: dict[str, str]) -> Self:
        """The same script with these variables of the environment."""
        new = copy.copy(self)
        new.environment = environment
        return new

    def with_options(self, **settings: Any) -> Self:
        """The same script, with settings as options: ``batch_size=32`` is ``--batch-size=32`` where it knows that.

        True is an option alone where the script defines it so, and then False is none.
        """
        known = {option.name: option for option in in_source(self.path)}
        return self.with_words(*(known.get(name, Option(f"--{name}")).word(value) for name, value in settings.items()))

    def check_read(self, *, was_cut_off: bool) -> None:
        """Refuse arguments that the script, which has run, has not looked at: they change nothing.

        One that was cut off, and names ``argv``, may have looked at them after its training: at where to save, say.

        Raises:
            BadValue: there are some.
        """
        if was_cut_off and b"argv" in self.path.read_bytes():
            return
        if self.arguments and not self.words.was_read:
            raise BadValue(
                f"{self.__name__} does not read its command line, so {' '.join(self.arguments)} changes nothing: "
                "have it take an option (argparse), or leave that out."
            )

    def __call__(self, device: object) -> None:
        """Run it in this process, as ``python`` would; it chooses its device itself."""
        sys.argv = self.words = Words([str(self.path), *self.arguments])
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        main.__dict__.update(__file__=str(self.path), __builtins__=__builtins__)
        if self.module is None:
            sys.path.insert(0, str(self.path.parent.resolve()))
        else:
            sys.path.insert(0, os.getcwd())
            is_package = self.path.name == "__main__.py"
            main.__package__ = self.module if is_package else self.module.rpartition(".")[0]
            main.__spec__ = find_spec(f"{self.module}.__main__" if is_package else self.module)
        source = with_constants(self.path, self.values) if self.values else self.path.read_bytes()
        exec(compile(source, str(self.path), "exec", dont_inherit=True), main.__dict__)


def _checked(path: Path) -> Path:
    if os.path.isdir(path):  # pathlib raises for a name that is too long
        raise BadValue(f"{path} is a folder: give the script in it that trains.")
    if not os.path.isfile(path):
        raise BadValue(f"{path} is not there (looked in {working_folder()}): give the path of a Python script.")
    if path.suffix == ".ipynb":
        raise BadValue(f"{path} is a notebook: copy its train function to a .py file and give FILE:FUNCTION.")
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise BadValue(f"{path} is not Python ({error}): give a script that python runs.") from None
    return path
