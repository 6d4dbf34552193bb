"""A packed step put together again, as ``browser/page.js`` does it."""

from itertools import accumulate
from typing import Any


def whole(value: Any, shared: list[Any]) -> Any:
    """The value with its shared lists in place, and the times of events in seconds since the step began."""
    if not isinstance(value, dict):
        return value
    if "$" in value:
        return shared[value["$"]]
    made = {name: whole(part, shared) for name, part in value.items()}
    if "microseconds" in made:
        made["seconds"] = [passed / 1e6 for passed in accumulate(made.pop("microseconds"))]
    return made
