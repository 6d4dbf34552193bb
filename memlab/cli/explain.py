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
    print(explain(sys.stdin.read() if args.log is None else _read(args.log)))
    return 0


def _read(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise BadValue(
            f"{str(log)[:200]!r} cannot be read ({reason}): give the file of a log, or paste the message into "
            "`memlab explain`."
        ) from None
