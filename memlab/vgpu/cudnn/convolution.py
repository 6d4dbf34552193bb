"""The question to cuDNN: one convolution, or one of its gradients, as ATen would ask for it."""

from dataclasses import astuple, dataclass
from typing import Any

FORWARD, DATA, FILTER = "forward", "data", "filter"
Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Convolution:
    """A question.

    Attributes:
        way: ``"forward"``, or the gradient of the ``"data"`` or the ``"filter"``.
        x: shape of the input, ``(batch, channels, *spatial)``, with two or three spatial dimensions.
        w: shape of the weight, ``(channels out, channels in of a group, *spatial)``.
        stride, padding, dilation: a number for each spatial dimension.
        dtype: as in ``"float32"``.
        channels_last: whether all three tensors are.
        tf32: whether float32 may be multiplied in TF32.
        deterministic: whether only deterministic engines may run.
        alignment: of the three tensors' addresses, in bytes, at most 32.
        benchmark: whether all plans are tried, to find the fastest.
    """

    way: str
    x: Sizes
    w: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    dtype: str
    channels_last: bool = False
    tf32: bool = True
    deterministic: bool = False
    alignment: Sizes = (32, 32, 32)
    benchmark: bool = False

    @property
    def y(self) -> Sizes:
        """Shape of the result."""
        spatial = (
            (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, stride, padding, dilation in zip(
                self.x[2:], self.w[2:], self.stride, self.padding, self.dilation, strict=True
            )
        )
        return (self.x[0], self.w[0], *spatial)

    def to_json(self) -> list[Any]:
        """Its fields, in order."""
        return list(astuple(self))

    @classmethod
    def from_json(cls, fields: list[Any]) -> "Convolution":
        """The question with these fields."""
        values: list[Any] = [tuple(field) if isinstance(field, list) else field for field in fields]
        return cls(*values)
