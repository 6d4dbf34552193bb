"""Predictions beside published totals of convolutional networks on a real GPU: python -m tests.published.convolutional

Where cuDNN is installed it is asked; else what ships with memlab is taken.
"""

from collections.abc import Iterator
from pathlib import Path

import torch

from tests.published.networks import NETWORKS
from tests.published.totals import report

FILE = Path(__file__).with_name("convolutional.json")


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


if __name__ == "__main__":
    report(FILE, train)
