"""The matrix: which loops are recorded, with which settings."""

import importlib.util
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from memlab.errors import BadValue
from memlab.record import loops

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "pure bf16")


@dataclass(frozen=True)
class Case:
    """One recording to make.

    Attributes:
        loop: the training loop, from :mod:`memlab.record.loops`.
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


def all_cases() -> list[Case]:
    """Every case that the libraries of this machine allow, the most telling first."""
    cases: dict[str, Case] = {}
    for case in _matrix():
        if not case.needs or importlib.util.find_spec(case.needs):
            cases.setdefault(case.name, case)
    return list(cases.values())


def find_cases(names: list[str]) -> list[Case]:
    """The cases whose names contain one of the words; all of them for no words.

    Raises:
        BadValue: for a word that no case contains.
    """
    cases = all_cases()
    for name in names:
        if not any(name in case.name for case in cases):
            raise BadValue(f"no case is called {name!r}: give a part of a name, as in gpt or precision=bf16.")
    return [case for case in cases if not names or any(name in case.name for name in names)]


def _matrix() -> Iterator[Case]:
    # A few first, with the allocator's own trace: should time run out, these are worth the most.
    yield Case(loops.gpt, {"precision": "fp32"}, events=True)
    yield Case(loops.gpt, {"precision": "bf16"}, events=True)
    yield Case(loops.gpt, {"precision": "bf16", "checkpoint_every": 1}, events=True)
    yield Case(loops.vit, {"precision": "bf16"}, events=True)
    yield Case(loops.resnet, {"precision": "fp32"}, events=True)
    yield Case(loops.resnet, {"precision": "bf16", "channels_last": True}, events=True)
    yield Case(loops.mlp, {"precision": "fp32"}, events=True)

    for precision in PRECISIONS:
        for checkpoint_every in (0, 1, 4):
            yield Case(loops.gpt, {"precision": precision, "checkpoint_every": checkpoint_every})
    for optimizer in (*loops.OPTIMIZERS, "AdamW in backward"):
        for precision in ("fp32", "bf16"):
            yield Case(loops.gpt, {"precision": precision, "optimizer": optimizer})
    for batch_size in (1, 2, 3, 7, 16, 33):
        for precision in ("fp32", "bf16"):
            yield Case(loops.gpt, {"precision": precision, "batch_size": batch_size})
    for attention, precision in (
        ("math", "fp32"),
        ("efficient", "fp32"),
        ("math", "bf16"),
        ("efficient", "bf16"),
        ("flash", "bf16"),
        ("cudnn", "bf16"),
    ):
        yield Case(loops.gpt, {"precision": precision, "attention": attention})
    for precision in ("fp32", "bf16"):
        yield Case(loops.gpt, {"precision": precision, "loss": "chunked"})
        yield Case(loops.gpt, {"precision": precision, "offload": True})
        yield Case(loops.gpt, {"precision": precision, "accumulate": 2})
        yield Case(loops.gpt, {"precision": precision, "accumulate": 8})
    for settings in ({"precision": "fp32"}, {"precision": "bf16", "checkpoint_every": 1}, {"precision": "bf16"}):
        yield Case(loops.gpt, settings, allocator="expandable_segments:True")
    for precision in ("fp32", "bf16"):
        yield Case(loops.gpt, {"precision": precision, "optimizer": "AdamW 8-bit"}, needs="torchao")
    for context in (128, 333, 2048):
        yield Case(loops.gpt, {"precision": "bf16", "context": context})
    for width, heads in ((512, 8), (1280, 20), (720, 12)):
        yield Case(loops.gpt, {"precision": "bf16", "width": width, "heads": heads})
    yield Case(
        loops.gpt,
        {"precision": "pure bf16", "checkpoint_every": 1, "optimizer": "AdamW in backward", "loss": "chunked"},
    )
    for precision in ("fp32", "fp16", "bf16"):
        for batch_size in (5, 32):
            yield Case(loops.vit, {"precision": precision, "batch_size": batch_size})
    yield Case(loops.vit, {"precision": "bf16", "checkpoint_every": 1})
    for precision in ("fp32", "bf16"):
        for batch_size in (7, 128):
            yield Case(loops.resnet, {"precision": precision, "batch_size": batch_size})
    yield Case(loops.resnet, {"precision": "fp32", "inplace": True})
    for precision in PRECISIONS:
        yield Case(loops.mlp, {"precision": precision, "batch_size": 1000})
    yield Case(loops.mlp, {"precision": "fp32", "checkpoint_every": 4})
    yield Case(loops.mlp, {"precision": "fp32", "optimizer": "SGD"})
    for name in ("gpt2", "bert", "llama"):
        for precision in ("fp32", "bf16"):
            yield Case(loops.transformers_model, {"name": name, "precision": precision}, needs="transformers")
    for name in ("resnet50", "vit_base_patch16_224", "efficientnet_b0"):
        yield Case(loops.timm_model, {"name": name}, needs="timm")
