"""The page itself: a grid, packed, and the script that shows it."""

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from html import escape
from itertools import accumulate, pairwise
from typing import Any

from memlab.lab.browser import script as drawing
from memlab.lab.page.grid import Grid
from memlab.lab.style import style

SHORTEST = 8  # lists with fewer values are not worth sharing


def fragment(grid: Grid, *, with_script: bool = True) -> str:
    """HTML to put into any page: the panel, and without JavaScript the picture that it begins with.

    Args:
        with_script: False where the page has :func:`script` and :func:`memlab.lab.style.style` already.
    """
    name = "".join(letter if letter.isalnum() else "-" for letter in grid.title.lower())
    still = f"{grid.still}<p>{escape(grid.sentences[grid.start])}</p>"
    panel = f'<div class="memlab" id="lab-{name}" data-grid="{packed(grid)}">{still}</div>'
    return f"{style()}{panel}<script>{script()}</script>" if with_script else panel


def page(grid: Grid) -> str:
    """The same as a page of its own, in one file."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(grid.title)}</title></head>"
        f'<body class="memlab-page"><main><h1>{escape(grid.title)}</h1>{fragment(grid)}</main></body></html>\n'
    )


def form(guess: Mapping[str, Any]) -> str:
    """HTML to put into any page that has :func:`script`: a question, to guess at and see how near that was.

    Args:
        guess: as :meth:`memlab.lab.guess.Guess.to_plain` gives it.
    """
    question = escape(guess["question"])
    return f'<div class="memlab" data-guess="{escape(json.dumps(guess))}"><p><b>{question}</b></p></div>'


def packed(grid: Grid) -> str:
    """The grid as base64 of compressed JSON (RFC 1951, which browsers unpack as ``deflate-raw``).

    Steps that differ in one number have most columns in common. Each is written once, and columns of one name stand
    together: RFC 1951 looks for repetitions in 32 KiB, less than one step.
    """
    shown = [_smaller(step) for step in grid.shown]
    runs = [run | {"shown": _smaller(run["shown"]), "settings": _texts(run["settings"])} for run in grid.runs]
    lists = dict.fromkeys(
        text for _, text in sorted({pair for part in (shown, runs) for pair in _long_lists("", part)})
    )
    places = {text: place for place, text in enumerate(lists)}
    data = {
        "title": grid.title,
        "axes": [asdict(axis) | {"values": list(map(_text, axis.values))} for axis in grid.axes],
        "shown": _share(shown, places),
        "runs": _share(runs, places),
        "sentences": grid.sentences,
        "code": grid.code,
        "shared": list(map(json.loads, lists)),
    }
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(packer.compress(json.dumps(data, separators=(",", ":")).encode()) + packer.flush()).decode()


def unpacked(text: str) -> dict[str, Any]:
    """Return the object that :func:`packed` has packed; its steps are still in shared parts."""
    return dict(json.loads(zlib.decompress(base64.b64decode(text), -zlib.MAX_WBITS)))


def _smaller(shown: dict[str, Any] | None) -> dict[str, Any] | None:
    """A step in which alike parts look alike, such as the blocks of a model: then they pack well.

    Its events have the time that passes between them, and of a storage how much younger the youngest so far is.
    """
    if shown is None:
        return None
    events = dict(shown["trace"]["events"])
    times = [round(1e6 * seconds) for seconds in events.pop("seconds")]
    youngest = list(accumulate(events["storage"], max, initial=-1))
    events["microseconds"] = [later - earlier for earlier, later in pairwise([0, *times])]
    events["age"] = [newest - place for place, newest in zip(events.pop("storage"), youngest, strict=False)]
    outline = {"outline": _smaller(shown["outline"])} if "outline" in shown else {}
    return shown | {"trace": shown["trace"] | {"events": events}} | outline


def _long_lists(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """The lists of numbers or texts that are worth sharing, as JSON, each with its name."""
    if isinstance(value, dict):
        for part, inner in value.items():
            yield from _long_lists(part, inner)
    elif _is_long(value):
        yield name, json.dumps(value)
    elif isinstance(value, list):
        for inner in value:
            yield from _long_lists(name, inner)


def _share(value: Any, places: Mapping[str, int]) -> Any:
    """The value, in which ``{"$": 3}`` stands for the fourth of the shared lists."""
    if isinstance(value, dict):
        return {name: _share(part, places) for name, part in value.items()}
    if _is_long(value):
        return {"$": places[json.dumps(value)]}
    return [_share(part, places) for part in value] if isinstance(value, list) else value


def _is_long(value: Any) -> bool:
    return isinstance(value, list) and len(value) > SHORTEST and not isinstance(value[0], dict | list | None)


def script() -> str:
    """The JavaScript that makes the panels of a page work: a classic script, which pages in a folder may load."""
    return f'(() => {{\n"use strict";\n{drawing("page.js")}\n}})();\n'


def _texts(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in settings.items()}


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
