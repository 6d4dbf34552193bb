"""The allocations of an operator on a card, in order, counted by hand from PyTorch's and CUB's source."""

import pytest
import torch

from memlab.vgpu import find_card
from memlab.vgpu.scratch import cub, indexing
from memlab.vgpu.scratch.cublas import cublas
from memlab.vgpu.scratch.rule import RESULT, Result
from tests.vgpu.scratch.steps import made, steps

aten = torch.ops.aten


def whole(*parts):
    """An allocation of CUB's: parts of whole 256 bytes, and 255 more."""
    return sum(-(-part // 256) * 256 for part in parts) + 255


@pytest.mark.parametrize(("gpu", "tile"), [("T4", 2816), ("A100-40GB", 3072), ("RTX 4090", 3072), ("H100", 5376)])
def test_a_long_sort_takes_a_sweep_for_every_eight_bits(gpu, tile):
    count = 450_000
    # Four sweeps over keys of four bytes: 256 counts of eight bytes each, and for every tile 256 of four bytes.
    buffer = whole(4 * 256 * 8, -(-count // tile) * 1024, 4 * count, 8 * count, 4 * 4)
    assert steps(gpu, aten.sort.default, made(count)) == [8 * count, buffer, -buffer, -8 * count]


def test_small_keys_are_sorted_in_turns_before_sm_90():
    count, half = 100_000, torch.float16
    on_t4 = steps("T4", aten.sort.default, made(count, dtype=half))
    # 40 processors of four blocks of 256 threads, five times over, 128 counts each, and a tile of 5,632 for their scan.
    assert on_t4[1] == whole(8 * (40 * 4 * 5 * 128 + 5632), 2 * count, 8 * count)
    on_h100 = steps("H100", aten.sort.default, made(count, dtype=half))
    assert on_h100[1] == whole(2 * 256 * 8, -(-count // 5632) * 1024, 2 * count, 8 * count, 8)


def test_a_short_dimension_is_sorted_in_its_results():
    assert steps("T4", aten.sort.default, made(1500, 300)) == [2400, -2400]
    assert steps("T4", aten.sort.stable, made(1500, 300), stable=True, dim=0) == [12000, -12000]


def test_long_segments_are_sorted_together_few_twice_many_once():
    many = steps("T4", aten.sort.default, made(200, 5000))
    assert many[:2] == [8_000_000, whole(4_000_000, 8_000_000)]
    few = steps("T4", aten.sort.default, made(16, 5000))
    # By value, and then by the five bits of the segment, without buffers for keys since one sweep is enough.
    assert few[3] == whole(4 * 256 * 8, 29 * 1024, 320_000, 640_000, 16)
    assert few[6] == whole(256 * 8, 29 * 1024, 4)
    across = steps("T4", aten.sort.default, made(5000, 16), 0)
    assert across[:3] == [320_000, 320_000, 640_000]  # the input and both results, laid out anew
    assert across[3:] == few


@pytest.mark.parametrize(("count", "key", "bits"), [(3000, 4, 26), (70_000, 8, 35)])
def test_a_permutation_sorts_keys_of_so_many_bits_that_they_rarely_meet(count, key, bits):
    out = made(count, dtype=torch.int64)
    tile = 2816
    buffer = whole(-(-bits // 8) * 2048, -(-count // tile) * 1024, key * count, 8 * count, 4 * -(-bits // 8))
    expected = [RESULT, 8, -8, 8 * count, key * count, key * count, buffer, -buffer]
    assert steps("T4", aten.randperm.default, count, out=out) == expected


def embedding(gpu, count, rows, width=64, *, scaled=False):
    tokens, gradient = made(count, dtype=torch.int64), made(count, width)
    return steps(gpu, aten.embedding_dense_backward.default, gradient, tokens, rows, -1, scaled, out=made(rows, width))


@pytest.mark.parametrize(("torch_version", "passes"), [((2, 11), 8), ((2, 13), 2), ((2, 15), 2)])
def test_tokens_are_sorted_by_as_many_bits_as_the_version_of_torch_says(monkeypatch, torch_version, passes):
    monkeypatch.setattr(indexing, "TORCH", torch_version)
    size = 8 * 8192
    sort = whole(passes * 2048, 3 * 1024, size, size, 4 * passes)
    first = whole(16 * (26 + 32), 1)  # 8,192 in tiles of 320
    sums = whole(16 * (10 + 32), 1)  # in tiles of 896
    parts = 819 + 8192
    assert embedding("T4", 8192, 10_000) == [
        *(size, size, size, sort, -sort, -size, RESULT),
        *(size, 8, size, first, -first, -size, size, size, sums, -sums, 8),
        *(8 * parts, 4 * parts * 64),
    ]


def test_few_tokens_of_an_embedding_are_not_sorted():
    assert embedding("T4", 3072, 10_000) == []
    assert embedding("T4", 3072, 10_000, scaled=True) != []


def test_few_rows_are_summed_by_blocks_of_their_own():
    parts = 5000 + 159
    assert embedding("T4", 50_000, 159)[-2:] == [8 * parts, 8 * parts]
    assert embedding("T4", 50_000, 160)[-1] == 4 * (5000 + 160) * 64  # four for each of the T4's 40 processors
    assert embedding("A100-40GB", 50_000, 160)[-1] == 8 * (5000 + 160)


def test_a_bag_of_embeddings_is_sorted_too():
    tokens, gradient = made(8192, dtype=torch.int64), made(1024, 64)
    args = (gradient, tokens, *[tokens] * 4, 10_000, False, 0, False, None)
    taken = steps("T4", aten._embedding_bag_backward.default, *args, out=made(10_000, 64))
    assert taken[:3] == [8 * 8192] * 3


def test_each_index_of_several_is_multiplied_and_added():
    index, size = made(3000, dtype=torch.int64), 24_000
    buffer = whole(2048 * 2, 2 * 1024, size, size, 8)  # 4,000 rows have twelve bits
    args = (made(100, 40), [index, index], made(3000), True)
    expected = [size, size, -size, size, size, -size, -size, size, size, size, buffer, -buffer]
    assert steps("T4", aten.index_put.default, *args, out=made(100, 40)) == expected


def test_what_is_put_is_copied_where_it_is_not_contiguous():
    index, value = made(20, dtype=torch.int64), made(500, 1).expand(500, 20)
    taken = steps("T4", aten.index_put.default, made(500, 40), [None, index], value, True, out=made(500, 40))
    assert 4 * 500 * 20 in taken


SHAPE, SIZE = (3000, 500), 6_000_000
MEAN = (320, 4, -4, -320)  # 80 blocks of a T4 on one sum


@pytest.mark.parametrize(
    ("loss", "mean", "none"),
    [
        (aten.mse_loss.default, [SIZE, *MEAN, -SIZE], []),
        (aten.smooth_l1_loss.default, [SIZE, *MEAN, -SIZE], []),
        (aten.huber_loss.default, [SIZE, RESULT, *MEAN], []),
        (aten.soft_margin_loss.default, [RESULT, 4, *MEAN], []),
    ],
)
def test_a_loss_is_reduced_where_its_kernel_does(loss, mean, none):
    pair = made(*SHAPE), made(*SHAPE)
    assert steps("T4", loss, *pair, 1) == mean
    assert steps("T4", loss, *pair, 0) == none


def test_binary_cross_entropy_is_the_larger_the_more_weights_it_has():
    logits, target, weight = made(*SHAPE), made(*SHAPE), made(500)
    loss = aten.binary_cross_entropy_with_logits.default
    assert steps("T4", loss, logits, target, None, None, 0) == [SIZE, RESULT]
    assert steps("T4", loss, logits, target, None, None, 1) == [SIZE, SIZE, RESULT, *MEAN]
    weighted = [SIZE, 2000, SIZE, -2000, -SIZE, SIZE, RESULT, *MEAN]
    assert steps("T4", loss, logits, target, None, weight, 1) == weighted


def test_ctc_keeps_three_lists_of_lengths_and_a_state_of_its_own_in_backward():
    scores, targets = made(50, 40, 100), made(40, 20, dtype=torch.int64)
    lengths = [50] * 40, [20] * 40
    state = made(40, 50, 41)
    assert steps("T4", aten._ctc_loss.default, scores, targets, *lengths, out=(made(40), state)) == [
        *(320, 320, 320, Result(1), RESULT)
    ]
    args = (made(40), scores, targets, *lengths, made(40), state, 0)
    assert steps("T4", aten._ctc_loss_backward.default, *args, out=scores) == [320, 320, 320, 328_000, RESULT]


@pytest.mark.parametrize(
    ("operator", "dtype", "bytes_of_a_part"),
    [
        (aten.sum.default, torch.float16, 4),
        (aten.sum.default, torch.float64, 8),
        (aten.max.default, torch.float16, 2),
        (aten.max.default, torch.int64, 8),
        (aten.any.default, torch.float32, 1),
        (aten.prod.default, torch.float32, 4),
        (aten.linalg_vector_norm.default, torch.float64, 8),
        (aten.var.correction, torch.float64, 32),
        (aten.std.correction, torch.float32, 16),
        (aten.aminmax.default, torch.float32, 8),
    ],
)
def test_a_part_of_a_reduction_is_as_wide_as_the_kernel_has_it(operator, dtype, bytes_of_a_part):
    assert steps("T4", operator, made(*SHAPE, dtype=dtype))[0] == 80 * bytes_of_a_part


def test_whole_numbers_are_cast_before_they_are_added():
    assert steps("T4", aten.sum.default, made(*SHAPE, dtype=torch.bool))[0] == 8 * 1_500_000
    assert steps("T4", aten.sum.default, made(*SHAPE, dtype=torch.int64))[0] == 80 * 8


def test_a_log_of_sums_keeps_its_maxima_and_the_exponentials():
    rows = made(1500, 300)
    expected = [6000, 6000, 1500, -1500, -6000, 1_800_000, RESULT]
    assert steps("T4", aten.logsumexp.default, rows, [1]) == expected


def test_norms_of_many_tensors_have_parts_for_the_longest():
    tensors = [made(700, 700), made(700), made(100_000)]
    assert steps("T4", aten._foreach_norm.Scalar, tensors) == [3 * 8 * 4, RESULT]


def test_group_norm_has_factors_for_each_channel_and_group():
    image, weight = made(8, 16, 32, 32), made(16)
    shape = (8, 16, 1024, 4)
    expected = [RESULT, 512, 512, -512, -512]
    assert steps("T4", aten.native_group_norm.default, image, weight, weight, *shape, 1e-5) == expected
    assert steps("T4", aten.native_group_norm.default, image, None, None, *shape, 1e-5) == []
    args = (image, image, made(8, 4), made(8, 4), weight, *shape, [True] * 3)
    assert steps("T4", aten.native_group_norm_backward.default, *args) == [512, 512, 128, 128, 512]
    rows = made(2048, 512)
    args = (rows, rows, made(2048, 8), made(2048, 8), made(512), 2048, 512, 1, 8, [True] * 3)
    sums = [4_194_304, 4_194_304, 65_536, 65_536]  # without an image a channel needs no factor of its own
    assert steps("T4", aten.native_group_norm_backward.default, *args) == sums


def test_layers_that_take_contiguous_images_copy_others():
    image = made(8, 16, 32, 32)
    last = image.to(memory_format=torch.channels_last)
    results = made(8, 16, 4, 4), made(8, 16, 4, 4, dtype=torch.int64)
    pool = aten.adaptive_max_pool2d.default
    assert steps("T4", pool, image, [4, 4], out=results) == [RESULT]
    assert steps("T4", pool, last, [4, 4], out=results) == [RESULT, 524_288]
    assert steps("T4", aten.im2col.default, image, [3, 3], [1, 1], [1, 1], [1, 1]) == [524_288, RESULT]
    assert steps("T4", aten.im2col.default, last, [3, 3], [1, 1], [1, 1], [1, 1]) == [524_288, 524_288, RESULT]


def test_the_points_of_a_grid_are_made_before_the_product():
    made_of = [aten.affine_grid_generator.default, made(4, 2, 3), [4, 3, 8, 16]]
    line, column = [64, 64, 64, -64, -64, -64], [32, 32, 32, -32, -32, -32]
    product = [RESULT, *cublas(find_card("T4"))]
    assert steps("T4", *made_of, False) == [4 * 4 * 8 * 16 * 3, *line, *column, *product]
    assert steps("T4", *made_of, True) == [4 * 4 * 8 * 16 * 3, 64, -64, 32, -32, *product]


def test_a_product_of_vectors_needs_no_cublas_where_triton_makes_it(monkeypatch):
    args = aten.bmm.default, made(300, 50, 1), made(300, 1, 64)
    monkeypatch.setattr("memlab.vgpu.scratch.cublas.TORCH", (2, 13))
    assert steps("T4", *args) == []
    monkeypatch.setattr("memlab.vgpu.scratch.cublas.TORCH", (2, 11))
    assert steps("T4", *args) == list(cublas(find_card("T4")))


def test_the_host_needs_no_workspace_of_the_card():
    assert steps("T4", aten.mv.default, torch.ones(3, 2), torch.ones(2)) == []


def test_distances_of_many_points_are_a_product():
    near, far = made(500, 300), made(700, 300)
    assert steps("T4", aten._euclidean_dist.default, near, far) == [
        *(600_000, 2000, -600_000, 2000, 840_000, 2800, -840_000, 2800),
        *(600_000, 604_000, -2000, -2000, -600_000, 845_600, -2800, -2800, RESULT, *cublas(find_card("T4"))),
    ]


def test_other_functions_take_what_their_kernels_do():
    rows = made(1500, 300)
    assert steps("T4", aten.roll.default, rows, [5, 7], [0, 1]) == [1_800_000, RESULT]
    assert steps("T4", aten.roll.default, rows, [5], [0]) == [RESULT]
    assert steps("T4", aten.cumsum.default, rows, 1) == []
    assert steps("T4", aten.cumsum.default, made(450_000), 0)[0] == whole(8 * (235 + 32), 1)  # in tiles of 1,920
    spectrum = made(1500, 151, dtype=torch.complex64)
    assert steps("T4", aten.abs.default, spectrum) == [RESULT, 1500 * 151 * 8]
    assert steps("T4", aten._fft_c2r.default, spectrum, [1], 2, 300) == [RESULT, 1500 * 151 * 8]


def test_a_bilinear_layer_goes_feature_by_feature():
    args = (made(500, 16), made(8, 16, 16), made(500, 16), [1, 3], [0], [1, 2], [2, 3])
    taken = steps("T4", aten._trilinear.default, *args, out=made(500, 8))
    assert [step for step in taken if step in (RESULT, 32_000, 2000, -32_000, -2000)] == [
        RESULT,
        *[32_000, 2000, -32_000, -2000] * 8,
    ]
    assert len(taken) > 33  # the workspaces of its products


def test_transforms_copy_what_stays_if_it_does_not_lie_as_one():
    x = made(8, 96, 512)
    assert steps("T4", aten._fft_r2c.default, x, [2], 0, True) == [RESULT]
    assert steps("T4", aten._fft_r2c.default, x, [0], 0, True) == [RESULT]
    assert steps("T4", aten._fft_r2c.default, x, [1], 0, True) == [RESULT, 8 * 96 * 512 * 4]
    assert steps("T4", aten._fft_r2c.default, x, [1, 2], 0, True) == [RESULT]
    half = 8 * 49 * 512 * 8  # in turn, not at once: the first transform's result, its copied input, the second's result
    copy = 8 * 96 * 512 * 4
    assert steps("T4", aten._fft_r2c.default, x, [0, 1], 0, True) == [half, copy, -copy, RESULT]
    spectrum = made(8, 49, 512, dtype=torch.complex64)
    assert steps("T4", aten._fft_c2c.default, spectrum, [1], 0, True) == [RESULT, half]
    assert steps("T4", aten._fft_c2c.default, spectrum, [0, 2], 0, True) == [RESULT]
    assert steps("T4", aten._fft_c2r.default, spectrum, [1], 2, 96) == [RESULT, half, half]
    assert steps("T4", aten._fft_c2r.default, spectrum, [0, 1], 2, 96) == [RESULT, half]


def test_a_real_input_that_does_not_begin_at_a_whole_complex_number_is_cloned():
    x = made(8, 513)[:, 1:]
    assert steps("T4", aten._fft_r2c.default, x, [1], 0, True) == [RESULT, 8 * 512 * 4]


def test_a_roll_keeps_what_each_dimension_gave():
    rows = made(15, 30, 10)
    assert steps("T4", aten.roll.default, rows, [5, 7, 1], [0, 1, 2]) == [18_000, 18_000, RESULT]


def test_masked_scatter_numbers_the_places_of_the_mask():
    x, mask, source = made(100, 100), made(100, 1, dtype=torch.bool), made(5000)
    buffer = cub.running_sum(10_000, 8)
    wide = steps("T4", aten.masked_scatter.default, x, mask.expand(100, 100), source)
    assert wide == [RESULT, 80_000, 10_000, buffer, -buffer]
    whole = steps("T4", aten.masked_scatter_.default, x, made(100, 100, dtype=torch.bool), made(50, 100).t(), out=x)
    assert whole == [RESULT, 80_000, buffer, -buffer, 20_000]


def test_dirichlet_variates_are_divided_by_their_sums():
    assert steps("T4", aten._sample_dirichlet.default, made(256, 512), out=made(256, 512)) == [RESULT, 1024]


def test_infinite_numbers():
    floats, integers = made(1024, 1024), made(1024, dtype=torch.int64)
    assert steps("T4", aten.isinf.default, floats, out=made(1024, 1024, dtype=torch.bool)) == [4 * 1024 * 1024, RESULT]
    assert steps("T4", aten.isinf.default, integers, out=made(1024, dtype=torch.bool)) == []


def test_deviations_are_looked_at_twice():
    # As on the stand-in, whose kernels only find none that is negative where the memory held ones.
    looked = [4, 1, -1, -4]
    deviations, mean = made(100, 100), made(100)
    assert steps("T4", aten.normal.float_Tensor, 0.0, deviations) == [*looked, RESULT, *looked, 4]
    assert steps("T4", aten.normal.Tensor_Tensor, mean, deviations) == [*looked, RESULT, *looked]
    looked = [4, 40_000, -40_000, 1, -1, -4]
    assert steps("T4", aten.normal.Tensor_Tensor, mean, made(100, 200)[:, ::2]) == [*looked, RESULT, *looked]
