"""Collects what one operator does with memory."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from memlab.vgpu.cards import Card
from memlab.vgpu.convolutions.asking import Ask
from memlab.vgpu.convolutions.views import View
from memlab.vgpu.cudnn.convolution import Convolution
from memlab.vgpu.scratch.cublas import cublas
from memlab.vgpu.scratch.reduction import buffers
from memlab.vgpu.scratch.rule import Result, Step


class Work:
    """The steps of one operator, in order.

    Attributes:
        steps: so far.
    """

    def __init__(self, card: Card):
        self.steps: list[Step | Ask] = []
        self._card = card
        self._scopes: list[list[int]] = []

    @contextmanager
    def scope(self) -> Iterator[list[int]]:
        """Free the buffers that are held within this context when it ends, the newest first."""
        held: list[int] = []
        self._scopes.append(held)
        yield held
        self.steps += [-nbytes for nbytes in reversed(self._scopes.pop())]

    def hold(self, nbytes: int, scope: list[int] | None = None) -> None:
        """Allocate for the rest of a scope, by default the innermost."""
        self.steps.append(nbytes)
        (self._scopes[-1] if scope is None else scope).append(nbytes)

    def result(self, index: int = 0) -> None:
        """A result is allocated."""
        self.steps.append(Result(index))

    def ask(self, question: Convolution) -> None:
        """cuDNN runs this."""
        self.steps.append(Ask(self._card.sm, question))

    def product(self) -> None:
        """cuBLAS multiplies matrices, with a workspace that stays or not."""
        for step in cublas(self._card):
            self.steps += [step, -step] if isinstance(step, int) else [step]

    def in_format(self, view: View, channels_last: bool) -> View:
        """``Tensor.contiguous``."""
        made = view.in_format(channels_last)
        if made is not view:
            self.hold(made.nbytes)
        return made

    def as_images(self, x: View) -> View:
        """A signal is made contiguous before it becomes an image of one row."""
        return self.in_format(x, False).as_images() if len(x.shape) == 3 else x

    def sum_over_all_but_channels(self, tensor: View) -> None:
        """The partial sums of a bias's gradient."""
        dims = [0, *range(2, len(tensor.shape))]
        width = 8 if tensor.dtype is torch.float64 else 4
        with self.scope():
            for nbytes in buffers(tensor, dims, width, self._card.processors, self._card.threads):
                self.hold(nbytes)
