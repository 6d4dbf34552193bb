"""A ``train`` function, named so that another process can import it: the file that defines it, and its name there."""

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

from memlab.errors import BadTrain, BadValue
from memlab.protocol import Train

REMEDY = "write it to a file beside the notebook (%%writefile train.py at the top of its cell) and import it from there"


def target_of(train: Train) -> str:
    """``"/folder/data_parallel.py:train"``: what other processes import.

    Raises:
        BadTrain: they cannot import it.
    """
    name = getattr(train, "__qualname__", "")
    module = sys.modules.get(getattr(train, "__module__", ""))
    file = getattr(module, "__file__", None)
    words = getattr(train, "__name__", repr(train))
    if not inspect.isfunction(train) or name == "<lambda>" or "<locals>" in name:
        what = f"{words} is no function at the top level of a module"
    elif module is None or module.__name__ == "__main__" or file is None:
        what = f"{words} is defined in a notebook's cell or in the script that runs"
    elif getattr(module, name, None) is not train:
        what = f"{words} is not what {module.__name__}.{name} means now"
    else:
        return f"{Path(file).resolve()}:{name}"
    raise BadTrain(f"{what}, so the ranks, which are processes of their own, cannot import it: {REMEDY}.")


def load(target: str) -> Train:
    """The function that :func:`target_of` named, its module imported from its own folder, before all others.

    Raises:
        BadValue: there is no such file or function.
    """
    file, _, name = target.rpartition(":")
    path = Path(file).resolve()
    if not (path.is_file() and path.suffix == ".py"):
        raise BadValue(f"{target!r} does not name a function: give FILE.py:FUNCTION, as in data_parallel.py:train.")
    module = _of_package(path) if (path.parent / "__init__.py").is_file() else _alone(path)
    if not callable(getattr(module, name, None)):
        raise BadValue(f"{file} has no function {name!r}: give one that it defines.")
    return getattr(module, name)


def _of_package(path: Path) -> Any:
    """A module of a package, imported by its full name, for such modules import each other by theirs."""
    names = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    sys.path.insert(0, str(folder))
    return importlib.import_module(".".join(names))


def _alone(path: Path) -> Any:
    """A file, which may have the name of a module that is loaded; its neighbours can be imported."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # for a file whose name ends in .py there is one
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module
