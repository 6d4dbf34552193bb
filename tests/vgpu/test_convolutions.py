"""Convolutions as CUDA runs them. What is expected was seen on PyTorch's CUDA build, see tests/standin/."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from memlab import predict
from memlab.units import GIB, MIB
from memlab.vgpu.convolutions import asking
from memlab.vgpu.cudnn.convolution import DATA, FILTER, FORWARD

LAST = torch.channels_last


class Answers:
    """cuDNN with a workspace of one's own for each of the three ways."""

    def __init__(self, **sizes):
        self.sizes, self.asked = sizes, []

    def find(self, capability, question):
        self.asked.append(question)
        return self.sizes.get(question.way, (0,)), asking.wanted_version()


@pytest.fixture
def cudnn(monkeypatch):
    def answer(**sizes):
        answers = Answers(**sizes)
        monkeypatch.setattr(asking, "answers", lambda wanted: answers)
        return answers

    return answer


def train(device, *, layer="Conv2d", channels_last=False, into=64, dtype="float32", groups=1, bias=False):
    dims = int(layer[-2])
    model = getattr(nn, layer)(into, 64, 3, padding=1, groups=groups, bias=bias).to(device, getattr(torch, dtype))
    model = model.to(memory_format=LAST) if channels_last else model
    x = torch.randn(16, into, *[32] * dims).to(device, getattr(torch, dtype))
    while True:
        model(x.requires_grad_()).sum().backward()
        model.zero_grad()
        x.grad = None
        yield None


def run(**settings):
    return predict(train, gpu="A100-40GB", steps=2, **settings)


def asked(answers):
    """The questions of a step, in order."""
    return [question.way for question in answers.asked[:3]]


def test_each_workspace_is_there_while_its_result_is_made(cudnn):
    one = 16 * 64 * 32 * 32 * 4  # of the image, of its result, and of their gradients
    weight = 64 * 64 * 9 * 4
    cudnn(forward=(100 * MIB,))
    assert run().peak_allocated == 2 * one + weight + 100 * MIB
    # The sum's gradient is one number, of which cuDNN wants a dense copy; the sum itself is another.
    cudnn(data=(100 * MIB,))
    assert run().peak_allocated == 3 * one + weight + 100 * MIB + 2 * 512
    cudnn(filter=(100 * MIB,))
    assert run().peak_allocated == 3 * one + 2 * weight + 100 * MIB + 2 * 512


def test_all_three_are_asked_for_in_the_order_of_aten(cudnn):
    answers = cudnn()
    run()
    assert asked(answers) == [FORWARD, DATA, FILTER]
    first = answers.asked[0]
    assert (first.x, first.w, first.y) == ((16, 64, 32, 32), (64, 64, 3, 3), (16, 64, 32, 32))
    assert (first.stride, first.padding, first.dilation, first.dtype) == ((1, 1), (1, 1), (1, 1), "float32")
    assert first.tf32
    assert not first.deterministic


def test_a_signal_is_an_image_of_one_row(cudnn):
    answers = cudnn()
    run(layer="Conv1d")
    assert answers.asked[0].x == (16, 64, 1, 32)
    assert answers.asked[0].padding == (0, 1)


def test_a_transposed_convolution_is_the_gradient_of_one(cudnn):
    answers = cudnn()
    run(layer="ConvTranspose2d")
    assert asked(answers) == [DATA, FORWARD, FILTER]


def test_the_switches_of_pytorch_are_asked_for(cudnn):
    answers = cudnn()
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False, deterministic=True):
        run()
    assert not answers.asked[0].tf32
    assert answers.asked[0].deterministic


def test_an_address_that_is_not_aligned_is_told(cudnn):
    def train(device):
        layer = nn.Conv2d(3, 8, 3).to(device)
        x = torch.randn(3, 3, 9, 9).to(device)
        yield layer(x[1:]).sum()

    answers = cudnn()
    predict(train, gpu="T4", steps=1)
    assert answers.asked[0].alignment == (4, 32, 32)  # 3 x 9 x 9 numbers of 4 bytes: not a multiple of 8


@pytest.mark.parametrize(
    ("settings", "is_asked"),
    [
        ({"groups": 64}, False),  # depthwise: a kernel of ATen's own
        ({"groups": 64, "dtype": "bfloat16"}, False),
        ({"groups": 64, "dtype": "float16"}, True),
        ({"groups": 64, "channels_last": True}, True),
        ({"groups": 4}, True),
        ({"dtype": "float64"}, True),
    ],
)
def test_who_runs_it(cudnn, settings, is_asked):
    answers = cudnn()
    run(**settings)
    assert bool(answers.asked) is is_asked


def test_a_card_without_bfloat16_does_not_ask_for_it(cudnn):
    answers = cudnn()
    predict(train, gpu="T4", steps=1, dtype="bfloat16")
    assert answers.asked == []


def test_nobody_is_asked_where_cudnn_is_switched_off(cudnn):
    answers = cudnn()
    with torch.backends.cudnn.flags(enabled=False):
        run()
    assert answers.asked == []


def test_with_little_memory_a_smaller_workspace_is_taken(cudnn):
    cudnn(forward=(30 * GIB, 20 * GIB, 3 * GIB, 0))
    assert run().peak_allocated > 30 * GIB
    assert 20 * GIB < predict(train, gpu="A100-40GB", steps=2, budget="25 GiB").peak_allocated < 21 * GIB
    assert predict(train, gpu="A100-40GB", steps=2, budget="1 GiB").peak_allocated < GIB


def test_memory_that_is_short_for_every_plan_is_out_of_memory(cudnn):
    cudnn(forward=(30 * GIB, 20 * GIB))
    assert predict(train, gpu="T4", steps=1).oom.asked == 20 * GIB


def test_a_plan_that_was_found_is_kept(cudnn):
    """``benchmark_cache``: with memory short in the first step, the later ones take the small workspace, too."""

    def train(device):
        layer = nn.Conv2d(64, 64, 3).to(device)
        x = torch.randn(16, 64, 32, 32).to(device)
        held = [torch.empty(8 * GIB, dtype=torch.uint8, device=device)]
        while True:
            yield layer(x).sum()
            held.clear()

    cudnn(forward=(10 * GIB, 100 * MIB))
    trace = predict(train, gpu="T4", steps=2)
    assert [step.peak_allocated // GIB for step in trace.steps] == [8, 8]  # the second begins with what is held


@pytest.fixture
def benchmark():
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        yield


@pytest.mark.usefixtures("benchmark")
def test_benchmark_tries_all_plans_once_and_is_said(cudnn):
    answers = cudnn(forward=(100 * MIB, 500 * MIB, 0, 300 * MIB))
    first, second = predict(train, gpu="A100-40GB", steps=2).steps
    assert answers.asked[0].benchmark
    # One of the input's size more than forward has: the gradient of step one, which is freed only in step two.
    assert (first.peak_allocated // (100 * MIB), second.peak_allocated // (100 * MIB)) == (5, 1)
    (note,) = run().notes
    assert note.startswith("torch.backends.cudnn.benchmark")


@pytest.mark.usefixtures("benchmark")
def test_benchmark_gives_back_what_is_cached(cudnn):
    """So what is reserved in the end is far less than at the highest."""

    def train(device):
        layer = nn.Conv2d(64, 64, 3).to(device)
        yield layer(torch.randn(16, 64, 32, 32).to(device)).sum()
        reserved.append(torch.cuda.memory_reserved())

    reserved = []
    cudnn(forward=(1 * MIB, 500 * MIB))
    trace = predict(train, gpu="A100-40GB", steps=2)
    assert trace.peak_reserved > 500 * MIB
    assert reserved[0] < 100 * MIB


@pytest.mark.usefixtures("benchmark")
def test_benchmark_with_little_memory_halves_what_it_asks_for(cudnn):
    cudnn(forward=(1 * MIB, 14 * GIB, 20 * GIB))  # the T4 has no 20 GiB, and no 14 beside what is there
    trace = predict(train, gpu="T4", steps=1, budget="12 GiB")
    assert 7 * GIB < trace.peak_allocated < 7.2 * GIB
    assert trace.oom is None


def test_what_cudnn_has_no_plan_for_fails_as_on_the_card(cudnn):
    cudnn(forward=())
    with pytest.raises(RuntimeError, match="unable to find an engine"):
        run()


def test_what_nobody_knows_is_said_once(cudnn):
    answers = cudnn()
    answers.find = lambda capability, question: (None, 0)
    trace = run()
    (note,) = trace.notes
    assert note.startswith("Without cuDNN's workspaces")
    assert trace.is_lower_bound


def test_what_is_known_is_no_lower_bound(cudnn):
    cudnn(forward=(1 * MIB,))
    assert not run().is_lower_bound


def test_another_version_is_said(cudnn):
    answers = cudnn()
    answers.find = lambda capability, question: ((0,), 91400)
    (note,) = run().notes
    assert "cuDNN 9.14" in note


def steps_of_formats(device, found, layer, last_x, last_w) -> Iterator[None]:
    x = torch.randn(4, 8, 16, 16).to(device)
    x = (x.contiguous(memory_format=LAST) if last_x else x).requires_grad_()
    model = layer.to(device)
    model = model.to(memory_format=LAST) if last_w else model
    y = model(x)
    grads = torch.autograd.grad(y.sum(), [x, model.weight])
    found += [tensor.is_contiguous(memory_format=LAST) for tensor in (y, *grads)]
    yield None


@pytest.mark.parametrize("layer", [nn.Conv2d(8, 16, 3), nn.ConvTranspose2d(8, 16, 3)])
@pytest.mark.parametrize("last_x", [False, True])
@pytest.mark.parametrize("last_w", [False, True])
def test_channels_stay_last(cudnn, layer, last_x, last_w):
    cudnn()
    found = []

    def train(device):
        yield from steps_of_formats(device, found, layer, last_x, last_w)

    predict(train, gpu="T4", steps=1)
    assert found == [last_x or last_w] * 3


def test_a_copy_in_the_other_format_is_counted(cudnn):
    cudnn(forward=(100 * MIB,))
    one, weight = 16 * 64 * 32 * 32 * 4, 64 * 64 * 9 * 4
    plain, last = run().peak_allocated, run(channels_last=True).peak_allocated
    assert plain == 2 * one + weight + 100 * MIB
    assert last == 3 * one + weight + 100 * MIB  # the image is copied


@pytest.mark.parametrize(("into", "kept"), [(8, 64), (64, 64), (128, 128)])
def test_a_result_is_never_smaller_than_the_input_where_it_is_transposed_in_three_dimensions(into, kept):
    """``slow_conv_transpose3d_cuda``, which runs bfloat16 on a T4, begins with one like the input."""
    storages = []

    def train(device):
        layer = nn.ConvTranspose3d(into, 64, 3, padding=1, bias=False).to(device, torch.bfloat16)
        x = torch.randn(16, into, 8, 8, 8).to(device, torch.bfloat16)
        storages.append(layer(x).untyped_storage().nbytes())
        yield

    predict(train, gpu="T4", steps=1)
    assert storages == [16 * kept * 8**3 * 2]


def test_a_cudnn_that_pytorch_refuses_does_not_end_a_prediction(cudnn, monkeypatch):
    def refuses():
        raise RuntimeError("cuDNN version incompatibility: PyTorch was compiled against another")

    cudnn()
    expected = run().peak_allocated
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.backends.cudnn, "version", refuses)
    assert run().peak_allocated == expected
