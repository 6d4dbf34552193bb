"""``memlab predict FILE[:FUNCTION] --gpu T4``: what a ``train`` function, or a script, would take on a GPU."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlab.cli.functions import add_arguments, is_script, load_function, read_settings, read_value
from memlab.cli.report import file_of, output_file, show, title
from memlab.errors import BadValue
from memlab.script.child import MILESTONES
from memlab.units import parse_bytes
from memlab.vgpu.cards import CARDS

if TYPE_CHECKING:
    from memlab.script.launching import Launch

DEFAULT = "T4"


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the ``predict`` command."""
    parser = subparsers.add_parser(
        "predict",
        help="predict what a train function, or a script as it is, would take on a GPU",
        usage="memlab predict FILE[:FUNCTION] [key=value ...] [--gpu CARD] [--world-size N] [--steps N] "
        "[--until MILESTONE] [--guess LINE=NUMBER] [--chosen SHARE] [--budget SIZE] [--json FILE] [--snapshot FILE] "
        "[-- ARGUMENTS OF THE SCRIPT]\n"
        "       memlab predict [OPTIONS] -- torchrun --nproc-per-node 8 FILE ... "
        "(or python, accelerate launch, deepspeed)",
        description="Run the function on a virtual GPU, which computes nothing, and print the peak memory that the "
        "real one would reach. Out of memory is a result like any other, with exit status 0. FILE alone is a script: "
        "it is run as it is, until its steps are made. What it prints is on stderr, what it writes is thrown away.",
        epilog=f"Cards: {', '.join(CARDS)}. Any other is described by what PyTorch prints of it, as in '24 GiB sm_86'.",
    )
    add_arguments(parser, steps=3, budget="where less than the whole card is free", may_lack=True)
    parser.add_argument("--gpu", metavar="CARD", help=f"one of those below (default: {DEFAULT})")
    parser.add_argument(
        "--world-size", type=read_value, metavar="N", help="how many ranks train together (one of them)"
    )
    parser.add_argument(
        "--until",
        choices=tuple(MILESTONES),
        help="run a script on behind its steps, until it has evaluated its model, or saved it, and made one step more",
    )
    parser.add_argument(
        "--guess",
        action="append",
        default=[],
        metavar="LINE=NUMBER",
        help="a number that only a real card knows, by the line that asks for it, as in train.py:12=1.5",
    )
    parser.add_argument(
        "--chosen",
        type=read_value,
        metavar="SHARE",
        help="the share, from 0 to 1, that is chosen where numbers decide that only a real card knows, as in x[x > 0]; "
        "or evenly: what topk or argmax picks, as experts for tokens, is spread evenly",
    )
    parser.add_argument(
        "--snapshot",
        type=output_file,
        metavar="FILE",
        help="write what the allocator does, for pytorch.org/memory_viz",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Predict, print, save. What ``train`` itself raises comes out with its traceback."""
    is_chosen = args.gpu is not None
    args.gpu = args.gpu if is_chosen else DEFAULT
    status = _predict_script(args) if args.target is None or is_script(args.target) else _predict_function(args)
    if not is_chosen:
        print(f"This is for {DEFAULT}, since no --gpu is given.")
    return status


def _predict_function(args: argparse.Namespace) -> int:
    from memlab.run import Run
    from memlab.vgpu.gpu import VirtualGpu

    if args.until is not None:
        raise BadValue(
            f"--until {args.until} is for a script: give the file alone, without {args.target!r}'s function."
        )
    train = load_function(args.target)
    settings = read_settings([*args.settings, *args.arguments])
    options = _assumed(args) | {"world_size": args.world_size}
    device = VirtualGpu(args.gpu, keeps_history=args.snapshot is not None, **options)
    trace = Run(train, settings, device, steps=args.steps, budget=args.budget).complete()
    if args.snapshot is not None:
        device.save_snapshot(args.snapshot)
    show(title(args.target, trace), trace, args.json, file_of(args.target), room=_room(args), varies=trace.varies)
    _name_snapshot(args.snapshot)
    if trace.oom:
        needed = Run(train, settings, VirtualGpu(args.gpu, is_endless=True, **options), steps=args.steps).complete()
        print(f"{needed.with_room_enough(trace.oom.limit)}.")
    return 0


def _predict_script(args: argparse.Namespace) -> int:
    from memlab.script.child import ask
    from memlab.script.plan import plan

    launch = _launch(args)
    script, world_size = launch.command, launch.world_size if args.world_size is None else args.world_size
    options = {"gpu": args.gpu, "ranks": (world_size, 0), "until": args.until} | _assumed(args)
    answer = ask(script, **options, steps=args.steps, budget=args.budget, snapshot=args.snapshot)
    room = _room(args)
    show(repr(script), answer.trace, args.json, script.path.name, room=room, varies=answer.varies)
    _name_snapshot(args.snapshot)
    if answer.trace.oom:
        for line in plan(script, answer, **options, room=room, tell=_tell):
            print(line, flush=True)
    return 0


def _room(args: argparse.Namespace) -> int:
    """Return the bytes that there are: of the card, or of the budget."""
    from memlab.vgpu.lookup import find_card

    return find_card(args.gpu).room if args.budget is None else parse_bytes(args.budget)


def _assumed(args: argparse.Namespace) -> dict[str, Any]:
    """Return what somebody has said of numbers that only a real card knows."""
    return {"guesses": _read_guesses(args.guess), "chosen": args.chosen}


def _read_guesses(words: Sequence[str]) -> dict[str, float]:
    found = {}
    for word in words:
        place, _, number = word.rpartition("=")
        if not re.fullmatch(r".+:\d+", place) or not isinstance(value := read_value(number), int | float):
            raise BadValue(
                f"--guess {word} is not LINE=NUMBER: give it as the prediction names the line, train.py:12=1.5."
            )
        found[place] = float(value)
    return found


def _tell(sentence: str) -> None:
    sys.stderr.write(f"memlab: {sentence}\n")  # at once: several threads tell


def _launch(args: argparse.Namespace) -> "Launch":
    from memlab.script.launching import Launch, read

    if args.target is None:
        return read(args.arguments)
    from memlab.script import Script

    return Launch(Script(args.target, *args.arguments).with_options(**read_settings(args.settings)))


def _name_snapshot(file: Path | None) -> None:
    if file is not None:
        print(f"The snapshot is in {file}: drop it on pytorch.org/memory_viz, or read it with memlab explain {file}.")
