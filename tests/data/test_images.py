import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from memlab import predict
from memlab.data import Digits, image_batches
from memlab.data.images import fonts
from memlab.errors import BadValue
from memlab.nets import ResNet


def test_the_splits_have_fonts_apart_and_all_of_them_have_digits():
    train, held_out = fonts("train"), fonts("held-out")
    assert len(train) >= 3 * len(held_out) > 0
    assert not set(train) & set(held_out)
    assert all("Display" not in path for path in train + held_out)


def test_an_item_is_an_image_around_zero_and_its_digit():
    image, label = Digits(24)[7]
    assert image.shape == (3, 24, 24)
    assert image.dtype == torch.float32
    assert -2.5 < image.min() < 0 < image.max() < 2.5
    assert label in range(10)


def test_every_image_shows_something():
    for split in ("train", "held-out"):
        for image, _ in (Digits(32, split=split)[index] for index in range(100)):
            assert image.mean(0).max() - image.mean(0).min() > 1


def test_the_same_index_is_the_same_image_and_another_is_another():
    one, again, other = Digits(16)[3][0], Digits(16)[3][0], Digits(16)[4][0]
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert not torch.equal(one, Digits(16, split="held-out")[3][0])


def test_batches_are_those_of_their_seed():
    images, labels = next(image_batches(6, 16))
    assert images.shape == (6, 3, 16, 16)
    assert labels.shape == (6,)
    assert labels.dtype == torch.int64
    assert torch.equal(images, next(image_batches(6, 16))[0])
    assert not torch.equal(images, next(image_batches(6, 16, seed=1))[0])


def test_what_is_done_to_a_batch_is_not_done_to_the_next_of_its_seed():
    images, _ = next(image_batches(6, 16))
    images.zero_()
    drawn = torch.stack([Digits(16)[index][0] for index in np.random.default_rng(0).integers(50_000, size=6)])
    assert torch.equal(next(image_batches(6, 16))[0], drawn)


def test_a_loader_takes_them():
    images, labels = next(iter(DataLoader(Digits(16, length=8), batch_size=8)))
    assert images.shape == (8, 3, 16, 16)
    assert labels.tolist() == [label for _, label in (Digits(16)[index] for index in range(8))]


def test_the_end_of_the_images_is_an_index_error():
    assert len(Digits(length=5)) == 5
    with pytest.raises(IndexError, match="5 is not one of 5 images"):
        Digits(length=5)[5]


def test_bad_values_are_refused():
    with pytest.raises(BadValue, match="'test' is not known"):
        Digits(split="test")
    with pytest.raises(BadValue, match="give 8 pixels or more"):
        Digits(4)


def train(device, *, batch_size=32, image_size=16):
    model = ResNet(width=8).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for images, labels in image_batches(batch_size, image_size):
        loss = model(images.to(device), labels.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def test_a_network_learns_to_read_them_in_fonts_that_it_has_not_seen():
    torch.manual_seed(0)
    model = ResNet(width=8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = image_batches(64, 16)
    for _ in range(60):
        model(*next(data)).backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        assert model(*next(image_batches(256, 16, split="held-out"))).item() < 0.5 * np.log(10)


def test_a_loop_over_them_can_be_predicted():
    trace = predict(train, batch_size=256)
    assert trace.by_category["input"] >= 256 * 3 * 16 * 16 * 4
