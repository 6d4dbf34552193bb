"""Training loops that go wrong on one rank."""

import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn


def train(device, *, fault="none", at=2, on=1, folder=""):
    model = nn.Linear(16, 16).to(device)
    step = 0
    while True:
        if folder:  # a file says where this rank is
            open(f"{folder}/{os.getpid()}-{step}", "w").close()
        if dist.get_rank() == on and step == at:
            go_wrong(fault)
        loss = model(torch.ones(4, 16, device=device)).square().mean()
        loss.backward()
        for parameter in model.parameters():  # DDP would do it, and takes seconds to import
            dist.all_reduce(parameter.grad)
        model.zero_grad()
        yield loss
        step += 1


def go_wrong(fault):
    if fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "raises":
        raise ValueError("7 layers do not divide into 2 stages")
    elif fault == "hangs":
        time.sleep(1000)
    elif fault == "exits":
        os._exit(3)
    elif fault == "no memory":
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
