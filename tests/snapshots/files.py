"""Snapshots for tests: PyTorch's own of a run that died, and some made by hand."""

import gzip
import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

BASE = 0x7F00_0000_0000
DEAD_RUN = pickle.loads(gzip.decompress((Path(__file__).parent / "dead_run.pickle.gz").read_bytes()))
# What PyTorch said when it ended.
DEAD_RUN_SAID = (
    "CUDA out of memory. Tried to allocate 11.18 GiB. GPU 0 has a total capacity of 14.56 GiB of which 9.48 GiB is "
    "free. Including non-PyTorch memory, this process has 5.08 GiB memory in use. Of the allocated memory 4.42 GiB is "
    "allocated by PyTorch, and 553.75 MiB is reserved by PyTorch but unallocated."
)


def written(folder: Path, content: object, name: str = "snapshot.pickle") -> Path:
    """A pickle of it."""
    path = folder / name
    path.write_bytes(pickle.dumps(content, protocol=4))
    return path


def frames(*calls: str) -> list[dict[str, Any]]:
    """Frames, the innermost first: ``"train.py:31 step"``."""
    places = [(call.partition(" ")[0].rpartition(":"), call.partition(" ")[2]) for call in calls]
    return [{"filename": file, "line": int(line), "name": name} for (file, _, line), name in places]


def event(action: str, place: int, size: int, stack: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """An entry of a trace."""
    return {"action": action, "addr": BASE + place, "size": size, "stream": 0, "frames": list(stack)}


def freed(place: int, size: int) -> list[dict[str, Any]]:
    """The entries of a free."""
    return [event("free_requested", place, size), event("free_completed", place, size)]


def snapshot(
    trace: Iterable[dict[str, Any]], total: int, blocks: Iterable[tuple[int, int, str]], kind: str = "large"
) -> dict[str, Any]:
    """A snapshot with one segment of ``total`` bytes, of which each block has a place, a size and a state."""
    plain = [{"address": BASE + place, "size": size, "state": state, "frames": []} for place, size, state in blocks]
    segment = {"device": 0, "address": BASE, "total_size": total, "segment_type": kind, "stream": 0, "blocks": plain}
    return {"segments": [segment], "device_traces": [list(trace)]}
