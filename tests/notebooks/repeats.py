"""What is asked again with the same arguments is answered as before, while a notebook runs with changes, one by one.

Only where no cell has a say: training loops in ``notebooks/ranks``, which real ranks import, seeded and in processes of
their own. To start these takes longer than all the rest.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import memlab
from memlab import cluster
from memlab.lab import challenge


@contextmanager
def spared() -> Iterator[None]:
    """While this is in force, no run of such a loop and no prediction of one is made twice."""
    with ExitStack() as changes:
        for module, name in ((cluster, "measure"), (memlab, "predict"), (memlab, "measure"), (challenge, "measure")):
            answer = _remembering(getattr(module, name))
            changes.enter_context(mock.patch.object(module, name, answer, create=True))
        yield


def _remembering(work: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[str, Any] = {}

    def answered(train: Callable[..., Any], /, **settings: Any) -> Any:
        if not train.__module__.startswith("ranks."):  # a cell's own, which a change may have changed
            return work(train, **settings)
        key = repr((train.__module__, train.__qualname__, sorted(settings.items())))
        if key not in known:
            known[key] = work(train, **settings)
        return list(known[key]) if isinstance(known[key], list) else known[key]

    return answered
