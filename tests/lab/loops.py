"""Training loops for the tests of sessions and panels."""

import threading
from typing import ClassVar

import torch
from torch import nn

from tests.waiting import SOON


def train(device, *, batch_size=8, width=16, compiled=False, optimizer="SGD"):
    model = nn.Linear(width, width).to(device)
    steps = getattr(torch.optim, optimizer)(model.parameters(), lr=0.01)
    while True:
        loss = model(torch.ones(batch_size, width, device=device)).square().mean()
        loss.backward()
        steps.step()
        steps.zero_grad()
        yield loss


class Slow:
    """A train whose steps end when the test says so, or has ended."""

    made: ClassVar[list["Slow"]] = []

    def __init__(self):
        self.made.append(self)
        self.step = threading.Semaphore(0)
        self.in_step = threading.Event()

    def __call__(self, device, *, batch_size=8):
        while True:
            self.in_step.set()
            assert self.step.acquire(timeout=SOON)
            yield torch.ones(batch_size).sum()


class SlowToRun(Slow):
    """The same, but a prediction of it takes no time."""

    def __call__(self, device, *, batch_size=8):
        if device.type == "cpu":
            yield from super().__call__(device, batch_size=batch_size)
        while True:
            yield torch.ones(batch_size, device=device).sum()
