"""What a predicted script writes goes to a folder that is thrown away, and what it reads back comes from there.

The script sees one tree of files: its own, where there are any, in front of those that are really there. ``open`` and
the functions of ``os`` are exchanged in every module that is loaded. The process is the script's, so they stay so.
"""

import builtins
import importlib
import io
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any

from memlab.vgpu.cudnn import remembered

_READING = ("stat", "lstat", "access", "readlink", "statvfs", "chdir", "getxattr", "listxattr")
_CHANGING = ("utime", "chmod", "chown", "lchown", "setxattr", "truncate")
_PASSED = ("/dev", "/proc", "/sys")  # devices, what the kernel says of the process: no files
_MEMLABS = remembered.folder()  # what a prediction itself keeps, whatever is predicted: answers of cuDNN
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_real = SimpleNamespace(**vars(os), open_file=io.open)


class Overlay:
    """The tree that a script sees.

    Args:
        folder: what is in it is the script's own; there the files are that stand for others.
    """

    def __init__(self, folder: Path):
        self._top = str(folder.resolve())
        self._passed = (self._top, *_PASSED, str(_MEMLABS.absolute()))
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
                for name, value in list(getattr(module, "__dict__", {}).items()):
                    if id(value) in taken:
                        setattr(module, name, taken[id(value)])

        self._tell_libraries()

    def _tell_libraries(self) -> None:
        """Those that open files by themselves, past Python."""
        self._translate(sqlite3, "connect", lambda name: name if name == ":memory:" else self._written(name, keep=True))
        with suppress(ImportError):  # under Hugging Face's datasets
            self._translate(importlib.import_module("pyarrow"), "memory_map", self._seen)

    def _translate(self, module: Any, name: str, path: Callable[[Any], Any]) -> None:
        real = getattr(module, name)
        setattr(module, name, lambda first, *args, **kwargs: real(path(first), *args, **kwargs))

    def holds(self, path: Any) -> bool:
        """Whether it may be written as it is: an open file's number, a device, a file of the script's own."""
        if isinstance(path, int):
            return True
        parents = _parents(_absolute(path))
        return any(top in parents for top in self._passed)

    def _functions(self) -> dict[str, Callable[..., Any]]:
        ours: dict[str, Callable[..., Any]] = {"open": self._os_open, "mkdir": self._mkdir, "rmdir": self._rmdir}
        ours |= {"remove": self._remove, "unlink": self._remove, "rename": self._rename, "replace": self._rename}
        ours |= {"link": self._link, "symlink": self._symlink, "listdir": self._listdir, "scandir": self._scandir}
        ours |= {name: self._reading(getattr(os, name)) for name in _READING if hasattr(os, name)}
        return ours | {name: self._changing(getattr(os, name)) for name in _CHANGING if hasattr(os, name)}

    # Where a file is

    def _own(self, path: Any) -> str:
        return os.path.join(self._top, "files", _absolute(path).replace(":", "").lstrip(os.sep))

    def _is_gone(self, path: Any) -> bool:
        return not self._gone.isdisjoint(_parents(_absolute(path)))

    def _seen(self, path: Any) -> Any:
        """What is really read."""
        if path is None or self.holds(path):
            return path
        own = self._own(path)
        return own if _really_exists(own) or (self._gone and self._is_gone(path)) else path

    def _exists(self, path: Any) -> bool:
        return _really_exists(self._seen(path))

    def _written(self, path: Any, *, keep: bool = False) -> Any:
        """What is really written; with ``keep`` it goes on from what is there."""
        if self.holds(path):
            return path
        own, folder = self._own(path), os.path.dirname(_absolute(path))
        if not self._exists(folder):
            raise FileNotFoundError(2, "No such file or directory", path)
        _real.makedirs(os.path.dirname(own), exist_ok=True)
        if keep and not _really_exists(own) and self._exists(path):
            shutil.copyfile(path, own)
        return own

    def _new(self, path: Any) -> Any:
        """What is really written, where nothing may be yet."""
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
        if dir_fd is not None or not flags & _WRITING:
            return _real.open(self._seen(path), flags, mode, dir_fd=dir_fd)
        is_new = flags & os.O_CREAT and flags & os.O_EXCL
        return _real.open(self._new(path) if is_new else self._written(path, keep=not flags & os.O_TRUNC), flags, mode)

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        _real.mkdir(self._new(path), mode)

    def _remove(self, path: Any, *, dir_fd: int | None = None) -> None:
        if not self._exists(path):
            raise FileNotFoundError(2, "No such file or directory", path)
        if self._seen(path) != path or self.holds(path):
            _real.remove(self._seen(path))
        self._gone.add(_absolute(path))

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        if self._listdir(path):
            raise OSError(39, "Directory not empty", path)
        for folder in {path if self.holds(path) else self._own(path)}:
            if _really_exists(folder):
                _real.rmdir(folder)
        self._gone.add(_absolute(path))

    def _rename(self, source: Any, target: Any, *, src_dir_fd: Any = None, dst_dir_fd: Any = None) -> None:
        seen, own = self._seen(source), self._written(target)
        if seen != source or self.holds(source):
            _real.replace(seen, own)
        elif os.path.isdir(source):
            shutil.copytree(source, own)
        else:
            shutil.copyfile(source, own)
        self._gone.add(_absolute(source))

    def _link(self, source: Any, target: Any, **kwargs: Any) -> None:
        shutil.copyfile(source, self._new(target))

    def _symlink(self, source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        named = os.path.join(os.path.dirname(_absolute(target)), os.fspath(source))
        _real.symlink(self._seen(named), self._new(target))

    def _listdir(self, path: Any = ".") -> list[str]:
        return [entry.name for entry in self._scandir(path)]

    def _scandir(self, path: Any = ".") -> "_Entries":
        if self.holds(path):
            return _Entries(_real.scandir(path))
        own, seen = self._own(path), self._seen(path)
        entries = {}
        if seen == path or (_really_exists(path) and not self._is_gone(path)):
            entries = {e.name: e for e in _real.scandir(path) if not self._is_gone(os.path.join(path, e.name))}
        if seen != path:
            entries |= {entry.name: entry for entry in _real.scandir(own)}
        return _Entries(iter(entries.values()))

    def _reading(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def read(path: Any, *args: Any, **kwargs: Any) -> Any:
            return real(path if kwargs.get("dir_fd") is not None else self._seen(path), *args, **kwargs)

        return read

    def _changing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def change(path: Any, *args: Any, **kwargs: Any) -> Any:
            if self.holds(path) or self._seen(path) != path:
                return real(self._seen(path), *args, **kwargs)
            return real(self._written(path, keep=True), *args, **kwargs) if real is _real.truncate else None

        return change


class _Entries:
    """What ``os.scandir`` gives: to iterate, and to close."""

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


_KEPT = {"posix", "nt", "_io", "importlib._bootstrap_external", "_frozen_importlib_external"}


def _really_exists(path: Any) -> bool:
    try:
        _real.lstat(path)
    except (OSError, ValueError):
        return False
    return True


def _absolute(path: Any) -> str:
    return os.path.abspath(os.fsdecode(path))


def _parents(path: str) -> set[str]:
    """The path, and each folder above it."""
    return {path, *map(str, PurePath(path).parents)}
