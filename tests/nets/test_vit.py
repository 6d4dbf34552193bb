import math

import pytest
import torch

from memlab import predict
from memlab.errors import BadValue
from memlab.nets import ViT


def make(**options):
    torch.manual_seed(0)
    return ViT(**{"depth": 3, "width": 32, "heads": 4, "image": 8, "patch": 2, "channels": 1, **options})


def images_and_labels():
    return torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(5)


def parameters(depth, width, positions, patch, channels, classes):
    """Patches, the class token and positions, 12 width^2 + 13 width a block, the last norm, the head."""
    return (
        (patch * patch * channels + 1 + 1 + positions + 1) * width
        + depth * (12 * width**2 + 13 * width)
        + 2 * width
        + (width + 1) * classes
    )


@pytest.mark.parametrize(("depth", "width", "image", "patch"), [(1, 8, 8, 2), (3, 32, 8, 4), (2, 48, 32, 8)])
def test_the_parameters_are_those_of_the_formula(depth, width, image, patch):
    model = make(depth=depth, width=width, image=image, patch=patch)
    expected = parameters(depth, width, (image // patch) ** 2, patch, 1, 10)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_it_starts_at_chance_and_learns():
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    images, labels = images_and_labels()
    for _ in range(100):
        loss = model(images, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(10), abs=0.7)
    assert losses[-1] < 0.1


def test_the_class_token_sees_every_patch_of_its_image():
    model = make(depth=1)
    images, labels = images_and_labels()
    images.requires_grad_()
    kept = []
    with model.blocks[0].register_forward_hook(lambda module, args, output: kept.append(output)):
        model(images, labels)
    (gradient,) = torch.autograd.grad(kept[0][0, 0].sum(), images)
    assert (gradient[0].abs().sum((0,)) > 0).all()  # to the last pixel
    assert (gradient[1:] == 0).all()


def test_checkpointing_changes_no_gradient():
    def gradients(checkpoint_every):
        model = make(checkpoint_every=checkpoint_every)
        model(*images_and_labels()).backward()
        return [parameter.grad for parameter in model.parameters()]

    assert all(map(torch.equal, gradients(0), gradients(2)))
    with pytest.raises(BadValue):
        make(checkpoint_every=-1)(*images_and_labels())


def test_it_can_be_predicted():
    def train(device):
        model = make().to(device)
        images, labels = images_and_labels()
        while True:
            loss = model(images.to(device), labels.to(device))
            loss.backward()
            model.zero_grad()
            yield loss

    assert predict(train).by_category["parameter"] == 4 * parameters(3, 32, 16, 2, 1, 10)
