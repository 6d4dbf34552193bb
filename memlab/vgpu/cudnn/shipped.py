"""Answers that ship with memlab: the notebooks' networks and common ones, all cards, one version of cuDNN.

``python -m tests.published.ship`` makes the file anew with the cuDNN that is installed.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import astuple, replace
from functools import cache
from pathlib import Path
from typing import Any

from memlab.files import write_atomically
from memlab.vgpu.cudnn.convolution import Convolution

FILE = Path(__file__).with_name("answers.json.gz")
Answer = tuple[int, ...] | None


def version() -> int:
    """Of the cuDNN that has answered, 92000 for 9.20.0."""
    return int(_file()["version"])


def find(capability: int, question: Convolution) -> Answer:
    """The workspaces of the plans that ATen would try, falling, in bytes; None where the file has no answer."""
    file = _file()
    number = file["rows"].get(_row(question), {}).get(_place(capability, question))
    return None if number is None else tuple(file["answers"][number])


def write(version: int, answers: Mapping[tuple[int, Convolution], Answer]) -> None:
    """Write the file with what cuDNN answered, by capability and question; equal answers are kept once."""
    numbers: dict[Answer, int] = {}
    rows: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (capability, question), answer in answers.items():
        if answer is not None:
            rows[_row(question)][_place(capability, question)] = numbers.setdefault(answer, len(numbers))
    text = json.dumps({"version": version, "answers": list(numbers), "rows": rows}, separators=(",", ":"))
    write_atomically(FILE, gzip.compress(text.encode(), mtime=0))


def _row(question: Convolution) -> str:
    """All that is said of it, but for the batch and the dtype."""
    fields = astuple(replace(question, x=question.x[1:], dtype=""))
    return " ".join(_text(field) for field in fields)


def _place(capability: int, question: Convolution) -> str:
    return f"{question.x[0]} {question.dtype} {capability}"


def _text(field: Any) -> str:
    return ",".join(map(str, field)) if isinstance(field, tuple) else str(field)


@cache
def _file() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    return found
