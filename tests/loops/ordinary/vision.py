"""Convolutions of all kinds, and the norms between them."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.loops.ordinary.catalogue import ordinary, with_outside
from tests.loops.ordinary.small import convnet, pictures


def trained(device, model, shape, prepare=lambda model: model):
    model = prepare(model.to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        loss = model(torch.randn(shape, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


@ordinary()
def conv1d(device):
    model = nn.Sequential(nn.Conv1d(2, 16, 5), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 4, 5, dilation=2))
    yield from trained(device, model, (8, 2, 128))


@ordinary()
def conv3d(device):
    model = nn.Sequential(nn.Conv3d(1, 8, 3, padding=1), nn.InstanceNorm3d(8), nn.ELU(), nn.MaxPool3d(2))
    yield from trained(device, model, (2, 1, 16, 16, 16))


@ordinary()
def transposed(device):
    model = nn.Sequential(
        nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(True),
        nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
        nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip
    yield from trained(device, model, (8, 16, 1, 1))


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 2, 3, padding=1)

    def forward(self, x):
        high = F.relu(self.one(x))
        low = F.relu(self.two(F.max_pool2d(high, 2)))
        return self.out(torch.cat([high, self.up(low)], dim=1))


@ordinary()
def unet(device):
    yield from trained(device, Unet(), (2, 3, 32, 32))


@ordinary()
def depthwise(device):
    model = nn.Sequential(
        nn.Conv2d(3, 24, 1), nn.BatchNorm2d(24), nn.Hardswish(), nn.Conv2d(24, 24, 3, padding=1, groups=24),
        nn.BatchNorm2d(24), nn.ReLU6(inplace=True), nn.Conv2d(24, 8, 1),
    )  # fmt: skip
    yield from trained(device, model, (4, 3, 32, 32))


@ordinary()
def superresolution(device):
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.PReLU(), nn.Conv2d(16, 12, 3, padding=1), nn.PixelShuffle(2)
    )
    yield from trained(device, model, (2, 3, 16, 16))


class Resized(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.mode, self.conv = mode, nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x):
        x = F.interpolate(self.conv(x), scale_factor=2, mode=self.mode, align_corners=False)
        return F.adaptive_max_pool2d(F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), 2), 4)


@ordinary(differs="a card's upsampling and pooling backward allocate otherwise")
def bilinear(device):
    yield from trained(device, Resized("bilinear"), (4, 3, 16, 16))


@ordinary()
def spatial_transformer(device):
    localize = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 6)).to(device)
    localize[1].weight.data.zero_()
    localize[1].bias.data.copy_(torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float))
    for _ in range(3):
        x = torch.randn(4, 3, 16, 16, device=device)
        grid = F.affine_grid(localize(x).view(-1, 2, 3), x.size(), align_corners=False)
        loss = F.grid_sample(x, grid, align_corners=False).square().mean()
        loss.backward()
        localize.zero_grad()
        yield loss


@ordinary()
def channels_last(device):
    model = convnet().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        x, y = pictures()
        x = x.to(device, memory_format=torch.channels_last)
        loss = F.cross_entropy(model(x), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss


@ordinary()
def cumulative_batch_norm(device):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, momentum=None), nn.ReLU())
    yield from trained(device, model, (8, 3, 16, 16))


@with_outside()
def frozen_batch_norm():
    model = convnet()

    def train(device):
        model.to(device)
        model.train()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
                module.weight.requires_grad_(False)
                module.bias.requires_grad_(False)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        for _ in range(3):
            x, y = (tensor.to(device) for tensor in pictures())
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss

    return train, (model,)


@ordinary()
def in_double_precision(device):
    yield from trained(device, convnet().double(), (2, 3, 32, 32), lambda model: model.to(torch.float32))


@ordinary()
def doubles(device):
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 1)).double().to(device)
    for _ in range(3):
        loss = model(torch.randn(256, 64, dtype=torch.float64, device=device)).square().mean()
        loss.backward()
        model.zero_grad()
        yield loss


@ordinary()
def unfolded_patches(device):
    head = nn.Linear(3 * 4 * 4, 32).to(device)
    for _ in range(3):
        x = torch.randn(4, 3, 16, 16, device=device)
        patches = F.unfold(x, 4, stride=4).transpose(1, 2)
        windows = x.unfold(2, 4, 4).unfold(3, 4, 4).reshape(4, -1, 48)
        loss = head(patches).square().mean() + head(windows).mean()
        loss.backward()
        head.zero_grad()
        yield loss


@ordinary()
def residual_with_stochastic_depth(device):
    convolutions = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(3)).to(device)
    for _ in range(3):
        x = torch.randn(4, 8, 16, 16, device=device)
        for convolution in convolutions:
            keep = torch.empty(4, 1, 1, 1, device=device).bernoulli_(0.9)
            x = x + convolution(x) * keep / 0.9
        loss = x.square().mean()
        loss.backward()
        convolutions.zero_grad()
        yield loss
