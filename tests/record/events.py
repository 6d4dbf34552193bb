"""The allocator's own record of what it did, distilled to plain data.

The format: ``kinds`` and ``ops`` name what the columns of ``events`` index, ``[kind, address, bytes, op]``; bytes are
as requested; a ``segment_alloc`` stands just before the ``alloc`` that needed it; ``op`` is -1 but for allocs.
``start`` is what was held when recording began, ``end`` how much when it stopped. Addresses are relative to the
lowest.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from tests.record.card import history, keep_history

FORMAT = 1
KINDS = ["alloc", "free", "segment_alloc", "segment_free"]
_KIND_OF = {
    "alloc": 0,
    "free_completed": 1,
    "segment_alloc": 2,
    "segment_map": 2,
    "segment_free": 3,
    "segment_unmap": 3,
}
_OPERATOR = re.compile(r"^at::_ops::(\w+)::(?:call|redispatch)\(")
_NODE = re.compile(r"^torch::autograd::(?:generated::)?(\w+Backwards?\d*)::apply\(")
# Functions that allocate what no operator asked for by name.
_WORKSPACES = {"at::cuda::getNewWorkspace": "cublas_workspace", "at::native::run_conv_plan": "cudnn_workspace"}


class EventRecorder:
    """``with`` this, the CUDA caching allocator writes down what it does, and which operator asked."""

    def __enter__(self) -> "EventRecorder":
        self._start = torch.cuda.memory_snapshot()
        keep_history(True)
        return self

    def __exit__(self, *exception: object) -> None:
        self._snapshot = history()
        keep_history(False)

    def trace(self, note: str) -> dict[str, Any]:
        """Return the recorded events, in the format above."""
        entries = [entry for device in self._snapshot["device_traces"] for entry in device]
        return distill(self._start, entries, self._snapshot["segments"], note)


def distill(
    start: Iterable[dict[str, Any]], entries: Iterable[dict[str, Any]], end: Iterable[dict[str, Any]], note: str
) -> dict[str, Any]:
    """Segments before, entries of a device trace, and segments after, as ``torch.cuda.memory._snapshot`` gives them."""
    ops: dict[tuple[str, str, str], int] = {}
    events = []
    for entry in entries:
        if (kind := _KIND_OF.get(entry["action"])) is not None:
            op = ops.setdefault(label(entry.get("frames", ())), len(ops)) if kind == 0 else -1
            events.append([kind, entry["addr"], entry["size"], op])
    start, end = list(start), list(end)
    addresses = [event[1] for event in events] + [segment["address"] for segment in start]
    lowest = min(addresses, default=0)
    return {
        "format": FORMAT,
        "note": note,
        "kinds": KINDS,
        "labels": ["innermost op", "outermost op", "autograd node"],
        "ops": [list(op) for op in ops],
        "start": {
            "segments": [[s["address"] - lowest, s["total_size"], s["segment_type"]] for s in start],
            "blocks": [
                [block["address"] - lowest, block["size"]]
                for segment in start
                for block in segment["blocks"]
                if block["state"].startswith("active")
            ],
        },
        "events": [[kind, address - lowest, size, op] for kind, address, size, op in events],
        "end": {
            "reserved": sum(segment["total_size"] for segment in end),
            "allocated": sum(segment["allocated_size"] for segment in end),
        },
    }


def operators_in(frames: Iterable[dict[str, Any]]) -> list[str]:
    """The operators of a C++ stack, the innermost first."""
    return [match[1] for frame in frames if (match := _OPERATOR.match(frame["name"]))]


def label(frames: Sequence[dict[str, Any]]) -> tuple[str, str, str]:
    """The innermost operator, the outermost and the autograd node of a C++ stack, each ``""`` where there is none."""
    names = [frame["name"] for frame in frames]
    operators = operators_in(frames)
    node = next((match[1] for name in names if (match := _NODE.match(name))), "")
    innermost, outermost = (operators[0], operators[-1]) if operators else ("", "")
    before = names[: next((i for i, name in enumerate(names) if _OPERATOR.match(name)), len(names))]
    for function, workspace in _WORKSPACES.items():
        if any(name.startswith(function) for name in before):
            innermost = workspace
    return innermost, outermost, node
