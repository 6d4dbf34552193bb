"""A prediction of one step, for tests that look at what the loop sees in it."""

from collections.abc import Callable
from typing import Any

from memlab import predict
from memlab.trace import Trace


def in_a_prediction(work: Callable, *, gpu: str = "T4", **options: Any) -> tuple[Any, Trace]:
    """Return the result of ``work(device)`` inside of a prediction, and the trace."""
    results = []

    def train(device):
        results.append(work(device))
        yield

    trace = predict(train, gpu=gpu, steps=1, **options)
    return results[0], trace


def seen(work: Callable, *, gpu: str = "T4") -> Any:
    """Return the result of ``work(device)`` inside of a prediction."""
    return in_a_prediction(work, gpu=gpu)[0]
