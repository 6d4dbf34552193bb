"""Files of a predicted script: writes go to a folder that is thrown away, and reads see it in front of the real files.

``open`` and the functions of ``os`` are replaced in every module that is loaded. The process runs nothing but the
script, so they stay replaced.
"""

import builtins
import glob
import importlib.machinery
import inspect
import io
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from memlab.vgpu.cudnn import disk_cache

_READING = ("stat", "lstat", "access", "readlink", "statvfs", "chdir", "getxattr", "listxattr")
_CHANGING = ("utime", "chmod", "chown", "lchown", "setxattr", "truncate")
_PASSED = ("/dev", "/proc", "/sys")  # devices, what the kernel says of the process: no files
_MEMLABS = disk_cache.folder()  # what a prediction itself keeps, whatever is predicted: answers of cuDNN
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_real = SimpleNamespace(**vars(os), open_file=io.open)


class Overlay:
    """The tree that a script sees.

    Args:
        folder: what is in it is the script's own; there the files are that stand for others.
    """

    def __init__(self, folder: Path):
        self._top = str(folder.resolve())
        self._files = os.path.join(self._top, "files")
        self._passed = {self._top, *_PASSED, str(_MEMLABS.absolute())}
        self._gone: set[str] = set()  # what is really there, and the script has removed

    def install(self) -> None:
        """From now on, in all modules of this process."""
        taken: dict[int, Any] = {}
        for name, ours in self._functions().items():
            taken[id(getattr(os, name))] = ours
        taken[id(io.open)] = self._open
        shutil._use_fd_functions = False  # type: ignore[attr-defined]  # rmtree names files by their paths
        for module in (builtins, *sys.modules.values()):
            if module is not None and getattr(module, "__name__", "") not in _KEPT:
                _exchange(module, taken)
        for class_ in filter(inspect.isclass, vars(glob).values()):  # under pathlib, since Python 3.13
            _exchange(class_, taken)
        sys.meta_path.insert(0, self)
        loader: Any = importlib.machinery.SourceFileLoader
        read = loader.get_data
        loader.get_data = lambda module, path: read(module, self._seen(path))
        self._tell_libraries()

    def find_spec(self, name: str, path: Iterable[str] | None, target: Any = None) -> ModuleSpec | None:
        """As ``sys.meta_path`` asks: a module that the script has written, as libraries keep the code of others."""
        folders = map(self._own, sys.path if path is None else path)
        spec = importlib.machinery.PathFinder.find_spec(name, [*filter(_really_exists, folders)])
        return spec if spec and spec.loader else None  # not a mere folder

    def _tell_libraries(self) -> None:
        """Those that open files by themselves, past Python."""
        self._translate(sqlite3, "connect", lambda name: name if name == ":memory:" else self._written(name, keep=True))
        with suppress(ImportError):  # under Hugging Face's datasets
            self._translate(importlib.import_module("pyarrow"), "memory_map", self._seen)

    def _translate(self, module: Any, name: str, path: Callable[[Any], Any]) -> None:
        real = getattr(module, name)
        setattr(module, name, lambda first, *args, **kwargs: real(path(first), *args, **kwargs))

    def _functions(self) -> dict[str, Callable[..., Any]]:
        ours: dict[str, Callable[..., Any]] = {"open": self._os_open, "mkdir": self._mkdir, "rmdir": self._rmdir}
        ours |= {"remove": self._remove, "unlink": self._remove, "rename": self._rename, "replace": self._rename}
        ours |= {"link": self._link, "symlink": self._symlink, "listdir": self._listdir, "scandir": self._scandir}
        ours |= {name: self._reading(getattr(os, name)) for name in _READING if hasattr(os, name)}
        return ours | {name: self._changing(getattr(os, name)) for name in _CHANGING if hasattr(os, name)}

    # Where a file is

    def holds(self, path: Any) -> bool:
        """Return True if a path may really be written: an open file's number, a device, a file of the script's own."""
        return isinstance(path, int) or _lies_in(self._passed, os.path.abspath(os.fsdecode(path)))

    def _passes(self, path: Any) -> bool:
        """Return True if a path is used as it is: it may be written, and does not lie in the overlay's own folder."""
        return self.holds(path) and (isinstance(path, int) or not _lies_in({self._files}, os.path.abspath(path)))

    def _absolute(self, path: Any) -> str:
        """The path by which the script knows a file; in a folder of its own, the current one has another."""
        return os.path.abspath(os.fsdecode(path)).removeprefix(self._files)

    def _there(self, path: Any) -> Any:
        """The path of what is really there."""
        return path if os.path.abspath(os.fsdecode(path)) == self._absolute(path) else self._absolute(path)

    def _own(self, path: Any) -> str:
        return os.path.join(self._files, self._absolute(path).replace(":", "").lstrip(os.sep))

    def _is_own(self, path: Any) -> bool:
        """Return True if an existing file can be changed in place: its path is used as it is, or the overlay has it."""
        return self._passes(path) or _really_exists(self._own(path))

    def _is_gone(self, path: Any) -> bool:
        return _lies_in(self._gone, self._absolute(path))

    def _seen(self, path: Any) -> Any:
        """Return the path to read from: the overlay's if it has the file or the script removed it, else the real."""
        if path is None or self._passes(path):
            return path
        own = self._own(path)
        return own if _really_exists(own) or (self._gone and self._is_gone(path)) else self._there(path)

    def _exists(self, path: Any) -> bool:
        return _really_exists(self._seen(path))

    def _written(self, path: Any, *, keep: bool = False) -> Any:
        """Return the path to write to; with ``keep`` the overlay's file begins as a copy of the existing one."""
        if self._passes(path):
            return path
        own, folder = self._own(path), os.path.dirname(self._absolute(path))
        if not self._exists(folder):
            raise FileNotFoundError(2, "No such file or directory", path)
        _make(os.path.dirname(own))
        if keep and not _really_exists(own) and self._exists(path):
            with _real.open_file(self._seen(path), "rb") as source, _real.open_file(own, "wb") as copy:
                shutil.copyfileobj(source, copy)
        return own

    def _new(self, path: Any) -> Any:
        """Return the path to write to for a file that must not exist yet."""
        if self._exists(path):
            raise FileExistsError(17, "File exists", path)
        return self._written(path)

    # What takes the place of the real functions

    def _open(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if "x" in mode:
            found = self._new(file)
        elif set(mode) & set("wa+"):
            found = self._written(file, keep="w" not in mode and ("a" in mode or self._exists(file)))
        else:
            found = self._seen(file)
        return _real.open_file(found, mode, *args, **kwargs)

    def _os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None or not flags & WRITING:
            return _real.open(self._seen(path), flags, mode, dir_fd=dir_fd)
        is_new = flags & os.O_CREAT and flags & os.O_EXCL
        return _real.open(self._new(path) if is_new else self._written(path, keep=not flags & os.O_TRUNC), flags, mode)

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        _real.mkdir(self._new(path), mode)

    def _remove(self, path: Any, *, dir_fd: int | None = None) -> None:
        if not self._exists(path):
            raise FileNotFoundError(2, "No such file or directory", path)
        if self._is_own(path):
            _real.remove(self._seen(path))
        self._gone.add(self._absolute(path))

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        if self._listdir(path):
            raise OSError(39, "Directory not empty", path)
        for folder in {path if self._passes(path) else self._own(path)}:
            if _really_exists(folder):
                _real.rmdir(folder)
        self._gone.add(self._absolute(path))

    def _rename(self, source: Any, target: Any, *, src_dir_fd: Any = None, dst_dir_fd: Any = None) -> None:
        if self._is_own(source):
            _real.replace(self._seen(source), self._written(target))
        elif os.path.isdir(source):
            shutil.copytree(source, target)
        else:
            shutil.copyfile(source, target)
        self._gone.add(self._absolute(source))

    def _link(self, source: Any, target: Any, **kwargs: Any) -> None:
        self._new(target)
        shutil.copyfile(source, target)

    def _symlink(self, source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        named = os.path.join(os.path.dirname(self._absolute(target)), os.fspath(source))
        _real.symlink(self._seen(named), self._new(target))

    def _listdir(self, path: Any = ".") -> list[str]:
        return [entry.name for entry in self._scandir(path)]

    def _scandir(self, path: Any = ".") -> "_Entries":
        if self._passes(path):
            return _Entries(_real.scandir(path))
        own, there = self._own(path), self._there(path)
        folders = [there] if _really_exists(there) and not self._is_gone(path) else []
        if _really_exists(own) or not folders:
            folders.append(own)
        entries: dict[str, Any] = {}
        for folder in folders:
            shown = (e for e in _real.scandir(folder) if folder == own or not self._is_gone(os.path.join(path, e.name)))
            entries |= {entry.name: entry for entry in shown}
        return _Entries(iter(entries.values()))

    def _reading(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def read(path: Any, *args: Any, **kwargs: Any) -> Any:
            return real(path if kwargs.get("dir_fd") is not None else self._seen(path), *args, **kwargs)

        return read

    def _changing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def change(path: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_own(path):
                return real(self._seen(path), *args, **kwargs)
            if real is _real.truncate or not self._exists(path):
                return real(self._written(path, keep=True), *args, **kwargs)
            return None  # of a file that is not the script's own: nobody looks

        return change


class _Entries:
    """The iterator and context manager that the replaced ``os.scandir`` returns."""

    def __init__(self, entries: Iterator[Any]):
        self._entries = entries

    def __iter__(self) -> Iterator[Any]:
        return self._entries

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> "_Entries":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """There is nothing to close."""


def _exchange(owner: Any, taken: dict[int, Any]) -> None:
    """Let names of a module, or static methods of a class, mean what takes the place of what they meant."""
    for name, value in list(getattr(owner, "__dict__", {}).items()):
        # Not isinstance: it asks the value for its class, and some warn of being deprecated when they are asked.
        if type(value) is staticmethod and id(value.__func__) in taken:
            setattr(owner, name, staticmethod(taken[id(value.__func__)]))
        elif id(value) in taken:
            setattr(owner, name, taken[id(value)])


_KEPT = {"posix", "nt", "_io", "importlib._bootstrap_external", "_frozen_importlib_external"}


def _really_exists(path: Any) -> bool:
    try:
        _real.lstat(path)
    except (OSError, ValueError):
        return False
    return True


def _make(folder: str) -> None:
    """A folder, with all above it."""
    if not _really_exists(folder):
        _make(os.path.dirname(folder))
        _real.mkdir(folder)


def _lies_in(folders: Set[str], path: str) -> bool:
    """Return True if the path, or a folder above it, is one of these. Libraries ask thousands of times."""
    while path not in folders:
        path, below = os.path.dirname(path), path
        if path == below:
            return False
    return True
