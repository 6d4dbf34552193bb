"""One recording to make: a loop with its settings."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """One recording to make.

    Attributes:
        loop: the training loop, from :mod:`memlab.record.matrix`.
        settings: its keyword arguments; the rest keep their defaults.
        needs: a library without which the case is left out, or ``""``.
        allocator: what ``PYTORCH_ALLOC_CONF`` would say, as in ``"expandable_segments:True"``.
        events: whether the allocator's own trace of the first steps is recorded too.
    """

    loop: Callable[..., Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    allocator: str = ""
    events: bool = False

    @property
    def name(self) -> str:
        """``"gpt batch_size=8 precision=bf16"``."""
        words = [self.loop.__name__.removesuffix("_model"), *(f"{key}={self.settings[key]}" for key in self.settings)]
        return " ".join([*words, self.allocator]).strip()

    @property
    def holdout(self) -> bool:
        """Whether nobody may look at the case while rules are being mended: a third of all, by their names."""
        return zlib.crc32(self.name.encode()) % 3 == 0
