"""The buckets of DistributedDataParallel, known by who makes them: a step that fails ends before one is sent."""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from memlab.categories import Category
from memlab.patching import Change, Patches
from memlab.tracking.internals import makers_of_buckets
from memlab.tracking.storages import watching


def _changes() -> Iterator[Change]:
    for owner, name in makers_of_buckets():
        yield owner, name, _told(getattr(owner, name))


def _told(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def told(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as undo:
            for tracker in watching():
                tracker.born_as = Category.COMMUNICATION
                undo.callback(setattr, tracker, "born_as", None)
            return make(*args, **kwargs)

    return told


MADE = Patches(_changes)  # a context: what is allocated for buckets is communication
