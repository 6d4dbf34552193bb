"""``memlab record --out FILE``: what a matrix of training loops really takes on this GPU."""

import argparse

from memlab.cli.report import output_file
from memlab.errors import BadValue


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the ``record`` command."""
    parser = subparsers.add_parser(
        "record",
        help="record what training loops take on this GPU",
        description="Run a matrix of training loops and write what each took to a JSON file, which predictions are "
        "held to. Needs torch and numpy alone. Run again with the same file, it goes on where it stopped.",
    )
    parser.add_argument("--cases", nargs="+", default=[], metavar="NAME", help="parts of names (default: all cases)")
    parser.add_argument("--minutes", type=float, default=8, metavar="N", help="how long (default: %(default)s)")
    parser.add_argument("--device", metavar="D", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--gpu", metavar="CARD", help="record the predictions for this card, to try the command out")
    parser.add_argument(
        "--out", type=output_file, required=True, metavar="FILE", help="the recording, new or gone on with"
    )
    parser.add_argument("--list", action="store_true", help="name the cases and do nothing")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Record; 0 even if single cases failed, for their errors are in the file."""
    from memlab.devices import Device, open_device
    from memlab.record.cases import find_cases
    from memlab.record.recorder import record

    cases = find_cases(args.cases)
    if args.list:
        print("\n".join(f"{case.name}{'  (holdout)' if case.holdout else ''}" for case in cases))
        return 0
    if not args.minutes > 0:
        raise BadValue(f"--minutes {args.minutes:g} is no time: give a number above 0.")
    device: Device
    if args.gpu is not None:
        from memlab.vgpu.gpu import VirtualGpu

        device = VirtualGpu(args.gpu)
    else:
        device = open_device(args.device)
    recording = record(cases, device, args.out, seconds=60 * args.minutes, say=lambda line: print(line, flush=True))
    failed = sum("error" in case for case in recording["cases"].values())
    print(f"{len(recording['cases'])} cases on {recording['device']} in {args.out}, {failed} of them failed")
    return 0
