"""A script's own snapshot, which PyTorch writes on the stand-in, beside that of its prediction."""

import os
import subprocess
import sys

import pytest
import torch

from memlab import cli, compare_snapshots
from memlab.vgpu.lookup import card_like

pytestmark = pytest.mark.skipif("STANDIN_CARD" not in os.environ, reason="needs the stand-in's card: make test-cuda")
TRAIN = """
import sys
import torch

torch.cuda.memory._record_memory_history()
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 10)).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
for step in range(4):
    loss = model(torch.ones(64, 512, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.memory._dump_snapshot(sys.argv[1])
"""


def test_every_allocation_is_as_predicted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    subprocess.run([sys.executable, "train.py", "real.pickle"], check=True)
    facts = torch.cuda.get_device_properties(0)
    card = card_like(facts.name, facts.major * 10 + facts.minor, facts.multi_processor_count, facts.total_memory).name
    options = ["--gpu", card, "--steps", "4"]
    assert (
        cli.main(["predict", "train.py", *options, "--snapshot", "predicted.pickle", "--", "thrown_away.pickle"]) == 0
    )
    said = compare_snapshots("real.pickle", "predicted.pickle")
    assert said.order.startswith("All ")
    assert said.first.peak_allocated == said.second.peak_allocated
    assert said.first.reserved == said.second.reserved
    assert said.first.by_own_line == said.second.by_own_line
    for category in ("parameter", "optimizer state", "gradient", "temporary", "workspace"):  # by the stack, and known
        assert said.first.by_category[category] == said.second.by_category[category]
