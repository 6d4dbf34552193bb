"""Workspaces that cuDNN wants, put into the steps of a convolution."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from memlab.vgpu.cudnn.answers import answers
from memlab.vgpu.cudnn.convolution import Convolution
from memlab.vgpu.scratch.rule import Plan, Remark, Step
from memlab.vgpu.versions import TORCH

# The cuDNN that PyTorch's CUDA builds for Linux bring: the wheels that torch 2.11.0, 2.13.0 and 2.15.0 depend on.
BROUGHT = (((2, 11), 91900), ((2, 13), 92000), ((2, 15), 92600))
UNKNOWN = Remark(
    "Without cuDNN's workspaces, which are not known for some convolutions here: pip install 'memlab[cudnn]' lets "
    "cuDNN be asked (Linux on x86-64).",
    leaves_out=True,
)
SEARCHED = Remark(
    "torch.backends.cudnn.benchmark runs all of cuDNN's plans once for each convolution, with the largest of their "
    "workspaces, which is predicted; which one is fastest only the card can tell, so from then on the one that cuDNN "
    "names first is predicted."
)


@dataclass(frozen=True)
class Ask:
    """cuDNN runs this, with the workspace that it wants."""

    capability: int
    question: Convolution


def answered(steps: Iterable[Step | Ask]) -> list[Step]:
    """The steps with what cuDNN says; the trace tells what nobody knows.

    Raises:
        RuntimeError: cuDNN has no plan, in PyTorch's words.
    """
    return [found for step in steps for found in (_answer(step) if isinstance(step, Ask) else (step,))]


def _answer(ask: Ask) -> Iterator[Step]:
    wanted = wanted_version()
    sizes, version = answers(wanted).find(ask.capability, ask.question)
    if sizes is None:
        yield UNKNOWN
        return
    if version != wanted:
        yield Remark(
            f"The workspaces of convolutions are those of cuDNN {_text(version)}; this PyTorch comes with "
            f"{_text(wanted)}, whose may differ by some percent."
        )
    if not sizes:
        raise RuntimeError("GET was unable to find an engine to execute this computation")
    if ask.question.benchmark:
        yield SEARCHED
    yield Plan(replace(ask.question, benchmark=False), sizes, ask.question.benchmark)


def wanted_version() -> int:
    """Of the cuDNN that this PyTorch loads on a GPU.

    A build without CUDA stands for the one with, and so does one that refuses the cuDNN that it finds.
    """
    if torch.version.cuda:
        with suppress(RuntimeError):
            if own := torch.backends.cudnn.version():
                return int(own)
    known = [version for since, version in BROUGHT if since <= TORCH]
    return known[-1] if known else BROUGHT[0][1]


def _text(version: int) -> str:
    return f"{version // 10_000}.{version // 100 % 100}"
