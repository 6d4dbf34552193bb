"""What the panel's pictures are made of: SVG as text, quick enough to be made ten times a second.

A picture is as wide as the notebook leaves room for, but what is written keeps its size: heights are pixels, places
from left to right are fractions of the width. Labels are placed for the narrowest picture; in a wider one they only
move apart.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from memlab.lab.style import color

NARROWEST = 370  # pixels: a plot in the narrowest panel that is laid out for
AXIS = 66  # pixels for the numbers on the left
SIZE = 14  # pixels, of all that is written in a picture
_XMLNS = "http://www.w3.org/2000/svg"
_GRID = 1000  # units from left to right that curves are drawn in

# Widths of letters in parts of their height, those of the widest of the usual system fonts (DejaVu Sans).
_NARROW, _WIDE, _CAPITAL, _OTHER = 0.36, 1.0, 0.8, 0.65
_BOLD = 1.14


def text_width(text: str, *, bold: bool = False) -> float:
    """At most how many pixels a label takes from left to right."""
    return SIZE * (_BOLD if bold else 1) * sum(map(_letter_width, text))


def _letter_width(letter: str) -> float:
    if letter in "ijl.,:;|'·()[] ":
        return _NARROW
    if letter in "mwMW%@" or ord(letter) > 0x2FF:
        return _WIDE
    return _CAPITAL if letter.isupper() else _OTHER


class Box(NamedTuple):
    """A part of a picture, in pixels of the narrowest one."""

    left: float
    top: float
    right: float
    bottom: float

    def hits(self, other: "Box") -> bool:
        """Whether the two have a point in common."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


@dataclass(frozen=True)
class Label:
    """A text and its place: ``x`` from 0 to 1, ``y`` in pixels to its base line."""

    text: str
    x: float
    y: float
    anchor: str = "middle"
    color: str = "quiet"
    bold: bool = False

    @property
    def box(self) -> Box:
        """What it covers."""
        width = text_width(self.text, bold=self.bold)
        left = self.x * NARROWEST - {"start": 0, "middle": width / 2, "end": width}[self.anchor]
        return Box(left, self.y - SIZE, left + width, self.y + 4)

    def svg(self) -> str:
        """The label; it may lie on areas and lines, so each letter has an edge of the ground's colour."""
        weight = ' font-weight="600"' if self.bold else ""
        return (
            f'<text x="{self.x:.2%}" y="{self.y:.1f}" fill="{color(self.color)}" text-anchor="{self.anchor}"{weight} '
            f'stroke="{color("ground")}" stroke-width="3" paint-order="stroke">{escape(self.text)}</text>'
        )


def inside(label: Label) -> Label:
    """The label, moved from its middle so that it does not leave the picture to the left or the right."""
    box = label.box
    if box.left < 0:
        return Label(label.text, 0, label.y, "start", label.color, label.bold)
    if box.right > NARROWEST:
        return Label(label.text, 1, label.y, "end", label.color, label.bold)
    return label


def first_free(candidates: Iterable[Label], taken: Sequence[Box], bounds: Box) -> Label | None:
    """The first label that lies within the bounds and on nothing that is taken."""
    for label in candidates:
        box = label.box
        fits = bounds.left <= box.left and box.right <= bounds.right + 0.01
        if fits and bounds.top <= box.top and box.bottom <= bounds.bottom and not any(map(box.hits, taken)):
            return label
    return None


@dataclass(frozen=True)
class Scale:
    """Where numbers stand in a plot: from 0 to ``x_top`` along it, from ``y_bottom`` to ``y_top`` up it."""

    x_top: float
    y_top: float
    top: float
    height: float
    y_bottom: float = 0.0

    def x(self, value: float) -> float:
        """A fraction of the width."""
        return value / (self.x_top or 1)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        reach = self.y_top - self.y_bottom or 1
        return round(self.top + self.height * (1 - (value - self.y_bottom) / reach), 1)

    @property
    def bottom(self) -> float:
        """Pixels from the top to the x axis."""
        return self.top + self.height

    def point(self, x: float, y: float) -> str:
        """A point of a curve."""
        return f"{_GRID * self.x(x):.1f},{self.y(y)}"


def curve(points: Sequence[str], stroke: str, width: float, dashes: str = "") -> str:
    """A line through points of a :class:`Scale`, as wide and dashed as it is said, however wide the picture is."""
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{stroke}" stroke-width="{width}"{dashed} '
        'vector-effect="non-scaling-stroke"/>'
    )


def area(upper: Sequence[str], lower: Sequence[str], fill: str) -> str:
    """What lies between two curves."""
    return f'<polygon points="{" ".join([*upper, *reversed(lower)])}" fill="{fill}"/>'


def shade(first: float, last: float, bottom: float) -> str:
    """A ground from one fraction of the width to another, down from the top."""
    return f'<rect x="{first:.2%}" y="0" width="{last - first:.2%}" height="{bottom}" fill="{color("shade")}"/>'


def dot(x: float, y: float, fill: str) -> str:
    """A dot at a fraction of the width."""
    return f'<circle cx="{x:.2%}" cy="{y}" r="5" fill="{fill}" stroke="{color("ground")}"/>'


def level(y: float, stroke: str, width: float) -> str:
    """A line from left to right."""
    return f'<line x1="0" x2="100%" y1="{y}" y2="{y}" stroke="{stroke}" stroke-width="{width}"/>'


def plot(height: int, label: str, *, axis: Sequence[tuple[str, float]], behind: str, curves: str, front: str) -> str:
    """A plot with numbers on its left: ``curves`` are drawn as wide as there is room, over ``behind``, below ``front``.

    Args:
        label: what it shows, for screen readers.
        axis: a text and its pixels from the top each.
    """
    texts = "".join(
        f'<text x="{AXIS - 6}" y="{y + 5:.1f}" text-anchor="end" fill="{color("quiet")}">{text}</text>'
        for text, y in axis
    )
    # Contained, so that a new picture makes the browser lay out and paint this one, not the notebook.
    own = "flex:1 1 0;min-width:0;margin-right:10px;contain:size layout style;overflow:visible"
    look = f'height="{height}" font-family="system-ui, sans-serif" font-size="{SIZE}"'
    whole = f'width="100%" height="{height}"'
    return (
        f'<div style="display:flex;background:{color("ground")}">'
        f'<svg xmlns="{_XMLNS}" width="{AXIS}" {look} style="flex:none" aria-hidden="true">{texts}</svg>'
        f'<svg xmlns="{_XMLNS}" width="100%" {look} style="{own}" role="img" aria-label="{escape(label)}">{behind}'
        f'<svg viewBox="0 0 {_GRID} {height}" {whole} preserveAspectRatio="none">{curves}</svg>{front}</svg></div>'
    )
