"""Bytes to text and text to bytes: the only place where a KiB, MiB or GiB is made; and seconds to text.

Everywhere else a number of bytes is an ``int``.
"""

import math
import re

from memlab.errors import BadValue

KIB = 1024
MIB = 1024**2
GIB = 1024**3

# Powers of 1000 are kept apart from powers of 1024, as on the label of a card: 16 GB is 14.9 GiB.
_FACTORS = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": 1024**4,
}
_SIZE = re.compile(r"\s*(?P<number>[0-9][0-9_]*(?:\.[0-9]+)?|\.[0-9]+)\s*(?P<unit>[a-z]*)\s*", re.IGNORECASE)
_COMMA = re.compile(r"\s*(?P<before>[0-9][0-9_]*),(?P<after>[0-9]+)\s*(?P<unit>[a-z]*)\s*", re.IGNORECASE)


def format_bytes(count: int) -> str:
    """A number of bytes as text with three significant digits: ``412 MiB``, ``1.50 GiB``, ``-12 B``."""
    size = abs(count)
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        # 999.5 and above would print as "1000": take the next unit up instead.
        if size >= factor or size >= 999.5 * factor / 1024:
            value = size / factor
            return f"{'-' if count < 0 else ''}{three_digits(value)} {unit}"
    return f"{count} B"


def three_digits(value: float) -> str:
    """A number below 1000 with three significant digits, at most two of them behind the point: ``1.07``, ``12.7``."""
    size = abs(value)
    return f"{value:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"


def format_seconds(seconds: float) -> str:
    """Seconds as text with two significant digits: ``41 ms``, ``1.2 s``, ``340 s``."""
    for factor, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        value = float(f"{seconds / factor:.2g}")
        if value >= 1 or unit == "us":
            break
    return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"


def parse_bytes(text: str | int) -> int:
    """A number of bytes from ``"15 GiB"``, ``"15GB"`` (1000**3), ``"1.5 gib"`` or a plain ``16106127360``.

    Text that can be meant in two ways is asked about: ``"20"`` is hardly 20 bytes (a bare number is taken as bytes from
    1 MiB on), and the comma of ``"1,5 GiB"`` is a decimal point to some and nothing to others.

    Raises:
        BadValue: when it is not a positive size, or could be one or another.
    """
    if isinstance(text, int) and not isinstance(text, bool):
        count = text
    elif isinstance(text, str) and (match := _SIZE.fullmatch(text)) and match["unit"].lower() in _FACTORS:
        size = float(match["number"].replace("_", "")) * _FACTORS[match["unit"].lower()]
        count = round(size) if math.isfinite(size) else 0
        if 0 < count < MIB and not match["unit"]:
            raise BadValue(f"{text!r} has no unit: write '{text.strip()} GiB', or '{text.strip()} B' for bytes.")
    else:
        raise BadValue(_refusal(text))
    if count <= 0:
        raise BadValue(_refusal(text))
    return count


def _refusal(text: object) -> str:
    if isinstance(text, str) and (match := _COMMA.fullmatch(text)) and match["unit"].lower() in _FACTORS:
        before, after, unit = match["before"], match["after"], match["unit"] or "GiB"
        whole = f" or '{before}{after} {unit}'" if len(after) == 3 else ""
        return f"{text!r} has a comma: write '{before}.{after} {unit}'{whole}."
    return (
        f"{text!r} is not a number of bytes: give a positive size such as '15 GiB', '15 GB', '512 MiB' "
        "or a whole number of bytes."
    )


def byte_ticks(top: int) -> list[tuple[int, str]]:
    """Marks for an axis from 0 to ``top`` bytes, at most six: a power of two apart, each with its text."""
    step = 1 << max(0, math.ceil(math.log2(max(top, 1) / 5)))
    return [(count, _tick_text(count)) for count in range(0, top + 1, step)]


def _tick_text(count: int) -> str:
    if not count:
        return "0"
    number, unit = format_bytes(count).split()
    return f"{float(number):g} {unit}"
