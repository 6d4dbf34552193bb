"""The figure that a notebook is about, predicted, beside what PyTorch's CUDA allocator counts for the same loop."""

from typing import Any

import torch

from memlab.lab import recorded
from memlab.lab.tables import Table, table
from memlab.protocol import Train
from memlab.run import measure, predict
from memlab.sizes import size
from memlab.trace import Trace

RECORD = "key-figures.json"  # written by ``python -m tests.standin T4 -m tests.cuda.key_figures``


def key_figure(notebook: str, train: Train, /, *, gpu: str = "T4", **settings: Any) -> Table:
    """Predict the peak of a loop, and show beside it what PyTorch's allocator counts, with the difference in bytes.

    With a CUDA card, the loop runs on it and is predicted for it. Without one, the count is a recorded one: that of
    PyTorch's CUDA build on a stand-in for ``gpu``, whose kernels compute nothing (``tests/standin``). At the smallest
    size it is shown alone, because ``tests/lab/test_key_figures.py`` predicts the same loop.

    Args:
        notebook: its number, under which the count was recorded.
        train: the loop.
        gpu: the card to predict for where there is none.
        **settings: of ``train``; ``world_size``, where it trains as rank 0 of so many.
    """
    if torch.cuda.is_available():
        return _measured(train, settings)
    counted = recorded.figures(RECORD)["figures"][notebook]
    source = f"counted by PyTorch's own CUDA allocator, on a stand-in for a {gpu} (recorded, no real GPU)"
    if size().name == "ci":
        return _table((source, counted))
    predicted = predict(train, gpu=gpu, **settings).peak_allocated
    return _compared(f"predicted for a {gpu}, just now", predicted, source, counted)


def count(train: Train, /, *, world_size: int | None = None, **settings: Any) -> Trace:
    """Measure a loop on the CUDA card, as :func:`memlab.measure` does; of several ranks the first alone.

    The others are not there: collectives answer at once and send nothing, which PyTorch's allocator does not see.
    NCCL's own buffers, which are not PyTorch's, are not made.
    """
    from memlab.vgpu.alone import alone  # here, because a PyTorch that cannot carry the virtual GPU can still measure

    with alone(world_size):
        return measure(train, device="cuda", **settings)


def _measured(train: Train, settings: dict[str, Any]) -> Table:
    from memlab.vgpu.lookup import card_like  # here, as above

    card = torch.cuda.get_device_properties(torch.cuda.current_device())
    run = count(train, **settings)
    source = f"measured on this {card.name}, just now" + (", out of memory" if run.oom else "")
    known = card_like(card.name, 10 * card.major + card.minor, card.multi_processor_count, card.total_memory)
    if known is None:
        return _table((source, run.peak_allocated))
    predicted = predict(train, gpu=known.name, **settings).peak_allocated
    return _compared(f"predicted for the {known.name}, just now", predicted, source, run.peak_allocated)


def _compared(prediction: str, predicted: int, source: str, counted: int) -> Table:
    return _table((prediction, predicted), (source, counted), ("difference", predicted - counted))


def _table(*rows: tuple[str, int]) -> Table:
    return table(["peak allocated", "bytes", ""], [[name, f"{count:,}", count] for name, count in rows])
