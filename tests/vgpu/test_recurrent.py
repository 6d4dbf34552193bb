"""Recurrent networks as CUDA runs them without cuDNN. Bytes were seen on PyTorch's CUDA build, see tests/standin/."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from memlab import predict
from memlab.vgpu.recurrent import NOT_CUDNNS
from tests.loops.matrix.recurrent import cells


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_cell_is_one_kernel_that_keeps_its_gates(kind):
    """A step more keeps what the kernel's backward needs, in numbers of the state's size.

    LSTM: the products of input and of state (4 each), the gates again (4), the state and the cell (2). GRU: 3, 3, 5,
    and the state.
    """
    state, numbers = 32 * 1024 * 4, {"LSTM": 14, "GRU": 12}[kind]
    long, short = (
        predict(cells, gpu="T4", steps=2, kind=kind, width=1024, length=n).by_category["activation"] for n in (40, 20)
    )
    assert (long - short) / 20 / state == pytest.approx(numbers, rel=0.01)


def shapes(device, found, kind, **options):
    torch.manual_seed(0)
    model = getattr(nn, kind)(5, 8, 2, batch_first=True, **options).to(device)
    given = torch.randn(3, 4, 5).to(device)
    packed = pack_padded_sequence(given, torch.tensor([4, 3, 1]), batch_first=True)
    for one in (given, packed):
        result, last = model(one)
        results = (getattr(result, "data", result), *(last if isinstance(last, tuple) else (last,)))
        found.append([(tuple(tensor.shape), tensor.requires_grad) for tensor in results])
    yield None


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # oneDNN cannot, on the host
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("LSTM", {"bias": False, "bidirectional": True}),
        ("LSTM", {"proj_size": 3}),
        ("GRU", {"dropout": 0.5, "bidirectional": True}),
        ("RNN", {"bidirectional": True}),
    ],
)
def test_results_have_the_shapes_of_the_host(kind, options):
    predicted, real = [], []
    predict(shapes, gpu="T4", steps=1, found=predicted, kind=kind, **options)
    list(shapes(torch.device("cpu"), real, kind, **options))
    assert predicted == real


def test_what_cudnn_keeps_is_not_known_and_said():
    def train(device):
        yield nn.LSTM(4, 4).to(device)(torch.randn(2, 2, 4).to(device))[0].sum()

    assert NOT_CUDNNS in predict(train, gpu="T4", steps=1).notes
    with torch.backends.cudnn.flags(enabled=False):
        assert NOT_CUDNNS not in predict(train, gpu="T4", steps=1).notes
    assert NOT_CUDNNS not in predict(cells, gpu="T4", steps=1).notes  # no cuDNN has cells


def test_sequences_of_several_lengths_are_copied_before_they_are_packed():
    """Twice: first each stretch with as many sequences, then all of them joined."""

    def train(device):
        padded = torch.zeros(64, 32, 100).to(device)
        torch.cuda.reset_peak_memory_stats()
        pack_padded_sequence(padded, torch.tensor([32] * 32 + [16] * 32), batch_first=True)
        peaks.append(torch.cuda.max_memory_allocated())
        yield None

    peaks = []
    predict(train, gpu="T4", steps=1)
    padded, packed = 64 * 32 * 100 * 4, (64 + 32) * 16 * 100 * 4
    assert peaks == [padded + 2 * packed]
