"""``memlab explain FILE``: an out-of-memory message in a log, or a snapshot of PyTorch's allocator, in plain words."""

import argparse
import sys
from pathlib import Path
from typing import IO

from memlab.errors import BadValue
from memlab.explaining import explain
from memlab.snapshots import compare_snapshots, explain_snapshot, is_snapshot


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the ``explain`` command."""
    parser = subparsers.add_parser(
        "explain",
        help="explain an out-of-memory message, or a snapshot of PyTorch's memory",
        description="Read a log, or only the error in it, and say what was full and what to do, in this order. Of a "
        "snapshot, which torch.cuda.memory._dump_snapshot wrote, say who held what at the peak and what could go; two "
        "snapshots are compared. Nothing that a file holds is run.",
    )
    parser.add_argument("log", nargs="?", type=Path, metavar="FILE", help="by default what comes in by stdin")
    parser.add_argument("other", nargs="?", type=Path, metavar="SNAPSHOT", help="to compare the first one with")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Explain the last message in the log, or the snapshot, or compare both snapshots.

    Raises:
        BadValue: there is none, or no such file.
    """
    if args.other is not None:
        print(compare_snapshots(args.log, args.other))
    elif args.log is not None and is_snapshot(_head(args.log)):
        print(explain_snapshot(args.log))
    else:
        print(explain(_stdin() if args.log is None else _read(args.log)))
    return 0


def _stdin() -> str:
    """Return what comes in by stdin; a snapshot has to be a file."""
    whole = sys.stdin.buffer.read()
    if is_snapshot(whole[:4]):
        raise BadValue("What comes in by stdin is a snapshot, not a log: give its file, `memlab explain FILE`.")
    return whole.decode(errors="replace")


def _head(log: Path) -> bytes:
    with _open(log) as file:
        return file.read(4)


def _read(log: Path) -> str:
    with _open(log) as file:
        return file.read().decode(errors="replace")


def _open(log: Path) -> IO[bytes]:
    try:
        return log.open("rb")
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        reason = getattr(error, "strerror", None) or error
        raise BadValue(
            f"{str(log)[:200]!r} cannot be read ({reason}): give the file of a log or of a snapshot, or paste the "
            "message into `memlab explain`."
        ) from None
