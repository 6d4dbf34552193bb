"""DTensor's propagation of shapes, hidden from trackers: it runs an operator on whole shapes to find the result's."""

import functools
from collections.abc import Iterator
from typing import Any

from memlab.patching import Change, Patches
from memlab.tracking.internals import modes_above, sharding_propagator


def _changes() -> Iterator[Change]:
    propagator = sharding_propagator()
    name = "_propagate_tensor_meta_non_cached"
    propagate = getattr(propagator, name, None)
    if propagate is None:
        return

    @functools.wraps(propagate)
    def unseen(*args: Any, **kwargs: Any) -> Any:
        with modes_above(None):
            return propagate(*args, **kwargs)

    yield propagator, name, unseen


UNSEEN = Patches(_changes)  # a context: trackers do not see it, once torch.distributed.tensor is imported
