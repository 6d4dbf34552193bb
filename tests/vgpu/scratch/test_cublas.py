"""The workspace of cuBLAS: what was taken at most with PyTorch's CUDA builds on the stand-in for a T4."""

import pytest
import torch

from memlab import predict


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
