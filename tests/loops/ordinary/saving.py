"""Checkpoints written and read again. Each runs in a folder of its own."""

import pathlib

import numpy as np
import torch
from torch.nn import functional as F

from tests.loops.ordinary.catalogue import FOREACH, MOVED, ordinary, with_outside
from tests.loops.ordinary.small import mlp, rows, step


@with_outside(differs=MOVED)
def saved_every_step():
    old = pathlib.Path("checkpoint.pt")
    torch.save({"model": mlp().state_dict(), "epoch": 7}, old)

    def train(device):
        model = mlp().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for epoch in range(3):
            loss = step(model, optimizer, device)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, "checkpoint.pt")
            torch.save(model.cpu().state_dict(), f"model_{epoch}.pt")
            model.to(device)
            yield loss

    return train, ()


@with_outside(differs=FOREACH)
def resumed():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 64)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7}, "checkpoint.pt")

    def train(device):
        model = mlp().to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        saved = torch.load("checkpoint.pt", map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        assert saved["epoch"] == 7
        for epoch in range(saved["epoch"] + 1, 11):
            yield step(model, optimizer, device)
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "last.pt")

    return train, (model, optimizer)


@ordinary()
def best_saved_and_loaded_again(device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    folder = pathlib.Path("runs")
    folder.mkdir(exist_ok=True)
    for epoch in range(2):
        loss = step(model, optimizer, device)
        torch.save(model.state_dict(), folder / f"best_{epoch}.pt")
        yield loss
    model.load_state_dict(torch.load(folder / "best_1.pt", weights_only=True))
    model.eval()
    with torch.no_grad():
        x, y = (tensor.to(device) for tensor in rows())
        yield F.cross_entropy(model(x), y)


@with_outside()
def numbers_written():
    """Save what is not PyTorch's: a log, an array, a picture's bytes. A prediction leaves an old array as it was."""
    pathlib.Path("losses.npy").write_bytes(b"those of last week")

    def train(device):
        model = mlp().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(3):
            losses.append(step(model, optimizer, device).item())
            np.save("losses.npy", np.array(losses))
            model[0].weight.detach().cpu().numpy().tofile("weights.bin")
            yield losses[-1]

    return train, ()
