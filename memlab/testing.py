"""Memory as a regression test, on machines without a GPU: the pytest fixture ``predicted_peak``.

A peak is recorded in a file beside the test, which is committed; a test fails when the prediction has grown. pytest
loads this module where memlab is installed.
"""

import json
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memlab.text import capital, listed
from memlab.units import format_bytes

if TYPE_CHECKING:
    from memlab.trace import Trace

UPDATE = "--update-peaks"
TOLERANCE = 0.01
MOST_TOLD = 4  # parts of a difference
PARTS = 12  # that are recorded; the rest together


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--update-peaks``."""
    group = parser.getgroup("memlab")
    group.addoption(
        UPDATE, action="store_true", help="record the peaks that predicted_peak predicts, in the place of old ones"
    )


@pytest.fixture
def predicted_peak(request: pytest.FixtureRequest) -> "PredictedPeak":
    """``predicted_peak(train, gpu="T4", batch_size=8)`` fails when that takes more than was recorded."""
    file = request.path.with_suffix(".peaks.json")
    return PredictedPeak(file, request.node.name, updates=request.config.getoption(UPDATE))


class PredictedPeak:
    """Predicts peaks and holds them to those that are recorded.

    Args:
        file: where they are recorded, by test.
        test: its name.
        updates: record what is predicted, instead of holding it to what is recorded.
    """

    def __init__(self, file: Path, test: str, *, updates: bool = False):
        self._file = file
        self._test = test
        self._updates = updates
        self._calls = 0

    def __call__(self, train: Any, /, *, gpu: str, tolerance: float = TOLERANCE, **options: Any) -> "Trace":
        """Predict the peak of a ``train`` function, or of a ``memlab.Script``.

        Args:
            train: as :func:`memlab.predict` takes it.
            gpu: the card, ``"A100-40GB"``.
            tolerance: by which part of the recorded peak the predicted one may be higher. If it is lower by more than
                that, a warning says that the record is old.
            **options: of :func:`memlab.predict`, and settings of ``train``.

        Returns:
            The prediction.

        Raises:
            AssertionError: the peak has grown, or the card has no room for it, or none was recorded.
        """
        from memlab.run import predict

        trace = predict(train, gpu=gpu, **options)
        self._calls += 1
        key = self._test if self._calls == 1 else f"{self._test} {self._calls}"
        assert trace.oom is None, f"{capital(trace.sentence)}, predicted for {trace.device}."
        recorded = json.loads(self._file.read_text()) if self._file.exists() else {}
        now = summary(trace)
        if self._updates:
            self._write(recorded | {key: now})
            return trace
        before = recorded.get(key)
        assert before is not None, f"{self._file.name} has no peak of {key!r}: record it with pytest {UPDATE}."
        self._compare(before, now, tolerance)
        return trace

    def _write(self, peaks: Mapping[str, Any]) -> None:
        from memlab.files import write_atomically

        write_atomically(self._file, json.dumps(dict(sorted(peaks.items())), indent=1) + "\n")

    def _compare(self, before: Mapping[str, Any], now: Mapping[str, Any], tolerance: float) -> None:
        old, new = before["peak_allocated"], now["peak_allocated"]
        accept = f"If that is wanted, record it with pytest {UPDATE}."
        assert new <= (1 + tolerance) * old, f"{difference(before, now)}. {accept}"
        if new < (1 - tolerance) * old:
            warnings.warn(f"{difference(before, now)}. {accept}", stacklevel=3)


def summary(trace: "Trace") -> dict[str, Any]:
    """Sum a peak up for the record: bytes, and the largest parts of it by category and module.

    Modules of one kind are one part: ``"blocks.*.mlp"``.
    """
    return {
        "gpu": trace.device,
        "torch": trace.torch_version,
        "peak_allocated": trace.peak_allocated,
        "peak_reserved": trace.peak_reserved,
        "parts": dict(_largest(trace)),
    }


def _largest(trace: "Trace") -> Iterator[tuple[str, int]]:
    from memlab.alive import alike, alive

    counts: Counter[str] = Counter()
    for one in alive(trace, trace.peak_index):
        name = one.storage.name.rpartition(".")[0] if one.storage.name else one.born.module if one.born else ""
        kind = alike(name)
        counts[f"{one.storage.category.plural} of {kind}" if kind else one.storage.category.plural] += one.bytes
    largest = counts.most_common(PARTS)
    yield from largest
    if rest := trace.peak_allocated - sum(count for _, count in largest):
        yield "others", rest


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Say how one summary differs from another: the peaks, and the parts that changed the most."""
    changes = Counter(now["parts"])
    changes.subtract(before["parts"])
    direction = 1 if now["peak_allocated"] >= before["peak_allocated"] else -1
    largest = sorted(changes.items(), key=lambda change: -direction * change[1])[:MOST_TOLD]
    told = [
        f"{'+' if count > 0 else '-'}{format_bytes(abs(count))} {part}"
        for part, count in largest
        if direction * count > 0
    ]
    versions = "" if now["torch"] == before["torch"] else f" (torch {before['torch']} to {now['torch']})"
    peaks = f"{format_bytes(before['peak_allocated'])} to {format_bytes(now['peak_allocated'])}"
    return f"The predicted peak went from {peaks} on {now['gpu']}{versions}: {listed(told)}"
