"""Averages of weights, teachers, and everything else that keeps a second copy of the model."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.data import DataLoader, TensorDataset

from tests.loops.ordinary.catalogue import FOREACH, HOST, ordinary, with_outside
from tests.loops.ordinary.small import convnet, mlp, pictures, rows


@ordinary()
def ema_by_deepcopy(device):
    model = mlp().to(device)
    ema = copy.deepcopy(model).eval()
    for parameter in ema.parameters():
        parameter.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows(512))
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for averaged, parameter in zip(ema.parameters(), model.parameters(), strict=True):
                averaged.mul_(0.999).add_(parameter, alpha=0.001)
        yield loss


@ordinary()
def ema_as_a_state_dict(device):
    model = convnet().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    shadow = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in pictures())
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        for name, tensor in model.state_dict().items():
            if tensor.dtype.is_floating_point:
                shadow[name].lerp_(tensor, 0.01)
            else:
                shadow[name].copy_(tensor)
        yield loss.item()
    model.load_state_dict(shadow)


@ordinary(differs=HOST)
def swa(device):
    model = convnet().to(device)
    averaged = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    swa_lr = SWALR(optimizer, swa_lr=0.05)
    loader = DataLoader(TensorDataset(*pictures(24)), batch_size=8)
    for epoch in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
        if epoch:
            averaged.update_parameters(model)
            swa_lr.step()
        else:
            cosine.step()
        update_bn(loader, averaged, device=device)
        yield loss.item()


@ordinary(differs=FOREACH)
def ema_of_swa_utils(device):
    model = mlp().to(device)
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99), use_buffers=True)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows())
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        averaged.update_parameters(model)
        yield loss


@ordinary()
def distillation(device):
    teacher, student = mlp().to(device).eval(), nn.Linear(64, 10).to(device)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows())
        with torch.no_grad():
            soft = teacher(x) / 2
        logits = student(x)
        loss = F.kl_div(F.log_softmax(logits / 2, 1), F.softmax(soft, 1), reduction="batchmean") * 4
        loss = loss + F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


@with_outside()
def distillation_in_inference_mode():
    teacher = mlp().eval()

    def train(device):
        teacher.to(device)
        student = nn.Linear(64, 10).to(device)
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        for _ in range(3):
            x, _ = rows()
            x = x.to(device)
            with torch.inference_mode():
                soft = teacher(x).softmax(1)
            loss = F.cross_entropy(student(x), soft.clone())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss

    return train, (teacher,)


@ordinary()
def byol_target_network(device):
    online = convnet().to(device)
    predictor = nn.Linear(10, 10).to(device)
    target = copy.deepcopy(online)
    target.requires_grad_(False)
    optimizer = torch.optim.SGD([*online.parameters(), *predictor.parameters()], lr=0.05)
    for _ in range(3):
        one, two = pictures()[0].to(device), pictures()[0].to(device)
        p = F.normalize(predictor(online(one)), dim=-1)
        with torch.no_grad():
            z = F.normalize(target(two), dim=-1)
        loss = 2 - 2 * (p * z).sum(dim=-1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for t, o in zip(target.parameters(), online.parameters(), strict=True):
                t.data = 0.99 * t.data + 0.01 * o.data
        yield loss


@ordinary()
def best_weights_kept(device):
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    best, best_state = float("inf"), None
    for _ in range(3):
        x, y = (tensor.to(device) for tensor in rows())
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss.item() < best:
            best, best_state = loss.item(), copy.deepcopy(model.state_dict())
        yield loss
    model.load_state_dict(best_state)
