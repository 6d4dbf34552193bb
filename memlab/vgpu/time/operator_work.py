"""The work of an operator: floating-point operations and the bytes that it cannot do without."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from math import prod
from typing import Any

import torch
from torch import Tensor

from memlab.tracking.flops import operations
from memlab.tracking.operators import operator
from memlab.vgpu.arguments import Arguments
from memlab.vgpu.convolutions.views import View
from memlab.vgpu.names import CARD

aten = torch.ops.aten


class Kind(StrEnum):
    """The limit of an operator's speed, as far as its name tells."""

    PRODUCT = "matrix product"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    DEPTHWISE = "depthwise convolution"
    MEMORY = "memory"
    TO_CARD = "copy to the card"
    TO_HOST = "copy to the host"


class Work:
    """The work of one operator. Compared by identity: operators that are alike share it.

    Attributes:
        kind: what it is.
        dtype: of what it multiplies.
        flops: floating-point operations as they are counted, a multiply-add as two; of causal attention half.
        least_flops: the same by the fastest algorithm: of convolutions, Winograd's.
        read: bytes of the arguments that it reads whole, on the card, each storage once, what is broadcast once.
        written: bytes of its results, and of what it changes in place.
        turned: whether all that changes its order in memory on the way: for cuDNN, which wants it so before it runs on
            tensor cores, and back; or because what is padded was not contiguous, and becomes so.
        aligned: whether rows and columns of what it multiplies are whole pieces of 16 bytes, as tensor cores like it.
        tf32: whether ``torch.backends`` let float32 be multiplied on tensor cores when it ran.
    """

    __slots__ = ("aligned", "dtype", "flops", "kind", "least_flops", "read", "tf32", "turned", "written")

    def __init__(
        self,
        kind: Kind,
        dtype: torch.dtype,
        flops: int,
        least_flops: float,
        read: int,
        written: int,
        *,
        turned: bool = False,
        aligned: bool = True,
    ):
        self.kind = kind
        self.dtype = dtype
        self.flops = flops
        self.least_flops = least_flops
        self.read = read
        self.written = written
        self.turned = turned
        self.aligned = aligned
        self.tf32 = may_use_tf32(kind, dtype) if flops else False

    def is_still_so(self) -> bool:
        """Return True if ``torch.backends`` allow now what they allowed when this was counted."""
        return not self.flops or self.tf32 == may_use_tf32(self.kind, self.dtype)


def may_use_tf32(kind: Kind, dtype: torch.dtype) -> bool:
    """Return True if ``torch.backends`` let products of this type run in TF32."""
    if dtype is not torch.float32 or kind is Kind.ATTENTION:
        return False
    backends: Any = torch.backends  # whose stubs lack some of it
    precision = backends.cudnn.conv if kind in (Kind.CONVOLUTION, Kind.DEPTHWISE) else backends.cuda.matmul
    return bool(precision.fp32_precision == "tf32")


NOTHING = Work(Kind.MEMORY, torch.float32, 0, 0, 0, 0)


def work_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Work:
    """Return the card's work of an operator that was called so and gave ``out``; ``NOTHING`` for views."""
    known = operator(func)
    if known.is_view or known.is_composite or known.collective or func.overloadpacket in _NOTHING:
        return NOTHING
    given = Arguments(func, args, kwargs)
    if (between := _between(func.overloadpacket, given, out)) is not None:
        return between
    read, written = _bytes(_read(func, args, kwargs)), _bytes(_written(func, args, out))
    if not (read or written):  # all of it is on the host, whose speed nobody knows
        return NOTHING
    if known.formula is None:
        turned = func.overloadpacket is aten.constant_pad_nd and not given.self.is_contiguous()
        return Work(Kind.MEMORY, torch.float32, 0, 0, read, written, turned=turned)
    flops = operations(known.formula, args, kwargs, out)
    if func.overloadpacket in _CONVOLUTIONS:
        return convolution(given, flops, read, written)
    kind = Kind.ATTENTION if "attention" in known.name else Kind.PRODUCT
    if kind is Kind.ATTENTION and given.get("is_causal"):
        flops //= 2
    factors = [tensor for tensor in _tensors(args) if tensor.dim() > 1]
    aligned = kind is Kind.ATTENTION or all(size * t.itemsize % 16 == 0 for t in factors for size in t.shape[-2:])
    return Work(kind, factors[0].dtype, flops, flops, read, written, aligned=aligned)


def convolution(given: Arguments, flops: int, read: int, written: int) -> Work:
    """The same of a convolution or its backward, with the multiplications that Winograd's algorithm needs at least.

    Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015): the largest of cuDNN's tiles gives four
    results a side, for which a kernel of ``k`` and stride 1 takes ``k + 3`` instead of ``4 k`` multiplications a side.
    """
    inputs, weight = given.input, given.weight
    fewer = 1.0
    if weight.dim() >= 4 and all(step == 1 for step in given.stride):
        fewer = prod(4 * edge / (edge + 3) for edge in weight.shape[2:])
    if given.groups > 1 and given.groups == inputs.shape[1] and not given.transposed:
        return Work(Kind.DEPTHWISE, inputs.dtype, flops, flops / fewer, read, written)
    half = inputs.dtype in (torch.float16, torch.bfloat16)
    turned = half and not any(View.of(tensor).is_channels_last for tensor in (inputs, weight))
    return Work(Kind.CONVOLUTION, inputs.dtype, flops, flops / fewer, read, written, turned=turned)


def _between(packet: Any, given: Arguments, out: Any) -> Work | None:
    """A copy from host to card or back."""
    if packet not in _COPIES or not isinstance(out, Tensor):
        return None
    source = given.src if packet is aten.copy_ else given.self
    if not isinstance(source, Tensor) or (source.device == CARD) is (out.device == CARD):
        return None
    kind = Kind.TO_CARD if out.device == CARD else Kind.TO_HOST
    return Work(kind, out.dtype, 0, 0, min(_size(source), _size(out)), 0)


def _read(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    packet = func.overloadpacket
    if packet in _WRITES_ONLY or packet.__name__.endswith("_like") or packet.__name__.startswith("new_"):
        return
    partly = _PARTLY.get(packet, ())
    yield from _tensors(value for index, value in enumerate(args) if index not in partly)
    yield from _tensors(kwargs.values())


def _written(func: Any, args: tuple[Any, ...], out: Any) -> Iterator[Tensor]:
    packet = func.overloadpacket
    if packet in _WRITES_PARTLY:
        return
    yield from _tensors((out,))
    if out is None or not func._schema.returns:  # the foreach operators and the fused optimizers work in place
        # A fused optimizer's gradients, only where they are to be unscaled.
        unchanged = "grads" if packet.__name__.startswith("_fused_") else None
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write and argument.name != unchanged:
                yield from _tensors((value,))


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def moved_bytes(args: tuple[Any, ...]) -> int:
    """Bytes of the tensors among a kernel's arguments, each once: what a kernel that reads or writes them moves."""
    return _bytes(_tensors(args))


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of tensors on the card; of those that share a storage, at most that."""
    found: dict[int, tuple[int, int]] = {}
    for tensor in tensors:
        if tensor.device == CARD and tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            before = found.get(id(storage), (0, 0))[0]
            found[id(storage)] = before + _size(tensor), storage.nbytes()
    return sum(min(pair) for pair in found.values())


def _size(tensor: Tensor) -> int:
    if tensor.layout is not torch.strided:
        return 0
    if tensor.is_contiguous():
        return tensor.nbytes
    return tensor.itemsize * prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)


_COPIES = {aten._to_copy, aten.copy_}
_CONVOLUTIONS = {aten.convolution, aten._convolution, aten.convolution_backward}
_NOTHING = {aten.empty, aten.empty_strided, aten.empty_like, aten.new_empty, aten.new_empty_strided, aten.resize_} | {
    aten.set_,
    aten.lift_fresh,
    aten._local_scalar_dense,
    aten._unsafe_view,  # a view that autograd is not told of
}
_WRITES_ONLY = {aten.fill_, aten.zero_, aten.normal_, aten.uniform_, aten.bernoulli_, aten.random_, aten.exponential_}
# Arguments of which it reads only some elements, or none.
_PARTLY: dict[Any, tuple[int, ...]] = {
    packet: indices
    for packets, indices in (
        ((aten.embedding, aten._embedding_bag, aten.index, aten.gather, aten.index_select, aten.take), (0,)),
        ((aten.index_put, aten.index_put_, aten._index_put_impl_, aten.scatter_, aten.scatter_add_), (0,)),
        ((aten.index_add_, aten.index_copy_, aten.index_fill_, aten.copy_, aten.masked_select), (0,)),
        ((aten.nll_loss_forward, aten.nll_loss2d_forward), (0,)),
        ((aten.nll_loss_backward, aten.nll_loss2d_backward, aten.max_pool2d_with_indices_backward), (1,)),
    )
    for packet in packets
}
_WRITES_PARTLY = {aten.index_put_, aten._index_put_impl_, aten.scatter_, aten.scatter_add_, aten.index_add_} | {
    aten.index_copy_,
    aten.index_fill_,
}
