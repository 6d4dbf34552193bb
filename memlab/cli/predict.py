"""``memlab predict FILE:FUNCTION --gpu T4 key=value ...``: what a ``train`` function would take on a GPU."""

import argparse

from memlab.cli.functions import add_arguments, load_function, read_settings
from memlab.cli.report import show


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the ``predict`` command."""
    parser = subparsers.add_parser(
        "predict",
        help="predict what a train function would take on a GPU",
        usage="memlab predict FILE:FUNCTION [key=value ...] [--gpu CARD] [--steps N] [--budget SIZE] [--json FILE]",
        description="Run the function on a virtual GPU, which computes nothing, and print the peak memory that the "
        "real one would reach. Out of memory is a result like any other, with exit status 0.",
    )
    add_arguments(parser, steps=3, budget="where less than the whole card is free")
    parser.add_argument("--gpu", default="T4", metavar="CARD", help="T4, A100-40GB, ... (default: %(default)s)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Predict, print, save. What ``train`` itself raises comes out with its traceback."""
    from memlab.run import Run
    from memlab.vgpu.gpu import VirtualGpu

    train = load_function(args.target)
    settings = read_settings(args.settings)
    trace = Run(train, settings, VirtualGpu(args.gpu), steps=args.steps, budget=args.budget).complete()
    show(args.target, trace, args.json)
    return 0
