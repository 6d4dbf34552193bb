"""Changes in other people's Python while somebody needs them, for the threads that need them."""

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any

Change = tuple[Any, str, Any]  # the object, the name of its attribute, and what takes the attribute's place

_ABSENT = object()


class Patches:
    """A context. The changes are there while anybody, in any thread, is inside.

    Args:
        changes: gives them, when the first one enters; when the last one leaves, everything is as it was.
    """

    def __init__(self, changes: Callable[[], Iterable[Change]]):
        self._changes = changes
        self._lock = threading.Lock()
        self._inside = 0
        self._before: list[Change] = []

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._apply()
            self._inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._take_away()

    def _apply(self) -> None:
        try:
            for owner, name, change in self._changes():
                self._before.append((owner, name, vars(owner).get(name, _ABSENT)))
                setattr(owner, name, change)
        except BaseException:
            self._take_away()
            raise

    def _take_away(self) -> None:
        while self._before:
            owner, name, before = self._before.pop()
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)


def where(concerned: Callable[[], bool], answer: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is ``answer`` in the threads that are ``concerned``, and ``real`` in all others."""

    @functools.wraps(real)
    def called(*args: Any, **kwargs: Any) -> Any:
        return (answer if concerned() else real)(*args, **kwargs)

    return called


class _Class(type):
    """The metaclass of the classes that :func:`class_where` makes; each equals the real class, as a key of tables."""

    concerned: Callable[[], bool]
    answer: Any
    __wrapped__: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return (cls.answer if cls.concerned() else cls.__wrapped__)(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        real = cls.__wrapped__
        return isinstance(instance, (cls.answer, real) if isinstance(real, type) else cls.answer)

    def __eq__(cls, other: object) -> bool:
        return (other.__wrapped__ if isinstance(other, _Class) else other) is cls.__wrapped__

    def __hash__(cls) -> int:
        return hash(cls.__wrapped__)


def class_where(concerned: Callable[[], bool], answer: type, real: type) -> type:
    """A class that makes ``answer`` in the threads that are ``concerned``, else ``real``; both are its instances."""
    own = {"concerned": staticmethod(concerned), "answer": answer, "__wrapped__": real}
    return _Class(real.__name__, (), {**own, "__doc__": real.__doc__, "__module__": real.__module__})


def behind(value: Any) -> Any:
    """The real function or class, of one that :func:`where` or :func:`class_where` has made; else the value itself."""
    while isinstance(value, _Class) or getattr(value, "__code__", None) is _CALLED:
        value = value.__wrapped__
    return value


_CALLED = where(bool, bool, bool).__code__
