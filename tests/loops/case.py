"""One training loop of the corpus, and what is known of it beforehand."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Train = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """One training loop with its settings.

    Attributes:
        loop: ``train(device, **settings)``; or, where it ``builds``, a function without arguments that returns such a
            ``train`` and a tuple of what a reader would have made before it: modules, optimizers, tensors.
        settings: keyword arguments of ``train``; the rest keep their defaults.
        builds: see ``loop``.
        needs: a library without which the case is left out, or ``""``.
        allocator: the value of ``PYTORCH_ALLOC_CONF``, as in ``"expandable_segments:True"``.
        events: whether the allocator's own trace of the first steps is recorded too.
        differs: why a card runs other operators than the CPU, so that their bytes do not compare; ``""`` if they do.
        refused: the words with which a prediction refuses it; ``""`` if it is predicted.
        cuda_only: it names CUDA outright and cannot run on the CPU.
        warns: a warning of PyTorch's that the loop brings about, as a regular expression.
    """

    loop: Callable[..., Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    builds: bool = False
    needs: str = ""
    allocator: str = ""
    events: bool = False
    differs: str = ""
    refused: str = ""
    cuda_only: bool = False
    warns: str = ""

    @property
    def name(self) -> str:
        """``"gpt batch_size=8 precision=bf16"``."""
        words = [self.loop.__name__.removesuffix("_model"), *(f"{key}={self.settings[key]}" for key in self.settings)]
        return " ".join([*words, self.allocator]).strip()

    @property
    def family(self) -> str:
        """The kind of loop: the module of the matrix that it stands in, as in ``"convolutions"``, or ``"ordinary"``."""
        *_, folder, module = self.loop.__module__.split(".")
        return folder if folder == "ordinary" else module

    @property
    def holdout(self) -> bool:
        """True if nobody may look at the case while rules are being mended: a third of all, by their names."""
        return zlib.crc32(self.name.encode()) % 3 == 0

    def made(self) -> tuple[Train, tuple[Any, ...]]:
        """The ``train`` of the case, and what was made before it."""
        if not self.builds:
            return self.loop, ()
        train, outside = self.loop()
        return train, outside
