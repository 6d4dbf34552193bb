"""Corrections of PyTorch's fake kernels for CUDA: shapes, storages, and the devices of results."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch

from memlab.tracking.collectives import COLLECTIVES
from memlab.vgpu import ranks, values
from memlab.vgpu.arguments import Arguments
from memlab.vgpu.convolutions import formats
from memlab.vgpu.convolutions.views import View, dense_strides
from memlab.vgpu.current_prediction import current
from memlab.vgpu.internals import FakeTensor, unset_fake_temporarily
from memlab.vgpu.names import CARD
from memlab.vgpu.refusals import depends_on_data
from memlab.vgpu.results import make_fake, within
from memlab.vgpu.versions import TORCH

aten = torch.ops.aten
_MOST_IMAGES = 65_535  # that cuDNN evaluates a batch norm of


def _random_state_on_the_host(mode: Any, given: Arguments, out: tuple[Any, ...]) -> tuple[Any, ...]:
    """``_efficient_attention_forward`` (attention.cu): two numbers; since 2.15 they are on the card without dropout.

    So they are while a CUDA graph is captured.
    """
    if current().capturing or (TORCH >= (2, 15) and not given.dropout_p):
        return out
    return (*out[:2], torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.int64))


def _empty_buffer(mode: Any, given: Arguments, out: tuple[Any, ...]) -> tuple[Any, ...]:
    """``log_sigmoid_forward_cuda`` (Activation.cpp): only the CPU's kernel uses the buffer."""
    return out[0], make_fake(mode, torch.empty(0, dtype=out[0].dtype, device="meta"), CARD)


def _in_full_storage(mode: Any, given: Arguments, out: FakeTensor) -> torch.Tensor:
    """These losses reduce in place: the one number keeps the storage of as many as went in (Loss.cpp, PointwiseOps)."""
    if out.dim():
        return out  # reduction="none"
    return within(mode, out, prod(torch.broadcast_shapes(given.self.shape, given.target.shape)))


def _in_storage_of_input(mode: Any, given: Arguments, out: FakeTensor) -> torch.Tensor:
    """``col2im`` (Col2Im.cu): the result begins as large as the input, and is not given back what it has too much."""
    return within(mode, out, given.self.numel())


def _contiguous_gradient(mode: Any, given: Arguments, out: tuple[Any, ...]) -> tuple[Any, ...]:
    """``layer_norm_backward_cuda``, ``_fused_rms_norm_backward_cuda``: like the contiguous copy of the input."""
    return out if out[0] is None else (_laid_out(mode, out[0], False), *out[1:])


def _contiguous(mode: Any, given: Arguments, out: FakeTensor) -> torch.Tensor:
    """``mse_loss_backward`` and its like (Loss.cpp) begin with contiguous zeros."""
    return _laid_out(mode, out, False)


def _like_gradient(mode: Any, given: Arguments, out: FakeTensor) -> torch.Tensor:
    """``log_sigmoid_backward_cuda`` (Activation.cpp)."""
    shape, strides = given.grad_output.shape, given.grad_output.stride()
    gradient = torch.empty_strided(shape, strides, dtype=out.dtype, device="meta")
    return make_fake(mode, torch.empty_like(gradient), CARD)


def _in_format_of_input(mode: Any, given: Arguments, out: FakeTensor) -> torch.Tensor:
    """``upsample_bilinear2d`` (structured, UpSampleBilinear2d.cpp)."""
    return _laid_out(mode, out, View.of(given.self).is_channels_last)


def _evaluated(mode: Any, given: Arguments, out: tuple[Any, ...]) -> tuple[Any, ...]:
    """In evaluation mode ``native_batch_norm`` keeps a mean and a deviation, ``cudnn_batch_norm`` keeps none.

    ``_select_batch_norm_backend`` (Normalization.cpp) decides which of them runs. In training both keep the same.
    """
    tensor, weight = given.input, given.weight
    is_cudnns = (
        torch.backends.cudnn.enabled
        and not any(each is None for each in (weight, given.bias, given.running_mean, given.running_var))
        and tensor.dim() >= 3
        and tensor.shape[0] <= _MOST_IMAGES
        and tensor.dtype != torch.bfloat16
        and (tensor.dtype != torch.float16 or weight.dtype == torch.float32)
    )
    if given.training or not is_cudnns:
        return out
    return out[0], *(make_fake(mode, torch.empty(0, dtype=kept.dtype, device="meta"), CARD) for kept in out[1:])


def _laid_out(mode: Any, tensor: FakeTensor, channels_last: bool) -> torch.Tensor:
    if View.of(tensor).has_format(channels_last):
        return tensor
    strides = dense_strides(tuple(tensor.shape), channels_last)
    return make_fake(mode, torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device="meta"), CARD)


# Results that fake kernels get wrong for CUDA.
CORRECTIONS: dict[int, Callable[[Any, Arguments, Any], Any]] = {
    id(aten._scaled_dot_product_efficient_attention.default): _random_state_on_the_host,
    id(aten.log_sigmoid_forward.default): _empty_buffer,
    id(aten.native_batch_norm.default): _evaluated,
    id(aten.native_layer_norm_backward.default): _contiguous_gradient,
    id(aten._fused_rms_norm_backward.default): _contiguous_gradient,
    id(aten.mse_loss_backward.default): _contiguous,
    id(aten.smooth_l1_loss_backward.default): _contiguous,
    id(aten.huber_loss_backward.default): _contiguous,
    id(aten.log_sigmoid_backward.default): _like_gradient,
    id(aten.upsample_bilinear2d.default): _in_format_of_input,
    id(aten.col2im.default): _in_storage_of_input,
    id(aten.mse_loss.default): _in_full_storage,
    id(aten.smooth_l1_loss.default): _in_full_storage,
    id(aten.binary_cross_entropy.default): _in_full_storage,
    id(aten.soft_margin_loss.default): _in_full_storage,
    **formats.CORRECTIONS,
    **{id(packet.default): lambda mode, given, out: ranks.with_results(out) for packet in COLLECTIVES},
}
if COLLECTIVES:  # PyTorch's fake kernel makes a tensor of what the real one returns as it is (Functional.cpp)
    CORRECTIONS[id(torch.ops._c10d_functional.wait_tensor.default)] = lambda mode, given, out: given.tensor


def _bincount(mode: Any, tensor: FakeTensor, weights: Any = None, minlength: int = 0) -> torch.Tensor:
    """As many bins as were asked for: no number is above them, as far as anybody knows."""
    if not minlength:
        raise depends_on_data(aten.bincount.default)
    values.note_guess()
    dtype = torch.int64 if weights is None else torch.float32 if weights.dtype is torch.float32 else torch.float64
    return make_fake(mode, torch.empty(minlength, dtype=dtype, device="meta"), CARD)


def _packed(
    mode: Any, tensor: FakeTensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """``_pack_padded_sequence``: the lengths are on the host, where they are known."""
    with unset_fake_temporarily():
        steps = torch.arange(int(lengths.max()))
        sizes = (lengths[None, :] > steps[:, None]).sum(1)
        shape = (int(lengths.sum()), *tensor.shape[2:])
        return make_fake(mode, torch.empty(shape, dtype=tensor.dtype, device="meta"), tensor.fake_device), sizes


def _ctc_loss(
    mode: Any,
    log_probs: FakeTensor,
    targets: Any,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    *rest: Any,
) -> tuple[torch.Tensor, ...]:
    """``ctc_loss_gpu_template`` (LossCTC.cu): for the backward pass, a state before, at and after each target."""
    time, batch = log_probs.shape[0], len(input_lengths)
    shapes = ((batch,), (batch, time, 2 * max(target_lengths) + 1))
    empty = [torch.empty(shape, dtype=log_probs.dtype, device="meta") for shape in shapes]
    return tuple(make_fake(mode, tensor, log_probs.fake_device) for tensor in empty)


def _grouped_mm(mode: Any, first: FakeTensor, second: FakeTensor, *rest: Any, **options: Any) -> torch.Tensor:
    """PyTorch's fake kernel asks for bfloat16; CUDA's takes other floats too, a product a group (GroupedBlas.cpp)."""
    with unset_fake_temporarily():
        groups = options.pop("offs", rest[0] if rest else None)
        if groups is not None:
            options["offs"] = torch.empty(groups.shape, dtype=torch.int32, device="meta")
        half = (torch.empty_strided(t.shape, t.stride(), dtype=torch.bfloat16, device="meta") for t in (first, second))
        out = aten._grouped_mm.default(*half, **options)
        result = torch.empty_strided(out.shape, out.stride(), dtype=first.dtype, device="meta")
        return make_fake(mode, result, first.fake_device)


def _lstm_cell(mode: Any, gates: FakeTensor, hidden_gates: FakeTensor, cx: FakeTensor, *biases: Any) -> Any:
    """``_thnn_fused_lstm_cell_cuda`` (RNN.cu); PyTorch's fake kernel fails without biases."""
    return tuple(_like(mode, cx, tuple(one.shape)) for one in (cx, cx, gates))


def _gru_cell(mode: Any, gates: FakeTensor, hidden_gates: FakeTensor, hx: FakeTensor, *biases: Any) -> Any:
    """``_thnn_fused_gru_cell_cuda`` (RNN.cu): the new state, and five numbers for each of its."""
    return tuple(_like(mode, hx, (hx.shape[0], factor * hx.shape[1])) for factor in (1, 5))


def _gru_cell_backward(mode: Any, grad: FakeTensor, workspace: FakeTensor, has_bias: bool) -> Any:
    """``_thnn_fused_gru_cell_backward_cuda``."""
    batch, width = grad.shape
    gates = [(batch, 3 * width), (batch, 3 * width), (batch, width)]
    made = [_like(mode, grad, shape) for shape in (*gates, *([(3 * width,)] * 2 if has_bias else []))]
    return (*made, *[None] * (5 - len(made)))


def _like(mode: Any, tensor: FakeTensor, shape: tuple[int, ...]) -> torch.Tensor:
    return make_fake(mode, torch.empty(shape, dtype=tensor.dtype, device="meta"), tensor.fake_device)


def _as_first(mode: Any, tensor: FakeTensor, *rest: Any, **options: Any) -> torch.Tensor:
    """A result of its own, contiguous, with the shape of the first argument."""
    return _like(mode, tensor, tuple(tensor.shape))


def _in_format_of_first(mode: Any, tensor: FakeTensor, *rest: Any) -> torch.Tensor:
    """A result of its own with the shape and the memory format of the first argument."""
    return make_fake(mode, torch.empty_like(tensor, device="meta"), tensor.fake_device)


def _rounded_with_mask(mode: Any, tensor: FakeTensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.empty_like(tensor, dtype=torch.bool, device="meta")
    return _in_format_of_first(mode, tensor), make_fake(mode, mask, tensor.fake_device)


def _rounded_backward(mode: Any, grad: FakeTensor, *given: Any) -> tuple[torch.Tensor, ...]:
    return tuple(_in_format_of_first(mode, tensor) for tensor in given[:3])  # the input, scales and zero points


def _statistics(mode: Any, tensor: FakeTensor, *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """``batch_norm_stats_cuda`` (Normalization.cu): mean and inverse deviation of each channel, at least float32."""
    dtype = torch.promote_types(tensor.dtype, torch.float32)
    mean, deviation = (torch.empty(tensor.shape[1], dtype=dtype, device="meta") for _ in range(2))
    return make_fake(mode, mean, tensor.fake_device), make_fake(mode, deviation, tensor.fake_device)


def _batch_norm_sums(
    mode: Any, grad: FakeTensor, tensor: FakeTensor, mean: FakeTensor, invstd: FakeTensor, weight: Any, *wanted: bool
) -> tuple[torch.Tensor | None, ...]:
    """``batch_norm_backward_reduce_cuda``: two sums for the input's gradient, and the gradients of weight and bias."""
    of_input, *of_parameters = wanted
    like = [(mean, of_input)] * 2 + [(mean if weight is None else weight, it) for it in of_parameters]
    return tuple(_as_first(mode, tensor) if it else None for tensor, it in like)


def _in_place(mode: Any, *args: Any, **options: Any) -> None:
    """A fused optimizer changes the numbers of what it is given, and nothing else."""


# Operators whose fake kernel refuses what CUDA takes, or that have none.
OUR_OWN: dict[int, Callable[..., Any]] = {
    id(aten._grouped_mm.default): _grouped_mm,
    id(aten._thnn_fused_lstm_cell.default): _lstm_cell,
    id(aten._thnn_fused_gru_cell.default): _gru_cell,
    id(aten._thnn_fused_gru_cell_backward.default): _gru_cell_backward,
    id(aten._sample_dirichlet.default): _as_first,
    id(aten._dirichlet_grad.default): _as_first,
    id(aten.fake_quantize_per_tensor_affine_cachemask.default): _rounded_with_mask,
    id(aten.fake_quantize_per_channel_affine_cachemask.default): _rounded_with_mask,
    id(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default): _rounded_with_mask,
    id(aten._fake_quantize_learnable_per_tensor_affine.default): _in_format_of_first,
    id(aten._fake_quantize_learnable_per_tensor_affine_backward.default): _rounded_backward,
    id(aten._fake_quantize_learnable_per_channel_affine.default): _in_format_of_first,
    id(aten._fake_quantize_learnable_per_channel_affine_backward.default): _rounded_backward,
    id(aten.batch_norm_stats.default): _statistics,
    id(aten.batch_norm_gather_stats_with_counts.default): _statistics,
    id(aten.batch_norm_elemt.default): _in_format_of_first,
    id(aten.batch_norm_backward_reduce.default): _batch_norm_sums,
    id(aten.batch_norm_backward_elemt.default): _in_format_of_first,
    id(aten._fused_sgd_.default): _in_place,
    id(aten._fused_sgd_.tensor_lr): _in_place,
    id(aten._fused_adam_.tensor_lr): _in_place,
    id(aten._fused_adamw_.tensor_lr): _in_place,
    id(aten._fused_adagrad_.default): _in_place,
    id(aten._fused_adagrad_.tensor_lr): _in_place,
}
# Operators without a fake kernel whose result is like one of their arguments.
LIKE = {
    aten._ctc_loss_backward.default: "log_probs",
    aten.multi_margin_loss_backward.default: "self",
    aten.multilabel_margin_loss_backward.default: "self",
}
# Sizes that depend on numbers of which more is known here than PyTorch's fake kernels ask for.
SIZED: dict[Any, Callable[..., Any]] = {
    aten.bincount.default: _bincount,
    aten._ctc_loss.default: _ctc_loss,
    aten._pack_padded_sequence.default: _packed,
}
