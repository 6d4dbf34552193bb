"""Answers that ship with memlab: common networks, usual batch sizes, all cards, one version of cuDNN.

``python -m tests.published.ship`` makes the file anew with the cuDNN that is installed.
"""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from functools import cache
from pathlib import Path
from typing import Any

from memlab.files import write_atomically
from memlab.vgpu.cudnn.questions import Convolution

FILE = Path(__file__).with_name("answers.json.gz")
Answer = tuple[int, ...] | None
_FIRST_BFLOAT16 = 80  # ATen asks cuDNN for none on older cards


def version() -> int:
    """Of the cuDNN that has answered, 92000 for 9.20.0."""
    return int(_file()["version"])


def find(capability: int, question: Convolution) -> Answer:
    """The workspaces of the plans that ATen would try, falling, in bytes; None where the file has no answer."""
    file = _file()
    row = file["rows"].get(_key(question))
    place = file["places"].get((question.x[0], question.dtype, capability))
    if row is None or place is None:
        return None
    answer = file["answers"][row[place]]
    return None if answer is None else tuple(answer)


def places(batches: Sequence[int], dtypes: Sequence[str], capabilities: Sequence[int]) -> list[tuple[int, str, int]]:
    """What the answers of a row belong to, in their order."""
    return [
        (batch, dtype, capability)
        for batch in batches
        for dtype in dtypes
        for capability in capabilities
        if dtype != "bfloat16" or capability >= _FIRST_BFLOAT16
    ]


def write(
    version: int,
    batches: Sequence[int],
    dtypes: Sequence[str],
    capabilities: Sequence[int],
    rows: Mapping[Convolution, Sequence[Answer]],
) -> None:
    """Write the file. Each row has an answer for each of ``places``; equal answers are kept once."""
    numbers: dict[Answer, int] = {}
    table = {_key(q): [numbers.setdefault(answer, len(numbers)) for answer in row] for q, row in rows.items()}
    head = {"version": version, "batches": batches, "dtypes": dtypes, "capabilities": capabilities}
    text = json.dumps({**head, "answers": list(numbers), "rows": table}, separators=(",", ":"))
    write_atomically(FILE, gzip.compress(text.encode(), mtime=0))


def _key(question: Convolution) -> str:
    """All that is said of it, but for the batch and the dtype."""
    fields = astuple(replace(question, x=question.x[1:], dtype=""))
    return " ".join(_text(field) for field in fields)


def _text(field: Any) -> str:
    return ",".join(map(str, field)) if isinstance(field, tuple) else str(field)


@cache
def _file() -> dict[str, Any]:
    file = json.loads(gzip.decompress(FILE.read_bytes()))
    order = places(file["batches"], file["dtypes"], file["capabilities"])
    return file | {"places": {place: index for index, place in enumerate(order)}}
