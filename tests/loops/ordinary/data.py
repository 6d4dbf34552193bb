"""Sources of batches: loaders, workers, threads, mixed pictures."""

import queue
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler, random_split

from tests.loops.ordinary.catalogue import HOST, ordinary, with_outside
from tests.loops.ordinary.small import convnet, mlp, pictures, rows


class Digits(Dataset):
    def __init__(self, count=384):
        self.x = np.random.default_rng(0).random((count, 64)).astype(np.float32)
        self.y = np.arange(count) % 10

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return torch.from_numpy(self.x[index]), int(self.y[index])


def over(loader, device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


@ordinary()
def shuffled_loader(device):
    yield from over(DataLoader(Digits(), batch_size=128, shuffle=True, drop_last=True), device)


@ordinary()
def loader_with_workers(device):
    loader = DataLoader(Digits(), batch_size=128, shuffle=True, num_workers=1, multiprocessing_context="fork")
    yield from over(loader, device)


@with_outside(differs=HOST)
def tensor_dataset_outside():
    data = TensorDataset(*rows(384))
    training, _ = random_split(data, [0.9, 0.1], torch.Generator().manual_seed(0))
    loader = DataLoader(training, batch_size=100, shuffle=True, generator=torch.Generator().manual_seed(0))
    return lambda device: over(loader, device), data.tensors


@ordinary(differs=HOST)
def weighted_sampler(device):
    data = Digits()
    weights = torch.from_numpy(1.0 / (1 + data.y)).double()
    sampler = WeightedRandomSampler(weights, 384, replacement=True)
    yield from over(DataLoader(data, batch_size=128, sampler=sampler), device)


@ordinary()
def collated_dictionaries(device):
    def collate(samples):
        longest = max(len(x) for x, _ in samples)
        batch = torch.zeros(len(samples), longest)
        for index, (x, _) in enumerate(samples):
            batch[index, : len(x)] = x
        return {"x": batch, "y": torch.tensor([y for _, y in samples])}

    model = mlp().to(device)
    for batch in DataLoader(Digits(), batch_size=128, collate_fn=collate):
        batch = {name: tensor.to(device) for name, tensor in batch.items()}
        loss = F.cross_entropy(model(batch["x"]), batch["y"])
        loss.backward()
        model.zero_grad()
        yield loss


class Endless(IterableDataset):
    def __iter__(self):
        generator = torch.Generator().manual_seed(0)
        while True:
            yield torch.randn(64, generator=generator), torch.randint(10, (), generator=generator)


@ordinary()
def endless_stream(device):
    yield from over(DataLoader(Endless(), batch_size=128), device)


@ordinary(refused="A thread", differs="refused")
def prefetch_thread(device):
    """Batches are made, and moved to the device, in a thread of their own."""
    waiting, stop, batches = queue.Queue(maxsize=2), threading.Event(), [rows() for _ in range(5)]

    def fill():
        for batch in batches:
            batch = tuple(tensor.to(device) for tensor in batch)
            while not stop.is_set():
                try:
                    waiting.put(batch, timeout=0.05)
                    break
                except queue.Full:
                    pass

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    model = mlp().to(device)
    try:
        for _ in range(3):
            x, y = waiting.get(timeout=10)
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            model.zero_grad()
            yield loss
    finally:
        stop.set()
        thread.join()


@ordinary()
def mixup(device):
    model = convnet().to(device)
    random = np.random.RandomState(0)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in pictures())
        lam = random.beta(0.2, 0.2)
        order = torch.randperm(len(x)).to(device)
        out = model(lam * x + (1 - lam) * x[order])
        loss = lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[order])
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary()
def cutmix(device):
    model = convnet().to(device)
    random = np.random.RandomState(0)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in pictures())
        size, left, top = random.randint(4, 16), random.randint(16), random.randint(16)
        order = torch.randperm(len(x), device=device)
        x[:, :, top : top + size, left : left + size] = x[order, :, top : top + size, left : left + size]
        share = 1 - size * size / x[0, 0].numel()
        out = model(x)
        loss = share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[order])
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary()
def soft_labels(device):
    model = convnet().to(device)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in pictures())
        soft = F.one_hot(y, 10).float() * 0.9 + 0.01
        loss = torch.sum(-soft * F.log_softmax(model(x), dim=-1), dim=-1).mean()
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary(differs=HOST)
def normalized_on_the_device(device):
    mean = torch.tensor([0.485, 0.456, 0.406], device=device).view(1, 3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1).to(device)
    model = convnet().to(device)
    for _ in range(3):
        raw = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8)
        x = raw.to(device).float().div_(255).sub_(mean).div_(std)
        if torch.rand(1) < 0.5:
            x = x.flip(-1)
        loss = F.cross_entropy(model(x), torch.arange(8, device=device))
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary(differs=HOST)
def normalized_by_its_own_statistics(device):
    x, y = rows(384)
    x = (x - x.mean(0)) / x.std(0)
    assert x.mean().abs() < 1e-3
    x, y = x.to(device), y.to(device)
    model = nn.Linear(64, 10).to(device)
    for index in torch.randperm(384).split(128):
        loss = F.cross_entropy(model(x[index]), y[index])
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary(refused="A thread", differs="refused")
def prefetch_pool(device):
    model = nn.Linear(64, 10).to(device)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            x = pool.submit(lambda: torch.ones(32, 64).to(device)).result()
            loss = model(x).square().mean()
            loss.backward()
            yield loss
