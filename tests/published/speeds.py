"""Published speeds beside what is predicted: the least time of a step, and the likely one."""

import json
from collections.abc import Iterator
from pathlib import Path

from memlab.protocol import Train
from memlab.run import predict
from memlab.units import format_seconds


def times(file: Path, train: Train) -> Iterator[str]:
    """The step times of the file's ``samples a second`` in Markdown; no estimate was fitted on them.

    Args:
        file: a card, and the speeds of each network by its batch size.
        train: takes ``network`` and ``batch_size``.
    """
    data = json.loads(file.read_text())
    yield "| card | network | batch | published | at least | probably | published, of probably |"
    yield "|---|---|--:|--:|--:|--:|--:|"
    for network, speeds in data["samples a second"].items():
        for batch, speed in speeds.items():
            trace = predict(train, gpu=data["card"], network=network, batch_size=int(batch), steps=2)
            seconds = int(batch) / speed
            told = " | ".join(map(format_seconds, (seconds, trace.least_seconds, trace.likely_seconds)))
            yield f"| {data['card']} | {network} | {batch} | {told} | {seconds / trace.likely_seconds:.2f} |"
