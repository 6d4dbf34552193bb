"""The target of ``memlab measure`` and ``memlab predict``: ``FILE:FUNCTION key=value ...``, or a script."""

import argparse
import ast
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from memlab.cli.report import output_file
from memlab.errors import BadValue
from memlab.files import working_folder


def add_arguments(parser: argparse.ArgumentParser, *, steps: int, budget: str, may_lack: bool = False) -> None:
    """The arguments that both commands take; ``budget`` is its help, the target of one ``may_lack``."""
    helped = "as in loop.py:train, or a script that trains"
    parser.add_argument("target", metavar="FILE[:FUNCTION]", nargs="?" if may_lack else None, help=helped)
    parser.add_argument("settings", nargs="*", metavar="key=value", help="passed on: arguments, or a script's options")
    parser.add_argument("--steps", type=read_value, default=steps, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--budget", metavar="SIZE", help=budget)
    parser.add_argument("--json", type=output_file, metavar="FILE", help="write the trace there")


def is_script(target: str) -> bool:
    """Return True if a target names a whole file, and not a function in it."""
    return ":" not in Path(target).name or os.path.exists(target)  # pathlib raises for a name that is too long


def load_function(target: str) -> Callable[..., Any]:
    """The function that ``FILE:FUNCTION`` names. The file runs as an import, its folder on ``sys.path``.

    Raises:
        BadValue: it names no Python file, one that raises an error of its own, or one without that function.
    """
    file, colon, name = target.rpartition(":")
    if not (colon and file and name):
        raise BadValue(f"{target!r} does not name a function: give FILE:FUNCTION, as in loop.py:train.")
    module = _load(_check_file(Path(file)))
    if not hasattr(module, name):
        functions = ", ".join(key for key, value in vars(module).items() if _defined_in(module, value))
        raise BadValue(
            f"{file} has no function {name!r}: give one that it defines ({functions or 'it has none'}), or {file} "
            "alone, to run it as a script."
        )
    return getattr(module, name)


def read_settings(words: Sequence[str]) -> dict[str, Any]:
    """``["batch_size=8", "precision=bf16"]`` as keyword arguments: Python literals, anything else as text.

    Raises:
        BadValue: for a word that is not ``key=value``.
    """
    settings = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not (equals and key.isidentifier()):
            raise BadValue(f"{word!r} is not a setting: give key=value, as in batch_size=8.")
        settings[key] = read_value(text)
    return settings


def read_value(text: str) -> Any:
    """A Python literal, anything else as text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):  # all that its documentation names
        return text


def _check_file(path: Path) -> Path:
    if path.suffix == ".ipynb":
        raise BadValue(f"{path} is a notebook: copy the train function to a .py file and give that.")
    if path.suffix != ".py":
        raise BadValue(f"{path} is not a Python file: give FILE:FUNCTION, where FILE ends in .py.")
    if not os.path.isfile(path):
        raise BadValue(f"{path} is not there (looked in {working_folder()}): give the path of a Python file.")
    return path


def _load(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.parent.resolve()))  # as `python FILE` does
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # for a file whose name ends in .py there is one
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BadValue(
            f"{path} does not load ({type(error).__name__}: {error}): run python {path} to see where, and mend it."
        ) from error
    return module


def _defined_in(module: ModuleType, value: object) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__
