"""``memlab explain < log``: an out-of-memory message in plain words, and what to do."""

import argparse
import sys
from pathlib import Path

from memlab.errors import BadValue
from memlab.explaining import explain


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the ``explain`` command."""
    parser = subparsers.add_parser(
        "explain",
        help="explain an out-of-memory message",
        description="Read a log, or only the error in it, and say what was full and what to do, in this order.",
    )
    parser.add_argument("log", nargs="?", type=Path, metavar="FILE", help="by default what comes in by stdin")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Explain the first message in the log.

    Raises:
        BadValue: there is none, or no such file.
    """
    if args.log is not None and not args.log.is_file():
        raise BadValue(f"{args.log} is not there: give the file of a log, or paste the message into `memlab explain`.")
    print(explain(sys.stdin.read() if args.log is None else args.log.read_text(errors="replace")))
    return 0
