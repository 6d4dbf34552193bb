"""Asks a process of its own what a script takes."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memlab import errors
from memlab.errors import ScriptFailed
from memlab.files import write_atomically
from memlab.script.command import Command
from memlab.script.options import Option
from memlab.trace import Trace

INTERRUPTED = 130  # the status of a process that Ctrl-C has ended, as a shell has it
SNAPSHOT = "snapshot.pickle"  # in the folder of the process
# What a script may be predicted until, and what it has done then.
MILESTONES = {
    "evaluation": "called its model in eval mode without gradients",
    "saved": "called torch.save, safetensors' or torch.distributed.checkpoint's",
}


@dataclass(frozen=True)
class Answer:
    """A run's outcome.

    Attributes:
        trace: of it.
        options: those that the script has, with the values that they had.
        edits: what was changed in it, as lines for its source.
        fault: a sentence on what it keeps though it has no use for it; ``""`` for nothing.
        lacks_no_grad: whether that is what an evaluation keeps for a backward.
        evaluates: whether memory ran out in an evaluation.
        varies: whether the steps of the training differ, so that another batch may take more.
    """

    trace: Trace
    options: tuple[Option, ...] = ()
    edits: tuple[str, ...] = ()
    fault: str = ""
    lacks_no_grad: bool = False
    evaluates: bool = False
    varies: bool = False


def ask(
    script: Command,
    *,
    steps: int,
    gpu: str | None = None,
    ranks: tuple[int | None, int] = (None, 0),
    device: str | None = None,
    budget: str | int | None = None,
    is_endless: bool = False,
    is_quiet: bool = False,
    snapshot: str | Path | None = None,
    until: str | None = None,
    edits: Sequence[str] = (),
    guesses: Mapping[str, float] | None = None,
    chosen: float | str | None = None,
) -> Answer:
    """Run a script in a new process: predicted, where a card is named, else measured. Of so many ``ranks``, one.

    What it prints comes out on this process's stderr, unless ``is_quiet``. ``is_endless``: on a card with the same
    kernels and room for everything. ``snapshot``: a file, as for :func:`memlab.predict`. ``until``: see
    :class:`memlab.script.script_run.ScriptRun`; ``edits``: :mod:`memlab.script.edits`; ``guesses`` and
    ``chosen``: as for :class:`memlab.vgpu.gpu.VirtualGpu`. When this returns, the process is gone and so are the files
    that a predicted script has written.

    Raises:
        MemlabError: what came in the way, see :meth:`memlab.script.Script.predict`.
        KeyboardInterrupt: Ctrl-C has ended that process, too.
    """
    request: dict[str, Any] = {
        "path": str(script.path),
        "arguments": script.arguments,
        "module": script.module,
        "steps": steps,
    }
    request |= {"gpu": gpu, "ranks": ranks, "device": device, "budget": budget, "is_endless": is_endless}
    request |= {"keeps_history": snapshot is not None, "until": until, "edits": edits, "guesses": guesses}
    request |= {"chosen": chosen, "values": script.values}
    with tempfile.TemporaryDirectory(prefix="memlab-") as folder:
        status = _run(request | {"folder": folder}, script.environment, Path(folder), is_quiet)
        if status in (INTERRUPTED, -signal.SIGINT):
            raise KeyboardInterrupt
        file = Path(folder, "answer.json")
        if not file.is_file():
            raise ScriptFailed(f"{script.__name__} ended its process (status {status}) before its steps were made.")
        answer = json.loads(file.read_text())
        if "error" in answer:
            raise getattr(errors, answer["error"])(answer["message"])
        if snapshot is not None:
            write_atomically(snapshot, Path(folder, SNAPSHOT).read_bytes())
    options = tuple(Option(**option | {"choices": tuple(option["choices"])}) for option in answer["options"])
    told = Trace.from_json(answer["trace"]), options, tuple(answer["edits"])
    return Answer(*told, **{name: answer[name] for name in ("fault", "lacks_no_grad", "evaluates", "varies")})


def _run(request: dict[str, Any], variables: dict[str, str], folder: Path, is_quiet: bool) -> int:
    environment = os.environ | variables
    if request["gpu"] is not None:
        environment |= dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    out: int = subprocess.DEVNULL if is_quiet else 2
    # -P: a file beside the script is not to be taken for one of Python's own before the script runs.
    command = [sys.executable, "-P", "-m", "memlab.script.process", json.dumps(request)]
    return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out).returncode
