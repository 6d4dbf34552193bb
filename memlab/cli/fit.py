"""``memlab fit FILE[:FUNCTION] --gpu T4 batch_size=1:64 precision=fp32,bf16``: the settings that fit."""

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any

from memlab.cli.functions import is_script, load_function, read_settings, read_value


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the ``fit`` command."""
    parser = subparsers.add_parser(
        "fit",
        help="find the settings with which a train function, or a script as it is, fits on a GPU",
        usage="memlab fit FILE[:FUNCTION] [key=1:64 | key=a,b | key=value ...] [--gpu CARD] [--steps N] "
        "[--budget SIZE] [-- ARGUMENTS OF THE SCRIPT]",
        description="Find the settings that fit, the fastest first, by prediction, without trying every combination. "
        "key=1:64 is a range, key=a,b a list with what you would rather have first. Ctrl-C keeps what was found.",
    )
    parser.add_argument("target", metavar="FILE[:FUNCTION]", help="as in loop.py:train, or a script that trains")
    parser.add_argument("settings", nargs="*", metavar="key=choice", help="a range 1:64, a list a,b or one value")
    parser.add_argument("--gpu", default="T4", metavar="CARD", help="T4, A100-40GB, ... (default: %(default)s)")
    parser.add_argument("--budget", metavar="SIZE", help="where less than the whole card is free")
    parser.add_argument("--steps", type=read_value, default=3, metavar="N", help="how many (default: %(default)s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Search and print; what is being tried goes to standard error. Status 130 after Ctrl-C."""
    from memlab.fitting import fit

    train = _script(args) if is_script(args.target) else load_function(args.target)
    choices = read_choices(args.settings)
    found = fit(train, gpu=args.gpu, budget=args.budget, steps=args.steps, progress=_show, **choices)
    print(found)
    return 130 if found.stopped else 0


def _script(args: argparse.Namespace) -> Any:
    from memlab.script import Script

    return Script(args.target, *args.arguments)


def read_choices(words: Sequence[str]) -> dict[str, Any]:
    """``["batch_size=1:64", "precision=fp32,bf16"]`` as what :func:`memlab.fit` takes.

    Raises:
        BadValue: for a word that is not ``key=choice``.
    """
    read_settings(words)  # which knows what is wrong with them
    return {name: _choice(text) for name, _, text in (word.partition("=") for word in words)}


def _choice(text: str) -> Any:
    if ends := re.fullmatch(r"(\d+):(\d+)", text):
        return int(ends[1]), int(ends[2])
    value = read_value(text)
    if isinstance(value, str) and "," in value:
        return [read_value(part) for part in value.split(",")]
    return list(value) if isinstance(value, tuple) else value


def _show(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
