"""Record what loops of the corpus really take on this GPU: ``python -m tests.record --out FILE``."""

import argparse
import sys
from collections.abc import Sequence

from memlab.cli.report import output_file
from memlab.devices import Device, open_device
from memlab.errors import BadValue, MemlabError
from memlab.vgpu.gpu import VirtualGpu
from tests.loops.cases import find_cases
from tests.record.recorder import record


def main(argv: Sequence[str] | None = None) -> int:
    """Record; 0 even if single cases failed, for their errors are in the file; 2 with a sentence for bad input."""
    args = _parser().parse_args(argv)
    try:
        return _run(args)
    except MemlabError as error:
        print(f"tests.record: error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.record",
        description="Run training loops and write to a JSON file what each took, which predictions are held to. Run "
        "again with the same file, it goes on where it stopped.",
    )
    parser.add_argument("--cases", nargs="+", default=[], metavar="NAME", help="parts of names (default: all cases)")
    parser.add_argument("--minutes", type=float, default=8, metavar="N", help="how long (default: %(default)s)")
    parser.add_argument("--device", metavar="D", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--gpu", metavar="CARD", help="record the predictions for this card, to try the command out")
    parser.add_argument(
        "--out", type=output_file, required=True, metavar="FILE", help="the recording, new or gone on with"
    )
    parser.add_argument("--list", action="store_true", help="name the cases and do nothing")
    return parser


def _run(args: argparse.Namespace) -> int:
    cases = find_cases(args.cases)
    if args.list:
        print("\n".join(f"{case.name}{'  (holdout)' if case.holdout else ''}" for case in cases))
        return 0
    if not args.minutes > 0:
        raise BadValue(f"--minutes {args.minutes:g} is no time: give a number above 0.")
    device: Device = open_device(args.device) if args.gpu is None else VirtualGpu(args.gpu)
    recording = record(cases, device, args.out, seconds=60 * args.minutes, say=lambda line: print(line, flush=True))
    failed = sum("error" in case for case in recording["cases"].values())
    print(f"{len(recording['cases'])} cases on {recording['device']} in {args.out}, {failed} of them failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
