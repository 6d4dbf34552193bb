"""The usual ways to start a script, as written: ``python``, ``torchrun``, ``accelerate launch``, ``deepspeed``.

Each launcher reads its command line itself. What it would start is written down in the place of being started.
"""

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import PurePath
from typing import Any

from memlab.errors import BadValue
from memlab.patching import Patches
from memlab.script.command import Command


@dataclass(frozen=True)
class Launch:
    """A script, as a launcher starts it.

    Attributes:
        command: the script.
        world_size: how many ranks there are; None for a script that is started alone.
    """

    command: Command
    world_size: int | None = None


def is_launcher(word: str) -> bool:
    """Return whether a word of a command line is the name of a launcher."""
    return _name(word) in _LAUNCHERS


def read(words: Sequence[str]) -> Launch:
    """Return the script that a command line starts.

    Raises:
        BadValue: it begins with no launcher, the launcher is not installed, or it starts no script.
    """
    if not words or not is_launcher(words[0]):
        given = f"{words[0]} starts no script" if words else "no script is given"
        raise BadValue(f"{given}: give a file, or behind -- what starts it ({', '.join(_LAUNCHERS)}), as you write it.")
    return _LAUNCHERS[_name(words[0])](list(words[1:]))


def _name(word: str) -> str:
    return re.sub(r"[\d.]*(\.exe)?$", "", PurePath(word).name)


def _python(words: list[str]) -> Launch:
    while words:
        word = words.pop(0)
        if word == "-m" and words:
            module = words.pop(0)
            return _MODULES[module](words) if module in _MODULES else Launch(Command.of_module(module, *words))
        if word in ("-W", "-X"):
            words = words[1:]
        elif word == "-c" or not word.startswith("-"):
            return Launch(Command(word, *words))
    raise BadValue("python alone starts no script: give python FILE or python -m MODULE, with the arguments.")


def _torchrun(words: list[str], *, module: str = "torch.distributed.run") -> Launch:
    return _of_torchrun(import_module(module).parse_args(words))


def _of_torchrun(args: Any) -> Launch:
    """Return what ``torch.distributed.run.run(args)`` would start."""
    from torch.distributed.run import parse_min_max_nnodes

    if not args.nproc_per_node.isdecimal():
        raise BadValue(f"--nproc-per-node {args.nproc_per_node} is what a machine has: give how many ranks that are.")
    words = [*([] if getattr(args, "use_env", True) else ["--local-rank=0"]), *args.training_script_args]
    command = _command(args.training_script, words, args.module)
    return Launch(command, parse_min_max_nnodes(args.nnodes)[1] * int(args.nproc_per_node))


def _accelerate(words: list[str]) -> Launch:
    if words[:1] != ["launch"]:
        raise BadValue("accelerate starts a script as accelerate launch FILE: give that, with the arguments.")
    return _accelerate_launch(words[1:])


def _accelerate_launch(words: list[str]) -> Launch:
    import torch
    from torch.distributed import run

    launch = _installed("accelerate.commands.launch")
    args = launch.launch_command_parser().parse_args(words)
    before = dict(os.environ)
    launches: list[Launch] = []

    def started(launch: Launch, environment: Mapping[str, str]) -> None:
        changed = {name: value for name, value in environment.items() if before.get(name) != value}
        launches.append(replace(launch, command=launch.command.within(changed)))

    class Alone:
        """A process in the place of the one that trains alone."""

        returncode = 0

        def __init__(self, words: list[str], env: dict[str, str]):
            started(Launch(_command(args.training_script, args.training_script_args, args.module)), env)

        def wait(self) -> None:
            """Return at once: the process of a launch that is read only has ended."""

    changes = [
        (subprocess, "Popen", Alone),
        (run, "run", lambda args: started(_of_torchrun(args), os.environ)),
        # The machine that is meant has the cards: accelerate asks, to find out whether it may use several.
        (torch.cuda, "is_available", lambda: True),
        (torch.cuda, "is_bf16_supported", lambda *args: True),
        (torch.cuda, "device_count", lambda: args.num_processes or 1),
        (launch, "check_cuda_p2p_ib_support", lambda: True),
    ]
    with Patches(lambda: changes):
        launch.launch_command(args)
    return launches[0]


def _deepspeed(words: list[str]) -> Launch:
    args = _installed("deepspeed.launcher.runner").parse_args(words)
    if args.num_gpus < 1:
        raise BadValue("deepspeed starts a rank for each GPU of a machine: give how many that are (--num_gpus N).")
    words = [*([] if args.no_local_rank else ["--local_rank=0"]), *args.user_args]
    return Launch(_command(args.user_script, words, args.module), max(args.num_nodes, 1) * args.num_gpus)


def _installed(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise BadValue(f"{name} is not installed here ({error}): install it, or write torchrun.") from None


def _command(script: str, words: Sequence[str], is_module: bool) -> Command:
    return Command.of_module(script, *words) if is_module else Command(script, *words)


_LAUNCHERS: dict[str, Callable[[list[str]], Launch]] = {
    "python": _python,
    "torchrun": _torchrun,
    "accelerate": _accelerate,
    "accelerate-launch": _accelerate_launch,
    "deepspeed": _deepspeed,
}
_MODULES: dict[str, Callable[[list[str]], Launch]] = {
    "torch.distributed.run": _torchrun,
    "torch.distributed.launch": partial(_torchrun, module="torch.distributed.launch"),
    "accelerate.commands.launch": _accelerate_launch,
    "deepspeed": _deepspeed,
}
