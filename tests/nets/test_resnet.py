import math

import pytest
import torch

from memlab import measure, predict
from memlab.nets import ResNet
from memlab.trace import Phase
from tests.device import DEVICE


def images_and_labels():
    return torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(6)


def make(**options):
    torch.manual_seed(0)
    return ResNet(**{"blocks": (1, 1), "width": 8, "channels": 1, **options})


def parameters(blocks, width, channels, classes):
    """9 c_in c_out a convolution, 2 c a norm, c_in c_out a shortcut that changes shape, the head."""
    total, inside = 9 * channels * width + 2 * width, width
    for stage, count in enumerate(blocks):
        for index in range(count):
            outside = width * 2**stage
            total += 9 * inside * outside + 9 * outside**2 + 4 * outside
            total += inside * outside if index == 0 and stage > 0 else 0
            inside = outside
    return total + (inside + 1) * classes


@pytest.mark.parametrize(("blocks", "width"), [((1,), 4), ((1, 1), 8), ((2, 2, 2, 2), 16)])
def test_the_parameters_are_those_of_the_formula(blocks, width):
    model = make(blocks=blocks, width=width)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters(blocks, width, 1, 10)


def test_each_stage_halves_the_image_and_doubles_the_channels():
    shapes = []
    model = make(blocks=(1, 2, 1))
    for block in model.blocks:
        block.register_forward_hook(lambda module, args, output: shapes.append(tuple(output.shape[1:])))
    model(*images_and_labels())
    assert shapes == [(8, 8, 8), (16, 4, 4), (16, 4, 4), (32, 2, 2)]


def test_large_images_are_made_four_times_smaller_before_the_blocks_which_give_four_times_the_width():
    shapes = []
    model = make(blocks=(1, 2), bottleneck=True, large_images=True)
    for block in model.blocks:
        block.register_forward_hook(lambda module, args, output: shapes.append(tuple(output.shape[1:])))
    loss = model(torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0)), torch.arange(2))
    assert shapes == [(32, 8, 8), (64, 4, 4), (64, 4, 4)]
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_it_starts_at_chance_and_learns():
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    images, labels = images_and_labels()
    for _ in range(40):
        loss = model(images, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(10), abs=1)
    assert losses[-1] < 0.1


def train(device, *, inplace=False, checkpoint_every=0):
    model = make(inplace=inplace, checkpoint_every=checkpoint_every).to(device)
    images, labels = images_and_labels()
    while True:
        loss = model(images.to(device), labels.to(device))
        loss.backward()
        model.zero_grad()
        yield loss


def temporaries_in_forward(trace):
    """The most bytes of temporaries at any moment of the forward pass."""
    after = zip(trace.events, trace.timeline["temporary"][1:], strict=True)
    return max(count for event, count in after if event.phase is Phase.FORWARD)


def test_in_place_activations_change_no_loss_and_spare_the_temporary():
    plain, inplace = (measure(train, device=DEVICE, inplace=inplace) for inplace in (False, True))
    assert inplace.losses == plain.losses
    # BatchNorm keeps its input and ReLU its result, so what ReLU may overwrite was a temporary: one map of the first
    # stage, 4 bytes for each of 6 images, 8 channels, 8 x 8 pixels.
    highest = [temporaries_in_forward(predict(train, inplace=inplace)) for inplace in (False, True)]
    assert highest[0] - highest[1] == 4 * 6 * 8 * 8 * 8


def test_checkpointing_changes_no_loss():
    assert measure(train, device=DEVICE, checkpoint_every=1).losses == measure(train, device=DEVICE).losses
