"""``memlab measure FILE:FUNCTION key=value ...``: measure a ``train`` function from a file."""

import argparse

from memlab.cli.functions import add_arguments, load_function, read_settings
from memlab.cli.report import show


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the ``measure`` command."""
    parser = subparsers.add_parser(
        "measure",
        help="measure a train function from a file",
        usage="memlab measure FILE:FUNCTION [key=value ...] [--steps N] [--device D] [--budget SIZE] [--json FILE]",
        description="Train for real and print the peak memory and what it is made of. "
        "Out of memory is a result like any other, with exit status 0.",
    )
    # Two plain steps after three X-rayed ones, so that there is a speed to report.
    add_arguments(parser, steps=5, budget='more than this, such as "15 GiB", is out of memory')
    parser.add_argument("--device", metavar="D", help="cpu or cuda (default: cuda where there is one)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, print, save. What ``train`` itself raises comes out with its traceback."""
    from memlab.devices import open_device
    from memlab.run import Run

    train = load_function(args.target)
    settings = read_settings(args.settings)
    # Not measure(**settings): Run refuses steps=9 as a setting like any other that train lacks.
    trace = Run(train, settings, open_device(args.device), steps=args.steps, budget=args.budget).complete()
    show(args.target, trace, args.json)
    return 0
