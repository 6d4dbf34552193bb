"""Images that are always there: printed digits, in the fonts that come with matplotlib."""

from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch.utils.data import Dataset

from memlab.errors import BadValue

HELD_OUT_EVERY = 5  # one font in five is never trained on
CLASSES = 10
NOISE = 12.0  # standard deviation, of 255
KEPT_BYTES = 2**25  # of batches' images of one size


class Digits(Dataset[tuple[torch.Tensor, int]]):
    """Printed digits as colour images: dark on light, each in some font, size, place, slant and colours, with noise.

    An item is drawn when it is asked for, which takes a processor some tenths of a millisecond, as decoding a small
    photograph does. The same index is always the same image.

    Args:
        image_size: height and width in pixels.
        split: ``"train"``, or ``"held-out"`` for the fonts that ``"train"`` lacks.
        length: how many there are.

    Raises:
        BadValue: for another split, or an image too small to read.
    """

    def __init__(self, image_size: int = 32, *, split: str = "train", length: int = 50_000):
        if split not in ("train", "held-out"):
            raise BadValue(f"split {split!r} is not known: give 'train' or 'held-out'.")
        if image_size < 8:
            raise BadValue(f"image_size={image_size!r} is too small for a digit: give 8 pixels or more.")
        self.image_size = image_size
        self.split = split
        self._fonts = fonts(split)
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """The image, float32 of shape ``(3, image_size, image_size)`` around 0, and its digit."""
        if not 0 <= index < self._length:
            raise IndexError(f"{index} is not one of {self._length} images")
        pixels, label = self.draw(index)
        return torch.from_numpy(pixels), label

    def draw(self, index: int) -> tuple[np.ndarray, int]:
        """The same as an array."""
        random = np.random.default_rng([index, self.split == "held-out"])
        label = int(random.integers(CLASSES))
        pixels = _draw(label, self._fonts[random.integers(len(self._fonts))], self.image_size, random)
        return pixels, label


def image_batches(
    batch_size: int, image_size: int, *, split: str = "train", seed: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Random batches of :class:`Digits`, without end.

    Yields:
        ``(images, labels)`` on the CPU: float32 of shape ``(batch_size, 3, image_size, image_size)`` and int64 of
        shape ``(batch_size,)``. The same ``seed`` gives the same batches.
    """
    draw, length = _remembered(image_size, split), len(Digits(image_size, split=split))
    random = np.random.default_rng(seed)
    while True:
        images, labels = zip(*map(draw, random.integers(length, size=batch_size).tolist()), strict=True)
        yield torch.stack([torch.from_numpy(pixels) for pixels in images]), torch.tensor(labels)


@cache
def _remembered(image_size: int, split: str) -> Callable[[int], tuple[np.ndarray, int]]:
    """``Digits.draw``, which keeps the newest: a panel that is moved asks for the same batches again and again."""
    return lru_cache(KEPT_BYTES // (12 * image_size**2))(Digits(image_size, split=split).draw)


@cache
def fonts(split: str) -> tuple[str, ...]:
    """Paths of the fonts of a split: those that matplotlib draws text with."""
    folder = Path(str(files("matplotlib"))) / "mpl-data" / "fonts" / "ttf"
    every = (path for kind in ("DejaVuS", "STIXGeneral") for path in sorted(folder.glob(f"{kind}*.ttf")))
    names = [path for path in every if "Display" not in path.name]  # those have no digits
    held_out = split == "held-out"
    return tuple(str(path) for i, path in enumerate(names) if (i % HELD_OUT_EVERY == 0) is held_out)


@cache
def _font(path: str, pixels: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(path, pixels)


def _draw(label: int, font: str, size: int, random: np.random.Generator) -> np.ndarray:
    paper, ink = tuple(random.integers(170, 256, 3).tolist()), tuple(random.integers(0, 90, 3).tolist())
    image = Image.new("RGB", (size, size), paper)
    place = size / 2 + random.uniform(-0.05, 0.05, 2) * size
    pixels = round(size * random.uniform(0.75, 0.95))
    ImageDraw.Draw(image).text(tuple(place), str(label), fill=ink, font=_font(font, pixels), anchor="mm")
    image = image.rotate(random.uniform(-12, 12), Image.Resampling.BILINEAR, fillcolor=paper)
    values = np.asarray(image, dtype=np.float32) + random.normal(0, NOISE, (size, size, 3))
    return np.ascontiguousarray(((values - 127.5) / 64).transpose(2, 0, 1), dtype=np.float32)
