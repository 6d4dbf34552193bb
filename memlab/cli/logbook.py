"""``memlab logbook``: the runs of the panels on this machine, the newest last."""

import argparse
import sys
from collections.abc import Sequence

from memlab.errors import BadValue
from memlab.logbook import Entry, logbook_file, read
from memlab.units import format_bytes


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the ``logbook`` command."""
    parser = subparsers.add_parser("logbook", help="show the runs that the notebooks' panels made")
    parser.add_argument("--last", type=int, default=20, metavar="N", help="how many (default: %(default)s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the newest entries as a table."""
    if args.last < 1:
        raise BadValue(f"--last {args.last} is not a number of runs: give a whole number from 1 on.")
    entries, left_out = read()
    if not entries:
        print(f"The logbook {logbook_file()} is empty: run a panel in a notebook.")
    for line in table(entries[-args.last :]):
        print("".join(char if char.isprintable() else ascii(char)[1:-1] for char in line))  # no orders to a terminal
    if left_out:
        print(f"Lines of {logbook_file()} that are no runs, and were left out: {left_out}.", file=sys.stderr)
    return 0


def table(entries: Sequence[Entry]) -> list[str]:
    """A line each: when, which panel, on what, its peak, its loss, its settings."""
    lines = []
    for entry in entries:
        settings = ", ".join(f"{name}={value}" for name, value in entry.settings.items())
        loss = "" if entry.loss is None else f"loss {entry.loss:.3g}"
        peak = f"{format_bytes(entry.peak_allocated)}{' (out of memory)' if entry.out_of_memory else ''}"
        lines.append(
            f"{entry.time}  {entry.title}, {entry.source} on {entry.device}: {peak}  {loss}  {settings}".rstrip()
        )
    return lines
