"""The command line: ``memlab lab``, ``memlab doctor``, ``memlab measure``, ``memlab predict``,
``memlab fit``, ``memlab explain``, ``memlab logbook``.

A command is a module with ``add_parser(subparsers)`` and ``run(args) -> int``. This package is the
only one that prints, and no module in it imports torch before its command runs.
"""

import argparse
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from memlab.cli import doctor, explain, fit, lab, logbook, measure, predict
from memlab.cli.own_errors import shortened
from memlab.errors import MemlabError

_COMMANDS = (lab, doctor, measure, predict, fit, explain, logbook)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 2 after a :class:`MemlabError`, 1 after an error of the reader's own
    loop, 130 after Ctrl-C.

    As of other commands, 141 when what reads the output has gone (``memlab logbook | head -1``), and 143 after SIGTERM.
    """
    with _ended_by_sigterm():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):  # a terminal that knows only ASCII still shows a name in Greek
        stream.reconfigure(errors="backslashreplace") if isinstance(stream, io.TextIOWrapper) else None
    args = _parse(sys.argv[1:] if argv is None else argv)
    try:
        status = args.run(args)
        sys.stdout.flush()
    except MemlabError as error:
        print(f"memlab: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        told = shortened(error) if hasattr(args, "target") else ""  # other commands run no code of the reader's
        if not told and isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains as it ends
            return 141
        if not told:
            raise
        print(told, end="", file=sys.stderr)
        return 1
    return status


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """A context that SIGTERM ends as an error does: temporary folders go, and processes that were started."""

    def end(*args: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    if threading.current_thread() is not threading.main_thread():  # others hear no signal
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments; settings may stand before options, between and after them, which argparse does not take."""
    parser = _parser()
    own, arguments = _parted(argv)
    args, rest = parser.parse_known_args(own, argparse.Namespace(arguments=arguments))
    if rest and (not hasattr(args, "settings") or any(word.startswith("-") for word in rest)):
        hint = "; a script's own stand behind --" if hasattr(args, "settings") else ""
        parser.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
    if rest:
        args.settings += rest
    return args


def _parted(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The words for memlab, and those behind ``--``, which are a script's own."""
    own = words.index("--") if "--" in words else len(words)
    return words[:own], words[own + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="memlab", description="Train networks that do not fit in GPU memory.")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add_parser(subparsers)
    return parser
