"""An operator's arguments by the names that PyTorch's ``native_functions.yaml`` gives them, with its defaults."""

from collections.abc import Sequence
from typing import Any


class Arguments:
    """The arguments of one call.

    Of ``aten.topk.default(tensor, 5)`` these are ``self``, ``k``, which is 5, and by default ``dim``, which is -1.
    """

    __slots__ = ("_args", "_func", "_kwargs")

    def __init__(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any] | None = None):
        self._func, self._args, self._kwargs = func, args, kwargs or {}

    def __getattr__(self, name: str) -> Any:
        argument = _arguments(self._func).get(name)
        if argument is None:
            raise AttributeError(f"{self._func} has no argument {name}")
        place, default = argument
        return self._args[place] if place < len(self._args) else self._kwargs.get(name, default)

    def get(self, name: str) -> Any:
        """Return an argument that only some overloads have; None where this one lacks it."""
        return getattr(self, name, None)


def _arguments(func: Any) -> dict[str, tuple[int, Any]]:
    """The place of each argument and its default."""
    known = _known.get(id(func))  # by id: operators live for ever, and hash slowly
    if known is None:
        arguments = enumerate(func._schema.arguments)
        known = _known[id(func)] = {argument.name: (place, argument.default_value) for place, argument in arguments}
    return known


_known: dict[int, dict[str, tuple[int, Any]]] = {}
