"""What a convolution does with memory, in its order: ``Convolution.cpp``, ``cudnn/ConvShared.cpp``, ``Conv_v8.cpp``."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch

from memlab.vgpu.cards import Card
from memlab.vgpu.convolutions.arguments import Settings, backward_arguments, forward_arguments
from memlab.vgpu.convolutions.choice import suggests_channels_last, uses_cudnn
from memlab.vgpu.convolutions.views import View
from memlab.vgpu.cudnn.answers import answers
from memlab.vgpu.cudnn.questions import DATA, FILTER, FORWARD, Convolution
from memlab.vgpu.scratch.reduction import buffers
from memlab.vgpu.scratch.rule import FirstThatFits, Result, Rule, Step, Unknown

aten = torch.ops.aten
UNKNOWN = Unknown(
    "Without cuDNN's workspaces, which are not known for these convolutions: pip install 'memlab[cudnn]' lets cuDNN be "
    "asked (Linux on x86-64)."
)


def forward(card: Card, args: tuple[Any, ...], out: Any) -> list[Step]:
    """The steps of ``aten.convolution``."""
    x, w, settings = forward_arguments(card, args)
    return _forward(card, x, w, View.of(out).shape, settings)


def backward(card: Card, args: tuple[Any, ...], out: Any) -> list[Step]:
    """The steps of ``aten.convolution_backward``."""
    return _backward(card, *backward_arguments(card, args), tuple(args[10]))


RULES: dict[object, Rule] = {aten.convolution: forward, aten.convolution_backward: backward}


@lru_cache(maxsize=10_000)
def _forward(card: Card, x: View, w: View, y: tuple[int, ...], settings: Settings) -> list[Step]:
    work = _Work(card, settings)
    with work.scope():
        x, w = work.as_images(x), w.as_images()
        if not uses_cudnn(x, w, settings):
            work.in_format(x, False)
            work.result(0)
            return work.steps
        x = work.in_format(x, suggests_channels_last(x, w))
        if settings.transposed:
            work.gradient_of_input(x, w, y if len(y) > 3 else (*y[:2], 1, y[2]))
        else:
            work.convolution(x, w)
    return work.steps


@lru_cache(maxsize=10_000)
def _backward(
    card: Card, grad: View, x: View, w: View, settings: Settings, wanted: tuple[bool, bool, bool]
) -> list[Step]:
    work = _Work(card, settings)
    with work.scope():
        x, whole, w = work.as_images(x), grad.as_images(), w.as_images()
        if not uses_cudnn(x, w, settings):
            work.own_gradients(whole, x)
        else:
            x = work.in_format(x, suggests_channels_last(x, w)) if wanted[1] else x
            taken = work.in_suggested_format(whole, x)
            if wanted[0] and settings.transposed:
                work.convolution(taken, w)
            elif wanted[0]:
                work.gradient_of_input(taken, w, x.shape)
            if wanted[1]:
                first, second = (taken, x) if settings.transposed else (x, taken)
                work.gradient_of_weight(first, second, w.shape)
    if wanted[2]:
        work.gradient_of_bias(whole)
    return work.steps


class _Work:
    """Collects the steps of one operator."""

    def __init__(self, card: Card, settings: Settings):
        self.steps: list[Step] = []
        self._card = card
        self._settings = settings
        self._held: list[int] = []  # bytes of what is copied and not yet freed

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is copied in here is freed at its end."""
        before = len(self._held)
        yield
        while len(self._held) > before:
            self.steps.append(-self._held.pop())

    def hold(self, nbytes: int) -> None:
        self.steps.append(nbytes)
        self._held.append(nbytes)

    def result(self, index: int) -> None:
        self.steps.append(Result(index))

    def in_format(self, view: View, channels_last: bool) -> View:
        """``Tensor.contiguous``."""
        made = view.in_format(channels_last)
        if made is not view:
            self.hold(made.nbytes)
        return made

    def in_suggested_format(self, view: View, of: View) -> View:
        """``Tensor.to(memory_format)``: looks at the format that a tensor suggests, not at whether it is dense."""
        return view if view.is_channels_last == of.is_channels_last else self.in_format(view, of.is_channels_last)

    def as_images(self, x: View) -> View:
        """A signal is made contiguous before it becomes an image of one row."""
        return self.in_format(x, False).as_images() if len(x.shape) == 3 else x

    def convolution(self, x: View, w: View) -> None:
        """``cudnn_convolution_forward``."""
        last = suggests_channels_last(x, w)
        self.result(0)
        with self.scope():
            w, x = self.in_format(w, last), self.in_format(x, last)
            self._ask(FORWARD, x.shape, w.shape, last, x, None, w)

    def gradient_of_input(self, grad: View, w: View, shape: tuple[int, ...]) -> None:
        """``cudnn_convolution_backward_input``, which is also a transposed convolution."""
        last = suggests_channels_last(grad, w)
        self.result(0)
        with self.scope():
            w, grad = self.in_format(w, last), self.in_format(grad, last)
            self._ask(DATA, shape, w.shape, last, None, grad, w)

    def gradient_of_weight(self, x: View, grad: View, shape: tuple[int, ...]) -> None:
        """``cudnn_convolution_backward_weight``."""
        last = suggests_channels_last(x, grad)
        with self.scope():
            grad, x = self.in_format(grad, last), self.in_format(x, last)
            self.result(1)
            self._ask(FILTER, x.shape, shape, last, x, grad, None)

    def gradient_of_bias(self, grad: View) -> None:
        """A sum over all but the channels."""
        self.result(2)
        dims = [0, *range(2, len(grad.shape))]
        width = 8 if grad.dtype is torch.float64 else 4
        with self.scope():
            for nbytes in buffers(grad, dims, width, self._card.processors, self._card.threads):
                self.hold(nbytes)

    def own_gradients(self, grad: View, x: View) -> None:
        """``conv_depthwise2d_backward_cuda``: the weight's comes first."""
        self.in_format(grad, False)
        self.in_format(x, False)
        self.result(1)
        self.result(0)

    def _ask(self, way: str, x: tuple[int, ...], w: tuple[int, ...], last: bool, *views: View | None) -> None:
        settings = self._settings
        question = Convolution(
            way,
            x,
            w,
            settings.stride,
            settings.padding,
            settings.dilation,
            str(next(view for view in views if view).dtype).removeprefix("torch."),
            last,
            settings.tf32,
            settings.deterministic,
            tuple(view.alignment if view else 32 for view in views),
        )
        found = answers().find(self._card.sm, question)
        self.steps.append(UNKNOWN if found is None else FirstThatFits(found))
