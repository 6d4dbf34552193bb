"""A cache of runs and predictions, for a notebook that runs once for each of its changes.

The results lie in files, because each change runs in a process of its own. Only loops in ``notebooks/ranks`` are kept:
no cell can change them, since real ranks import them, seeded, in processes of their own, whose start takes longer than
all the rest.
"""

import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import memlab
from memlab import cluster
from memlab.lab import challenge


@contextmanager
def spared() -> Iterator[None]:
    """While this is in force, no run of such a loop and no prediction of one is made twice."""
    with ExitStack() as changes:
        folder = Path(changes.enter_context(TemporaryDirectory()))
        for module, name in ((cluster, "measure"), (memlab, "predict"), (memlab, "measure"), (challenge, "measure")):
            answer = _remembering(getattr(module, name), folder)
            changes.enter_context(mock.patch.object(module, name, answer, create=True))
        yield


def _remembering(work: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    def answered(train: Callable[..., Any], /, **settings: Any) -> Any:
        if not train.__module__.startswith("ranks."):  # a cell's own, which a change may have changed
            return work(train, **settings)
        key = repr((work.__module__, work.__name__, train.__module__, train.__qualname__, sorted(settings.items())))
        file = folder / sha256(key.encode()).hexdigest()
        if not file.exists():
            file.write_bytes(pickle.dumps(work(train, **settings)))
        return pickle.loads(file.read_bytes())

    return answered
