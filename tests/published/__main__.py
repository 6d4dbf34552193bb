"""Predictions beside published totals of real GPUs: python -m tests.published

nvidia-smi shows what PyTorch has reserved and, beside it, the CUDA context with the libraries' code. The context is one
constant for a card and a source: the median of what a third of the totals leaves, chosen by name; the rest is the test.
Where cuDNN is installed it is asked; else what ships with memlab is taken.
"""

import json
import statistics
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from memlab.run import predict
from memlab.units import MIB
from tests.published.networks import NETWORKS

FILE = Path(__file__).with_name("totals.json")


@dataclass(frozen=True)
class Total:
    """One published figure and what is predicted for it, in MiB."""

    network: str
    batch: int
    published: int
    reserved: float
    notes: tuple[str, ...]

    @property
    def fitted(self) -> bool:
        """Whether the context is fitted on it."""
        return zlib.crc32(f"{self.network} {self.batch}".encode()) % 3 == 0

    def error(self, context: float) -> float:
        return (self.reserved + context) / self.published - 1


def train(device: torch.device, *, network: str, batch_size: int) -> Iterator[torch.Tensor]:
    """The source's own loop: one pass of two images, then steps with Adam; gradients are kept until the next step."""
    edge = 299 if network == "inception_v3" else 224
    model = NETWORKS[network]().to(device)
    model(torch.rand(2, 3, edge, edge).to(device))
    criterion, optimizer = torch.nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=0.001)
    while True:
        inputs = torch.empty(batch_size, 3, edge, edge).to(device)
        labels = torch.zeros(batch_size, dtype=torch.int64).to(device)
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        yield loss


def totals() -> list[Total]:
    """Every published figure with its prediction."""
    data = json.loads(FILE.read_text())
    found = []
    for network, figures in data["MiB"].items():
        for batch, published in figures.items():
            trace = predict(train, gpu=data["card"], network=network, batch_size=int(batch))
            found.append(Total(network, int(batch), published, trace.peak_reserved / MIB, trace.notes))
    return found


def main() -> None:
    found = totals()
    context = statistics.median(total.published - total.reserved for total in found if total.fitted)
    print("| network | batch | published MiB | predicted | | |\n|---|--:|--:|--:|--:|---|")
    for total in found:
        mark = "fitted" if total.fitted else ""
        row = f"| {total.network} | {total.batch} | {total.published:,} | {total.reserved + context:,.0f} "
        print(f"{row}| {total.error(context):+.1%} | {mark} |")
    errors = sorted(abs(total.error(context)) for total in found if not total.fitted)
    print(f"\ncontext {context:.0f} MiB; of {len(errors)} that were not fitted:", end=" ")
    print(f"median {statistics.median(errors):.1%}, worst {errors[-1]:.1%}")
    for note in sorted({note for total in found for note in total.notes}):
        print(note, file=sys.stderr)


if __name__ == "__main__":
    main()
