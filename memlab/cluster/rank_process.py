"""One rank: what ``torchrun`` starts as often as there are GPUs, and what :func:`memlab.cluster.measure` has it start.

It makes the process group and runs ``train(device, **settings)``, which finds it made: ``DDP(model)``,
``fully_shard(model)``, ``init_device_mesh(device.type, (dist.get_world_size(),))`` are plain PyTorch. Every step, the
:class:`~memlab.trace.Trace` and any error are told in a line of JSON each, printed where nobody listens.

On several machines it is started with torchrun's own command, on each of them::

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
        -m memlab.cluster.rank_process my_loop.py:train '{"batch_size": 64}' --steps 10
"""

import argparse
import errno
import faulthandler
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from memlab.cluster.lines import Speaker
from memlab.cluster.size import threads
from memlab.cluster.target import load
from memlab.devices import open_device
from memlab.errors import BadValue
from memlab.run import Run


def main(given: Sequence[str] | None = None) -> int:
    """Train as one rank, with these arguments or the command line's; 1 if that failed."""
    arguments = _parser().parse_args(given)
    speaker = Speaker(int(os.environ["RANK"]))
    if hasattr(faulthandler, "register"):  # not on Windows
        faulthandler.register(signal.SIGUSR1, speaker, all_threads=False)
    speaker.say("hello", pid=os.getpid())
    torch.set_num_threads(min(torch.get_num_threads(), threads(int(os.environ["LOCAL_WORLD_SIZE"]))))
    file = arguments.target.rpartition(":")[0]
    try:
        _train(arguments, _join(arguments.device), speaker)
        # gloo's group ends with the process. Its destructor, which holds the GIL, might wait for ever for a thread that
        # has a communication hook's future to drop.
        if arguments.device == "cuda":
            dist.destroy_process_group()
    except BaseException as error:
        speaker.say("error", **_described(error, file))
        return 1
    speaker.say("end")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchrun ... -m memlab.cluster.rank_process", description=__doc__.split("\n")[0]
    )
    parser.add_argument("target", metavar="FILE:FUNCTION", help="as in data_parallel.py:train")
    parser.add_argument("settings", nargs="?", default={}, type=json.loads, metavar="JSON", help="its settings")
    parser.add_argument("--steps", type=int, default=3, help="how many (default: %(default)s)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--budget", type=int, metavar="BYTES", help="the most that each rank may allocate")
    parser.add_argument("--xray", choices=["auto", "every"], default="auto", help="which steps to X-ray")
    return parser


def _join(kind: str) -> torch.device:
    """Make the group of all ranks; this rank's device."""
    device = torch.device(kind, int(os.environ["LOCAL_RANK"])) if kind == "cuda" else torch.device(kind)
    os.environ.setdefault("DS_ACCELERATOR", kind)  # or DeepSpeed looks at the machine
    if kind == "cuda":
        torch.cuda.set_device(device)
    try:
        dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    except dist.DistNetworkError as error:
        if os.strerror(errno.EADDRINUSE).lower() not in str(error).lower():
            raise
        port = os.environ.get("MASTER_PORT")
        raise BadValue(f"Port {port} is in use: give torchrun another --master-port, or --standalone.") from error
    return device


def _train(arguments: argparse.Namespace, device: torch.device, speaker: Speaker) -> None:
    run = Run(
        load(arguments.target),
        arguments.settings,
        open_device(device),
        steps=arguments.steps,
        budget=arguments.budget,
        xray=arguments.xray,
    )
    speaker.say("start")
    told = -1
    with run:
        for step in run:
            if run.xray_step != told:  # before its step, which may be drawn at once
                told = run.xray_step
                _tell_trace(run, speaker)
            speaker.say("step", step=step.to_plain())
    _tell_trace(run, speaker)


def _tell_trace(run: Run, speaker: Speaker) -> None:
    trace = replace(run.trace(), rank=dist.get_rank(), world_size=dist.get_world_size())
    speaker.say("trace", trace=trace.to_json())


def _described(error: BaseException, file: str) -> dict[str, Any]:
    """An error as its reader needs it: the type, the sentence, the last line of the reader's own file, everything."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if _same(frame.f_code.co_filename, file)]
    return {
        "type": type(error).__name__,
        "text": str(error),
        "file": Path(file).name,
        "line": lines[-1] if lines else None,
        "traceback": "".join(traceback.format_exception(error)),
    }


def _same(one: str, other: str) -> bool:
    return Path(one).resolve() == Path(other).resolve()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # at once: Python would take a second to free what the system frees anyway
