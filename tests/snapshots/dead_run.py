"""A run that keeps more from step to step, and dies: `python -m tests.standin T4 tests/snapshots/dead_run.py FILE`.

`dead_run.pickle.gz` is what PyTorch 2.13 wrote of it; only the folders in its frames are other ones.
"""

import sys

import torch

torch.cuda.memory._record_memory_history()
model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 50000)).to("cuda")
optimizer = torch.optim.Adam(model.parameters())
kept = []
try:
    for batch in (64, 64, 64, 64, 64, 60000):
        hidden = model[:2](torch.ones(batch, 1024, device="cuda"))
        kept.append(hidden * 2)
        loss = model[2](hidden).logsumexp(-1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
except torch.OutOfMemoryError as error:
    sys.stderr.write(f"{error}\n")
    torch.cuda.memory._dump_snapshot(sys.argv[1])
