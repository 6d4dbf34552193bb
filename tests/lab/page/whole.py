"""A packed step put together again, as ``browser/page.js`` does it."""

from itertools import accumulate
from typing import Any


def whole(value: Any, shared: list[Any]) -> Any:
    """The value with its shared lists in place, and events with their storages and the seconds since the step began."""
    if isinstance(value, list):
        return [whole(part, shared) for part in value]
    if not isinstance(value, dict):
        return value
    if "$" in value:
        return shared[value["$"]]
    made = {name: whole(part, shared) for name, part in value.items()}
    if "microseconds" in made:
        made["seconds"] = [passed / 1e6 for passed in accumulate(made.pop("microseconds"))]
        youngest, made["storage"] = -1, []
        for age in made.pop("age"):
            made["storage"].append(youngest - age)
            youngest = max(youngest, youngest - age)
    return made
