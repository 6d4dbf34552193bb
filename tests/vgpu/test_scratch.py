"""Bytes beside results, held to what the recorded traces show."""

import gzip
import json

import pytest
import torch

from memlab.vgpu import find_card
from memlab.vgpu.scratch import cublas
from memlab.vgpu.scratch.cublas import cublas_workspace
from memlab.vgpu.scratch.reduction import buffers
from memlab.vgpu.scratch.rule import RESULT
from memlab.vgpu.scratch.table import scratch
from tests.allocator.test_real_traces import FOLDER

aten = torch.ops.aten


def card_buffers(gpu, shape, dims, element=4, strides=None):
    card = find_card(gpu)
    tensor = torch.empty(shape, device="meta")
    if strides:
        tensor = torch.empty_strided(shape, strides, device="meta")
    return buffers(tensor, dims, element, card.processors, card.threads)


def recorded(name, operator):
    """The sizes that the operator allocated in a recorded trace, by the autograd node or the outer operator."""
    path = FOLDER / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"no {path}: set MEMLAB_TRACES to the folder that has the traces")
    trace = json.loads(gzip.decompress(path.read_bytes()))
    events = [(size, trace["ops"][label]) for _, _, size, label in trace["events"] if label >= 0]
    return [size for size, label in events if operator in label]


def test_a_large_sum_over_rows_takes_the_buffers_that_a_card_took():
    # The gradient of 512 norm weights over batch 10 of 200 and of 100 tokens.
    assert card_buffers("RTX 4090", (10, 200, 512), [0, 1]) == (8_388_608, 16)
    assert card_buffers("RTX 4090", (10, 100, 512), [0, 1]) == ()
    sums = recorded("cold_200_amp", "sum_dim_IntList")
    assert sums.count(8_388_608) == sums.count(16) == 27
    assert 8_388_608 not in recorded("cold_100_fp32", "sum_dim_IntList")


def test_the_mean_of_an_image_takes_the_buffers_that_a_card_took():
    means = recorded("cnn_fp32", "mean_dim")
    assert set(means) == {4, 576}  # the result and the counter, and partial results of 144 blocks
    assert card_buffers("RTX 3060", (1, 30, 256, 256), None)[0] % 4 == 0


@pytest.mark.parametrize(
    ("shape", "dims"),
    [((8, 16), [1]), ((4096, 128), [1]), ((10, 10), None), ((256, 64), [0]), ((0, 4), [1]), ((), None)],
)
def test_a_small_reduction_needs_none(shape, dims):
    assert card_buffers("A100-40GB", shape, dims) == ()


def test_the_order_of_dimensions_in_memory_decides_not_their_names():
    rows = card_buffers("A100-40GB", (4000, 512), [0])
    assert rows == card_buffers("A100-40GB", (512, 4000), [1], strides=(1, 512))
    assert rows == card_buffers("A100-40GB", (4, 1000, 512), [0, 1])


def test_a_bigger_card_divides_a_long_sum_among_more_blocks():
    small, large = (card_buffers(gpu, (2**24,), None) for gpu in ("T4", "H100"))
    assert 0 < small[0] < large[0]


def test_an_accumulating_index_put_sorts_as_the_card_did():
    weight, index, values = (
        torch.zeros(100, 4),
        [torch.zeros(512, dtype=torch.int64, device="meta")],
        torch.zeros(512, 4),
    )
    taken = scratch(find_card("T4"), aten.index_put_.default, (weight, index, values, True), None)
    allocated = [size for size in taken if size > 0]
    assert allocated == [4096] * 5 + [1]
    backward = recorded("medium_128_fp32", "IndexBackward0")
    assert [size for size in backward if size <= 4096] == allocated
    assert not list(scratch(find_card("T4"), aten.index_put_.default, (weight, index, values), None))


def test_a_mask_becomes_positions():
    tensor, mask = torch.zeros(64, 64, 2), torch.ones(64, 64, dtype=torch.bool, device="meta")
    taken = scratch(find_card("T4"), aten.index.Tensor, (tensor, [mask]), torch.empty(4096, 2, device="meta"))
    assert [step for step in taken if isinstance(step, int) and step > 4] == [2 * 8 * 4096]
    numbers = torch.zeros(64, dtype=torch.int64, device="meta")
    for indices in ([numbers], [mask[:, 0], numbers]):
        out = torch.empty(5, 2, device="meta")
        assert list(scratch(find_card("T4"), aten.index.Tensor, (tensor, indices), out)) == [RESULT]


def test_cublas_takes_the_workspaces_that_cards_took():
    assert recorded("cold_100_fp32", "cublas_workspace") == [cublas_workspace(find_card("RTX 4090"))] * 2
    assert recorded("xl_128_fp32", "cublas_workspace") == [cublas_workspace(find_card("H100"))] * 2


@pytest.mark.parametrize("card", ["RTX 5090", "B200"])
@pytest.mark.parametrize(("version", "expected"), [((2, 11), 8519680), ((2, 13), 32 * 2**20), ((2, 15), 32 * 2**20)])
def test_the_workspace_of_newer_cards_follows_the_version(card, version, expected, monkeypatch):
    monkeypatch.setattr(cublas, "TORCH", version)
    assert cublas_workspace(find_card(card)) == expected
