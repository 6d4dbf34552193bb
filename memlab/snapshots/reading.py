"""Snapshots of PyTorch's allocator, read from a file without running what is in it.

A pickle can name any function, and is code. A snapshot needs none: it is lists, dictionaries, text and numbers. The
keys are those of ``torch/csrc/cuda/memory_snapshot.cpp``; in PyTorch 2.0 a block has ``history`` and no address.
"""

import gc
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from memlab.errors import BadValue

FIRST_BYTE = b"\x80"  # of a pickle since protocol 2, which has been the least for twenty years; of no text in UTF-8
_ARCHIVE = b"PK\x03\x04"  # of what torch.save writes
_WRITE_ONE = "torch.cuda.memory._dump_snapshot(FILE) writes one"


@dataclass(frozen=True)
class Snapshot:
    """One GPU's allocator: what it holds, and what it did before, as far as that was recorded.

    Attributes:
        name: the file's.
        device: the GPU's number.
        others: how many further GPUs the file is about, of which less was held.
        segments: as ``torch.cuda.memory_snapshot()`` gives them; every block has an address and frames.
        trace: allocations, frees and segments, the oldest first. Empty: none was recorded.
        is_predicted: whether memlab wrote it, of a virtual GPU.
    """

    name: str
    device: int
    others: int
    segments: tuple[dict[str, Any], ...]
    trace: tuple[dict[str, Any], ...]
    is_predicted: bool


class _Refused(Exception):
    """The pickle names something that is no plain value."""


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise _Refused(f"{module}.{name}")

    def persistent_load(self, _: object) -> NoReturn:
        raise _Refused("an object that is kept outside of it")


def is_snapshot(head: bytes) -> bool:
    """True if a file that begins so is a pickle, or an archive of ``torch.save``, rather than a log."""
    return head.startswith((FIRST_BYTE, _ARCHIVE))


def read(path: str | Path) -> Snapshot:
    """Read the snapshot of the GPU that holds the most.

    Raises:
        BadValue: the file cannot be read, is cut short, holds anything but plain values, or is no snapshot.
    """
    shown = repr(str(path)[:200])
    whole = _load(path, shown)
    segments: Any = whole
    traces: list[Any] = []
    if isinstance(whole, dict):
        segments, traces = whole.get("segments"), whole.get("device_traces") or []
    with of_a_snapshot(path):
        snapshot = _snapshot(Path(path).name, [_segment(segment) for segment in segments], [*map(_trace, traces)])
    if not snapshot.segments and not snapshot.trace:
        raise BadValue(f"{shown} is a snapshot of no memory: write it in the process that uses the GPU, while it does.")
    return snapshot


@contextmanager
def of_a_snapshot(path: str | Path) -> Iterator[None]:
    """A context in which values of another shape than a snapshot's are refused.

    Raises:
        BadValue: there were some.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise BadValue(
            f"{str(path)[:200]!r} is a pickle, but of no snapshot of PyTorch's allocator: {_WRITE_ONE}."
        ) from None


def _load(path: str | Path, shown: str) -> Any:
    try:
        with Path(path).open("rb") as file:
            if (head := file.read(4)).startswith(_ARCHIVE):
                raise BadValue(f"{shown} was written by torch.save, and is no plain pickle: {_WRITE_ONE}.")
            if not is_snapshot(head):
                raise BadValue(f"{shown} is neither a snapshot nor a log with an error in it: {_WRITE_ONE}.")
            file.seek(0)
            with _without_collection():
                return _Plain(file).load()
    except _Refused as error:
        raise BadValue(
            f"{shown} asks for {error}, which a snapshot never does, so it was not read any further: {_WRITE_ONE}."
        ) from None
    except OSError as error:
        raise BadValue(f"{shown} cannot be read ({error.strerror or error}): give the file of a snapshot.") from None
    except MemoryError:
        raise BadValue(
            f"{shown} is damaged, or needs more memory than this computer has: record less of the run, "
            "_record_memory_history(max_entries=100000)."
        ) from None
    except BadValue:
        raise
    except Exception:  # what a broken pickle raises may be anything
        raise BadValue(f"{shown} is cut short or damaged: copy it again, or have another one written.") from None


@contextmanager
def _without_collection() -> Iterator[None]:
    """Millions of new dictionaries, none of them garbage: looking for some would take half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _snapshot(name: str, segments: list[dict[str, Any]], traces: list[tuple[dict[str, Any], ...]]) -> Snapshot:
    held = dict.fromkeys((device for device, trace in enumerate(traces) if trace), 0)
    for segment in segments:
        held[segment["device"]] = held.get(segment["device"], 0) + segment["total_size"]
    device = max(held, key=lambda device: held[device], default=0)
    trace = traces[device] if device < len(traces) else ()
    own = tuple(segment for segment in segments if segment["device"] == device)
    return Snapshot(name, device, max(0, len(held) - 1), own, trace, any("category" in entry for entry in trace[:1]))


def _segment(segment: dict[str, Any]) -> dict[str, Any]:
    address = int(segment["address"])
    blocks = []
    for block in segment["blocks"]:
        frames: list[Any] = block.get("frames") or [*block.get("history", ()), {}][0].get("frames", [])
        blocks.append({"address": address, **block, "size": int(block["size"]), "frames": frames})
        address = blocks[-1]["address"] + blocks[-1]["size"]
        if not isinstance(block["state"], str):
            raise TypeError
    kind = segment.get("segment_type", "large")
    plain = {"device": int(segment.get("device", 0)), "segment_type": kind, "total_size": int(segment["total_size"])}
    return {**segment, **plain, "blocks": blocks}


def _trace(entries: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    for entry in entries:
        if not isinstance(entry["action"], str) or not isinstance(entry["size"], int):
            raise TypeError
    return tuple(entries)
