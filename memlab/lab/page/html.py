"""The page itself: a grid, packed, and the script that shows it."""

import base64
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files

from memlab.lab.page.grid import Axis, Grid

CURVE = re.compile(r'points="([^"]*)"')


def fragment(grid: Grid, *, with_script: bool = True) -> str:
    """HTML to put into any page: the panel, and without JavaScript the picture that it begins with.

    Args:
        with_script: False where the page has :func:`script` and :func:`style` already.
    """
    name = "".join(letter if letter.isalnum() else "-" for letter in grid.title.lower())
    start = _start(grid.axes)
    still = f"{grid.pictures[start]}<p>{escape(grid.sentences[start])}</p>"
    parts = [f"<style>{style()}</style>"] if with_script else []
    parts.append(
        f'<div class="memlab-panel" id="lab-{name}" data-grid="{packed(grid)}">'
        f'<div class="memlab-still">{still}</div></div>'
    )
    return "".join([*parts, *([f"<script>{script()}</script>"] if with_script else [])])


def page(grid: Grid) -> str:
    """The same as a page of its own, in one file."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(grid.title)}</title></head>"
        f'<body class="memlab-page"><main><h1>{escape(grid.title)}</h1>{fragment(grid)}</main></body></html>\n'
    )


def packed(grid: Grid) -> str:
    """The grid as base64 of compressed JSON (RFC 1951, which browsers unpack as ``deflate-raw``)."""
    tables: dict[str, int] = {}
    data = {
        "legend": ": ".join(filter(None, (grid.title, grid.model))),
        "axes": [asdict(axis) | {"values": [_text(value) for value in axis.values]} for axis in grid.axes],
        "pictures": [_thinned(picture, tables) for picture in grid.pictures],
        "sentences": grid.sentences,
        "tables": list(tables),
    }
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(packer.compress(json.dumps(data).encode()) + packer.flush()).decode()


def unpacked(text: str) -> dict[str, object]:
    """What :func:`packed` has packed, with the pictures as the page's script draws them."""
    data = json.loads(zlib.decompress(base64.b64decode(text), -zlib.MAX_WBITS))
    return data | {"pictures": [_whole(picture, data["tables"]) for picture in data["pictures"]]}


def _thinned(picture: str, tables: dict[str, int]) -> str:
    """The picture with its curves' x coordinates as a number in the tables: many curves have the same, and differ in y.

    That halves what is packed and more: RFC 1951 looks for repetitions in 32 KiB, less than one picture.
    """

    def thin(curve: re.Match[str]) -> str:
        points = [point.split(",") for point in curve[1].split()]
        number = tables.setdefault(" ".join(x for x, _ in points), len(tables))
        return f'points="{number}:{" ".join(y for _, y in points)}"'

    return CURVE.sub(thin, picture)


def _whole(picture: str, tables: Sequence[str]) -> str:
    def fill(curve: re.Match[str]) -> str:
        number, _, heights = curve[1].partition(":")
        points = zip(tables[int(number)].split(), heights.split(), strict=True)
        return f'points="{" ".join(map(",".join, points))}"'

    return CURVE.sub(fill, picture)


def script() -> str:
    """The JavaScript that makes the panels of a page work."""
    return _file("panel.js")


def style() -> str:
    """Their CSS."""
    return _file("panel.css")


def _file(name: str) -> str:
    return (files("memlab.lab.page") / name).read_text(encoding="utf-8")


def _start(axes: tuple[Axis, ...]) -> int:
    number = 0
    for axis in axes:
        number = number * len(axis.values) + axis.start
    return number


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
