"""Predictions beside what Ultralytics' AutoBatch has shown of a real GPU: ``python -m tests.published.yolo``

Its own training script is predicted as it is, and prints its own table: with each number of images, what PyTorch has
reserved after a forward pass and what it has with as many boxes as the fullest image of the data may have. How many
these are no log tells, so the labels of that image are fitted, on one total of one network for each data set.

This runs in the environment of `make test-cuda` with `pip install --no-deps torchvision==0.28.0 ultralytics==8.4.127
opencv-python-headless polars polars-runtime-32 ultralytics-thop`. Images are noise, weights are drawn.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

FILE = Path(__file__).with_name("yolo.json")
IMAGES = 64
PARTS = ("train", "val")
ROW = re.compile(r"^ +\d+ +\S+ +(\d+\.\d+) .*\((\d+), 3, \d+, \d+\)", re.MULTILINE)
SCRIPT = """
from ultralytics import YOLO
YOLO("{network}.pt").train(data="data.yaml", epochs=1, imgsz={edge}, batch=-1, device=0, plots=False)
"""
WEIGHTS = """
from ultralytics import YOLO
for name in ("{network}", "yolo26n"):
    YOLO(name + ".yaml").save(name + ".pt")
"""


def predicted(folder: Path, table: dict[str, Any], labels: int) -> dict[int, float]:
    """The table that AutoBatch prints in a prediction: GB by the number of images."""
    _label(folder, table["classes"], labels)
    if not (folder / f"{table['network']}.pt").exists():
        _python(folder, "-c", WEIGHTS.format(**table))
    (folder / "train.py").write_text(SCRIPT.format(**table))
    said = _python(folder, "-m", "memlab", "predict", "train.py", "--gpu", table["card"], "--", check=False)
    return {int(images): float(count) for count, images in ROW.findall(said)}


def _draw(folder: Path) -> None:
    """Images of noise."""
    drawn = np.random.default_rng(0)
    for part in PARTS:
        (folder / "images" / part).mkdir(parents=True)
        (folder / "labels" / part).mkdir(parents=True)
        for number in range(IMAGES):
            pixels = drawn.integers(0, 256, (480, 640, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "images" / part / f"{number}.png")


def _label(folder: Path, classes: int, labels: int) -> None:
    """Give each image a box, and one so many."""
    drawn = np.random.default_rng(0)
    for part in PARTS:
        for number in range(IMAGES):
            boxes = drawn.uniform(0.3, 0.6, (labels if part == "train" and not number else 1, 4)).round(4)
            lines = ("0 " + " ".join(map(str, box)) for box in boxes)
            (folder / "labels" / part / f"{number}.txt").write_text("\n".join(lines))
        (folder / "labels" / f"{part}.cache").unlink(missing_ok=True)
    names = ", ".join(f"{number}: c{number}" for number in range(classes))
    (folder / "data.yaml").write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames: {{{names}}}\n")


def _python(folder: Path, *words: str, check: bool = True) -> str:
    run = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=check)
    return run.stdout + run.stderr


def lines(data: dict[str, Any], folder: Path) -> Iterator[str]:
    """The totals of one data set beside their predictions, in Markdown; then the labels that were fitted."""
    _draw(folder)
    labels = 1
    network, images = data["fitted"]
    tables = sorted(data["tables"], key=lambda table: table["network"] != network)
    few, more = (predicted(folder, tables[0], count)[images] for count in (labels, labels + 100))
    labels += round(100 * (tables[0]["GB"][str(images)] - few) / (more - few))
    yield f"{data['source']}, {labels} labels in the fullest image (fitted on {network} with {images} images)"
    yield "| network | images | published GB | predicted | |\n|---|--:|--:|--:|--:|"
    for table in tables:
        said = predicted(folder, table, labels)
        for count, published in ((int(count), total) for count, total in table["GB"].items()):
            error = "fitted" if [table["network"], count] == data["fitted"] else f"{said[count] / published - 1:+.1%}"
            yield f"| {table['network']} | {count} | {published:.3f} | {said[count]:.3f} | {error} |"


if __name__ == "__main__":
    for data in json.loads(FILE.read_text()):
        with tempfile.TemporaryDirectory() as name:
            print(*lines(data, Path(name)), sep="\n", end="\n\n")
