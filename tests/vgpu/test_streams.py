"""Streams: each has blocks and workspaces of its own, and backward works on those of its forward pass."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from memlab import predict
from memlab.errors import WrongDevice
from memlab.vgpu.versions import TORCH
from tests.vgpu.once import in_a_prediction, seen

WORKSPACE = 8_519_680  # of cuBLAS on a T4


def allocated_in(streams):
    """Bytes reserved after a tensor was made and freed on each of some streams."""
    for stream in streams:
        with torch.cuda.stream(stream):
            torch.empty(2**20, dtype=torch.uint8, device="cuda")
    return torch.cuda.memory_reserved()


def test_streams_do_not_share_blocks():
    (one, two, again), _ = in_a_prediction(
        lambda device: [
            allocated_in([torch.cuda.Stream()]),
            allocated_in([torch.cuda.Stream()]),
            allocated_in([torch.cuda.default_stream()]),
        ]
    )
    assert (one, two, again) == (2 * 2**20, 4 * 2**20, 6 * 2**20)


def test_the_stream_before_is_back():
    def work(device):
        outer, inner = torch.cuda.Stream(), torch.cuda.Stream()
        with outer:
            with torch.cuda.stream(inner):
                assert torch.cuda.current_stream() == inner != outer
            with torch.cuda.stream(None):
                assert torch.cuda.current_stream() == outer
        torch.cuda.set_stream(inner)
        assert torch.cuda.current_stream() == inner
        return torch.cuda.default_stream().cuda_stream

    assert in_a_prediction(work)[0] == 0


def test_each_stream_has_a_workspace_in_each_thread(monkeypatch):
    monkeypatch.setattr("memlab.vgpu.scratch.cublas.TORCH", (2, 13))

    def allocated_after_products(device, streams):
        x = torch.ones(64, 64, device=device, requires_grad=True)
        for stream in streams:
            with torch.cuda.stream(stream):
                (x @ x).sum().backward()
        x.grad = None
        return torch.cuda.memory_allocated() - 64 * 64 * 4

    def work(device):
        one = torch.cuda.current_stream()
        return [allocated_after_products(device, [one, one]), allocated_after_products(device, [torch.cuda.Stream()])]

    assert seen(work) == [2 * WORKSPACE, 4 * WORKSPACE]


class Noting(torch.autograd.Function):
    """Its backward writes down on which stream it works."""

    @staticmethod
    def forward(ctx, x, streams):
        ctx.streams = streams
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.streams.append(torch.cuda.current_stream().cuda_stream)
        return gradient.clone(), None


def test_backward_works_on_the_streams_of_the_forward_pass():
    def work(device):
        streams, side = [], torch.cuda.Stream()
        x = Noting.apply(torch.ones(2, device=device, requires_grad=True), streams)
        with torch.cuda.stream(side):
            x = Noting.apply(x, streams)
        Noting.apply(x, streams).sum().backward()
        return [*streams, torch.cuda.current_stream().cuda_stream], side.cuda_stream

    streams, side = seen(work)
    assert streams == [0, side, 0, 0]
    assert side != 0


def test_a_hook_may_use_a_stream_of_its_own():
    def work(device):
        streams, side, own = [], torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(side):
            x = Noting.apply(torch.ones(2, device=device, requires_grad=True), streams)

        def hook(gradients):
            streams.append(torch.cuda.current_stream().cuda_stream)
            with torch.cuda.stream(own):
                streams.append(torch.cuda.current_stream().cuda_stream)

        x.grad_fn.register_prehook(hook)
        x.sum().backward()
        return streams, [side.cuda_stream, own.cuda_stream, side.cuda_stream]

    streams, expected = seen(work)
    assert streams == expected


def test_what_is_run_again_in_backward_stays_on_its_stream():
    def work(device):
        streams, side = [], torch.cuda.Stream()
        x = torch.ones(2, device=device, requires_grad=True)
        with torch.cuda.stream(side):
            x = checkpoint(lambda x: Noting.apply(x, streams), x, use_reentrant=True)
        x.sum().backward()
        return streams, side.cuda_stream

    streams, side = seen(work)
    assert streams == [side]


# The bytes allocated and reserved at most after each of two steps: of PyTorch's CUDA build on the stand-in, by version.
DATA_PARALLEL = {
    (2, 11): [(112_325_632, 153_092_096), (129_123_328, 190_840_832)],
    (2, 13): [(111_277_056, 153_092_096), (128_074_752, 190_840_832)],
    (2, 15): [(94_237_696, 144_703_488), (111_035_392, 144_703_488)],
}


@pytest.mark.skipif(TORCH not in DATA_PARALLEL, reason="not taken with this PyTorch")
def test_data_parallel_on_one_card_copies_its_input_on_a_stream_of_its_own():
    taken = []

    def train(device):
        layers = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))
        model = nn.DataParallel(layers).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        while True:
            loss = model(torch.randn(3000, 512)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            taken.append((torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()))
            yield loss

    for _ in range(2):
        predict(train, steps=2)
        assert torch.nn.parallel._functions._streams is None  # or the next one would have a stream of this one
    assert taken == DATA_PARALLEL[TORCH] * 2


def test_data_parallel_on_several_cards_is_refused():
    def work(device):
        nn.DataParallel(nn.Linear(2, 2).cuda(), device_ids=[0, 1])(torch.ones(4, 2))

    with pytest.raises(WrongDevice, match="names the device 'cuda:1'"):
        seen(work)
