"""``memlab measure FILE[:FUNCTION]``: measure a ``train`` function from a file, or a script."""

import argparse

from memlab.cli.functions import add_arguments, is_script, load_function, read_settings
from memlab.cli.report import file_of, show, title


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the ``measure`` command."""
    parser = subparsers.add_parser(
        "measure",
        help="measure a train function from a file, or a script as it is",
        usage="memlab measure FILE[:FUNCTION] [key=value ...] [--steps N] [--device D] [--budget SIZE] [--json FILE] "
        "[-- ARGUMENTS OF THE SCRIPT]",
        description="Train for real and print the peak memory and what it is made of. "
        "Out of memory is a result like any other, with exit status 0. FILE alone is a script: it is run as it is, "
        "until its steps are made.",
    )
    # Two plain steps after three X-rayed ones, so that there is a speed to report.
    add_arguments(parser, steps=5, budget='more than this, such as "15 GiB", is out of memory')
    parser.add_argument("--device", metavar="D", help="cpu or cuda (default: cuda where there is one)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, print, save. What ``train`` itself raises comes out with its traceback."""
    if is_script(args.target):
        return _measure_script(args)
    from memlab.devices import open_device
    from memlab.run import Run

    train = load_function(args.target)
    settings = read_settings([*args.settings, *args.arguments])
    # Not measure(**settings): Run refuses steps=9 as a setting like any other that train lacks.
    trace = Run(train, settings, open_device(args.device), steps=args.steps, budget=args.budget).complete()
    show(title(args.target, trace), trace, args.json, file_of(args.target))
    return 0


def _measure_script(args: argparse.Namespace) -> int:
    from memlab.script import Script

    script = Script(args.target, *args.arguments).with_options(**read_settings(args.settings))
    trace = script.measure(device=args.device, steps=args.steps, budget=args.budget)
    show(repr(script), trace, args.json, script.path.name)
    return 0
