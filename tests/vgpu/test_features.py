"""A ``train`` written for CUDA runs unmodified, with ``device`` passed in."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from memlab import predict
from memlab.vgpu.versions import TORCH

STEPS = 3


def update(optimizer, loss):
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def tied_weights(device):
    """Made on the CPU, the optimizer too, and only then moved."""
    embedding, head = nn.Embedding(1000, 64), nn.Linear(64, 1000, bias=False)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, head)
    optimizer = torch.optim.AdamW(model.parameters())
    model.to(device)
    assert head.weight is embedding.weight
    assert model[0].weight.device == device
    while True:
        tokens = torch.randint(0, 1000, (4, 16)).to(device)
        yield update(optimizer, F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()))


def scaler_with_clipping(device):
    model = nn.Linear(32, 32).to(device)
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler(device.type)
    while True:
        with torch.autocast(device.type, torch.float16):
            loss = model(torch.randn(4, 32, device=device)).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert norm.item() == 1  # a guess
        scaler.step(optimizer)
        scaler.update()
        assert optimizer.state, "the scaler found no infinity, so the optimizer stepped"
        optimizer.zero_grad()
        yield loss


def data_loader(device):
    data = TensorDataset(torch.randn(64, 10), torch.randint(0, 3, (64,)))
    model = nn.Linear(10, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for x, y in DataLoader(data, batch_size=16, shuffle=True):
        assert set(y.tolist()) <= {0, 1, 2}  # the host's integers are real
        yield update(optimizer, F.cross_entropy(model(x.to(device, non_blocking=True)), y.to(device)))


def numpy_data(device):
    images = np.random.default_rng(0).random((64, 1, 8, 8), dtype=np.float32)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    while True:
        batch = torch.from_numpy(images)[torch.randperm(64)[:16]]
        yield update(optimizer, model(batch.to(device)).sum())


def convolutions(device):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    ).to(device)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    while True:
        with torch.autocast(device.type):
            loss = F.cross_entropy(model(torch.randn(4, 3, 32, 32, device=device)), torch.arange(4, device=device))
        yield update(optimizer, loss)


def recurrent(device):
    model = nn.LSTM(16, 32, 2, batch_first=True, dropout=0.1).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    while True:
        result, _ = model(torch.randn(4, 12, 16, device=device))
        yield update(optimizer, result.pow(2).mean())


def in_place(device):
    weight = torch.randn(64, 64, device=device, requires_grad=True)
    while True:
        hidden = (torch.randn(8, 64, device=device) @ weight).add_(1).relu_()
        hidden = hidden * 2
        hidden[:, 0] = 0
        loss = hidden.sum()
        loss.backward()
        with torch.no_grad():
            weight -= 0.1 * weight.grad
        weight.grad = None
        yield loss


def saved_on_cpu(device):
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            loss = model(torch.randn(128, 64, device=device)).mean()
        yield update(optimizer, loss)


def checkpointed(device, *, use_reentrant=False):
    blocks = nn.ModuleList([nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1)) for _ in range(4)]).to(device)
    optimizer = torch.optim.AdamW(blocks.parameters(), fused=True)
    while True:
        x = torch.randn(128, 64, device=device, requires_grad=True)
        with torch.autocast(device.type, torch.bfloat16):
            for block in blocks:
                x = checkpoint(block, x, use_reentrant=use_reentrant)
        yield update(optimizer, x.mean())


def reentrant(device):
    yield from checkpointed(device, use_reentrant=True)


def chosen_attention(device):
    x = torch.randn(2, 4, 64, 32, device=device, dtype=torch.float16, requires_grad=True)
    flash_if_it_can = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]  # not on a T4
    for backends in (SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION, flash_if_it_can):
        with sdpa_kernel(backends):
            loss = F.scaled_dot_product_attention(x, x, x, is_causal=True).sum()
        loss.backward()
        yield loss


def evaluation_between_steps(device):
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 3)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        loss = model(torch.randn(8, 32, device=device)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        model.eval()
        with torch.no_grad():
            predicted = model(torch.randn(8, 32, device=device)).argmax(-1)
            assert predicted.cpu().tolist() == [0] * 8
            assert f"{loss.item():.2f} {(predicted == 0).float().mean().item()}" == "1.00 1.0"
        model.train()
        del predicted
        yield loss


def transformer_layer(device):
    model = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    padding = torch.zeros(2, 16, dtype=torch.bool, device=device)
    while True:
        yield update(optimizer, model(torch.randn(2, 16, 32, device=device), src_key_padding_mask=padding).mean())


def state_dicts_and_schedules(device):
    model, twin = nn.Linear(100, 100).to(device), nn.Linear(100, 100, device=device)
    twin.load_state_dict(model.state_dict())
    model.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})
    with torch.device(device):
        assert nn.Linear(10, 10).weight.device == device
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
    scale = torch.tensor(5.0, device=device)
    assert scale.to(device) is scale
    total = 0
    while True:
        loss = update(optimizer, scale * twin(model(torch.randn(4, 100, device=device))).mean())
        schedule.step()
        total += loss.detach()
        yield loss


def drop_path(device):
    """Numbers on the host steer the loop."""
    rates = [rate.item() for rate in torch.linspace(0, 0.5, 3)]
    assert rates == [0, 0.25, 0.5]
    layers = nn.ModuleList([nn.Linear(16, 16) for _ in rates]).to(device)
    while True:
        x = torch.randn(4, 16, device=device)
        for layer, rate in zip(layers, rates, strict=True):
            if torch.rand(1).item() >= rate:
                x = layer(x)
        yield x.sum()


LOOPS = [
    tied_weights, scaler_with_clipping, data_loader, numpy_data, convolutions, recurrent, in_place, saved_on_cpu,
    checkpointed, reentrant, chosen_attention, evaluation_between_steps, transformer_layer,
    state_dicts_and_schedules, drop_path,
]  # fmt: skip


@pytest.mark.parametrize("time", ["the first time", "again in the same process"])
@pytest.mark.parametrize("gpu", ["T4", "H100"])
@pytest.mark.parametrize("train", LOOPS)
def test_it_runs_unmodified(train, gpu, time):
    trace = predict(train, gpu=gpu, steps=STEPS)
    assert trace.oom is None
    assert len(trace.steps) == STEPS
    assert trace.losses == (None,) * STEPS
    assert trace.steps[-1].peak_allocated == trace.steps[-2].peak_allocated or train in (chosen_attention, drop_path)


@pytest.mark.parametrize("train", LOOPS)
def test_a_second_prediction_is_the_first(train):
    first, second = (predict(train, steps=STEPS) for _ in range(2))
    assert second == first


def test_offloaded_activations_leave_the_card():
    def kept(device):
        model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(4)]).to(device)
        while True:
            loss = model(torch.randn(128, 64, device=device)).mean()
            loss.backward()
            yield loss

    stays, leaves = (max(predict(train).timeline["activation"]) for train in (kept, saved_on_cpu))
    assert leaves < stays / 4


def test_a_module_made_outside_gets_its_weights_and_buffers_back():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    weight, buffers = model[0].weight, dict(model.named_buffers())
    values = {name: value.clone() for name, value in model.state_dict().items()}

    def train(device):
        moved = model.to(device)
        assert {tensor.device for tensor in (*moved.parameters(), *moved.buffers())} == {device}
        while True:
            loss = moved(torch.ones(2, 8, device=device)).sum()
            loss.backward()
            yield loss

    predict(train)
    assert model[0].weight is weight
    assert type(weight) is nn.Parameter
    assert weight.grad is None
    assert all(buffer is buffers[name] for name, buffer in model.named_buffers())
    assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())
    model(torch.ones(2, 8)).sum().backward()
    assert weight.grad.device.type == "cpu"


# PyTorch 2.11 has no fused Adagrad for CUDA.
FUSED = [torch.optim.SGD, torch.optim.AdamW, *([torch.optim.Adagrad] if TORCH >= (2, 13) else [])]


@pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)], ids=["number", "tensor"])
@pytest.mark.parametrize("optimizer", FUSED)
def test_fused_optimizers_change_their_parameters_in_place(optimizer, rate):
    def train(device):
        weight = torch.nn.Parameter(torch.ones(512, 512, device=device))
        fused = optimizer([weight], lr=rate, fused=True)
        while True:
            weight.square().sum().backward()
            fused.step()
            fused.zero_grad()
            yield None

    steps = predict(train, gpu="T4", steps=3).steps
    assert steps[-1].peak_allocated == steps[-2].peak_allocated


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_a_library_may_script_what_it_loads(tmp_path, monkeypatch):
    (tmp_path / "scripting.py").write_text(
        "import torch\n\n@torch.jit.script\ndef double(x):\n    return x + x\n\ndef triple(x):\n    return x + x + x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def train(device):
        import scripting

        yield scripting.triple(torch.ones(3, device=device)).sum()

    assert predict(train, steps=1).peak_allocated > 0


def test_pytorch_may_script_what_it_loads():
    script = (
        "import sys, torch; from memlab import predict\n"
        "def train(device):\n"
        "    w = torch.zeros(4, device=device, requires_grad=True)\n"
        "    assert 'torch._decomp.decompositions_for_jvp' not in sys.modules\n"
        "    yield torch.func.hessian(lambda w: (w ** 3).sum())(w).sum()\n"
        "print(predict(train, steps=1).oom)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "None\n"
