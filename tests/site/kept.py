"""The predictions and recordings so far, in a file: whatever ends a build, none of it is lost."""

import base64
import json
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from memlab.files import append_line


class Kept:
    """A file with a line of JSON for each thing that was made: what it is, the seconds it took, and itself, packed.

    Attributes:
        seconds: what each took, by what it is, as JSON.
    """

    def __init__(self, file: Path):
        self.file = file
        self.seconds: dict[str, float] = {}
        self._packed: dict[str, str] = {}
        for line in file.read_text(encoding="utf-8").split("\n") if file.exists() else ():
            try:
                self._note(*json.loads(line))
            except (ValueError, TypeError):
                continue  # the last one, of a build that was killed, and empty ones

    def get(self, what: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """The thing, made and kept if it is not there: numbers, texts, lists and dictionaries."""
        name = _name(what)
        if name not in self._packed:
            begun = time.monotonic()
            made = base64.b64encode(zlib.compress(json.dumps(make()).encode())).decode()
            line = name, time.monotonic() - begun, made
            append_line(self.file, json.dumps(line))
            self._note(*line)
        return json.loads(zlib.decompress(base64.b64decode(self._packed[name])))

    def __contains__(self, what: Mapping[str, Any]) -> bool:
        return _name(what) in self._packed

    def _note(self, name: str, seconds: float, packed: str) -> None:
        self.seconds[name], self._packed[name] = seconds, packed


def _name(what: Mapping[str, Any]) -> str:
    return json.dumps(what, sort_keys=True, default=str)
