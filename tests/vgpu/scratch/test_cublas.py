"""The workspace of cuBLAS: what was taken at most with PyTorch's CUDA builds on the stand-in for a T4."""

import pytest
import torch

from memlab import predict
from memlab.vgpu.versions import TORCH


@pytest.mark.parametrize(
    ("config", "version", "expected"),
    [
        (":4096:8", (2, 13), 75_899_904),
        (":16:8", (2, 13), 9_053_184),
        (":8192:1", (2, 13), 25_568_256),
        (":0:0", (2, 13), 8_791_040),
        ("16", (2, 13), 25_830_400),
        (":4096:8", (2, 15), 42_341_376),
        (":16:8", (2, 15), 8_918_016),
    ],
)
def test_products_have_the_workspace_that_the_environment_asks_for(config, version, expected, monkeypatch):
    def train(device):
        layers = torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512, bias=False)
        model = torch.nn.Sequential(*layers).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss = model(torch.rand(64, 512, device=device)).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss

    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", config)
    monkeypatch.setattr("memlab.vgpu.scratch.cublas.TORCH", version)
    assert predict(train, gpu="T4", steps=3).peak_allocated == expected


# What a plain loop takes with PyTorch on the stand-in, without a product of matrices.
@pytest.mark.skipif(TORCH >= (2, 15), reason="the workspace does not stay")
@pytest.mark.parametrize(
    ("solved", "peak"),
    [
        (lambda w: torch.linalg.solve_triangular(w.tril(), w, upper=False), 18875392),
        (lambda w: torch.linalg.solve_triangular(w.tril(), w[:, :1], upper=False), 18092032),
        (lambda w: torch.linalg.solve_ex(w, w)[0], 19138560),
        # Backward solves too, in a thread of its own.
        (lambda w: torch.linalg.solve_triangular(w.detach().tril(), w, upper=False), 18351104),
    ],
)
def test_a_solution_takes_the_workspace(solved, peak):
    def train(device):
        weight = torch.nn.Parameter(torch.rand(256, 256, device=device))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        while True:
            loss = solved(weight * 1.5).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss

    assert predict(train, gpu="T4", steps=3).peak_allocated == peak
