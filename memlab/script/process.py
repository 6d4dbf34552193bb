"""The process in which a script runs: ``python -m memlab.script.process REQUEST``."""

import json
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from memlab.devices import Device, open_device
from memlab.errors import BadTrain, MemlabError, Refused, ScriptFailed
from memlab.script.child import INTERRUPTED, SNAPSHOT
from memlab.script.command import Command
from memlab.script.edits import Edits
from memlab.script.keywords import Keywords
from memlab.script.net import Net
from memlab.script.options import Option, follow_parsers, in_constants, of_constants
from memlab.script.overlay import Overlay
from memlab.script.script_run import ScriptRun
from memlab.trace import Trace
from memlab.vgpu.refusals import where

EVERY = 5.0  # seconds
GRACE = 20.0  # seconds that a script may go on after it was cut off
# Libraries that are told so look for what is on this machine, and wait for nobody.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_EVALUATE_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "WANDB_MODE": "disabled",
}
# What huggingface_hub 2.4 raises then; its own words send the reader to a connection that is there.
OFFLINE_ERRORS = ("OfflineModeIsEnabled", "LocalEntryNotFoundError")


def answer(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run the script, and say what came of it: a trace and the script's options, or an error."""
    script = Command(request["path"], *request["arguments"], module=request["module"])
    script.values = request["values"]
    refused: list[str] = []
    options = follow_parsers()
    try:
        device: Any = _device(request)
        run = ScriptRun(script, device, steps=request["steps"], budget=request["budget"], until=request["until"])
        if not device.computes:
            refused = _set_apart(folder)
        edits = Edits(request["edits"])
        keywords = Keywords(request["values"], edits)

        def found(trace: Trace) -> dict[str, Any]:
            if request["keeps_history"]:
                device.save_snapshot(folder / SNAPSHOT)
            known = [asdict(option) for option in _options(script, options, keywords)]
            told: dict[str, Any] = {"trace": trace.to_json(), "options": known, "edits": edits.lines}
            told |= {"fault": run.fault, "lacks_no_grad": run.lacks_no_grad, "varies": run.varies(trace)}
            return told | {"evaluates": run.has_failed_evaluating}

        telling = nullcontext() if device.computes else _telling(run)
        with edits.applied(), keywords.applied(), telling, _not_for_ever(run, lambda: _end(found(run.trace()), folder)):
            trace = run.complete()
        script.check_read(was_cut_off=run.cut_off.is_set())
        return found(trace)
    except BadTrain as error:
        return _error(_without_step(script, run, refused) if run.has_ended else error)
    except MemlabError as error:
        return _error(error)
    except Exception as error:
        told = [sentence for sentence in refused if sentence.rstrip(".") in str(error)]  # of a loop over mirrors
        return _error(Refused(told[0]) if told else _raised(script, error))


def _options(script: Command, parsed: list[Option], keywords: Keywords) -> list[Option]:
    """The options of a script that has run: of the command line that it reads, else of its source.

    Where the command line has no batch size, that of the source is one, too.
    """
    known = parsed
    if script.words.was_read and not parsed:
        known = of_constants(script.path, vars(sys.modules["__main__"]))
    constants = in_constants(script.path)
    if not _has_batch(known):
        known = [*known, *filter(lambda option: option.is_of_batch, constants)] if known else constants
    return known if _has_batch(known) else [*known, *keywords.options]


def _has_batch(options: list[Option]) -> bool:
    return any(option.is_of_batch and not option.is_of_evaluation for option in options)


def _device(request: dict[str, Any]) -> Device:
    if request["gpu"] is None:
        return open_device(request["device"])
    from memlab.vgpu.gpu import VirtualGpu

    world_size, global_rank = request["ranks"]
    options = {name: request[name] for name in ("is_endless", "keeps_history", "guesses", "chosen")}
    options |= {"world_size": world_size, "global_rank": global_rank, "on_compiling": _say_compiling}
    return VirtualGpu(request["gpu"], **options)


def _say_compiling() -> None:
    sys.stderr.write("memlab: PyTorch compiles the code, which may take a minute where it has not seen it before\n")


def _set_apart(folder: Path) -> list[str]:
    """Let this process write, start and reach nothing any more; the sentences with which it was refused."""
    os.environ.update(OFFLINE)
    sys.dont_write_bytecode = True
    overlay = Overlay(folder)
    overlay.install()
    net = Net(overlay)
    net.spread()
    return net.refused


def _telling(run: ScriptRun) -> AbstractContextManager[None]:
    """A context in which it is said every few seconds where the script is, which runs in this thread."""
    begun, thread = time.monotonic(), threading.get_ident()

    def tell(is_over: threading.Event) -> None:
        while not is_over.wait(EVERY):
            line = where(frame=sys._current_frames()[thread])
            sys.stderr.write(f"memlab: {run.progress}, at {line}, {time.monotonic() - begun:.0f} s\n")

    return _beside(tell)


def _not_for_ever(run: ScriptRun, end: Callable[[], None]) -> AbstractContextManager[None]:
    """A context in which a script has some seconds left once it was cut off; then the process ends, by ``end``."""

    def wait(is_over: threading.Event) -> None:
        run.cut_off.wait()
        if not is_over.wait(GRACE):
            end()

    return _beside(wait)


@contextmanager
def _beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """A context beside which a thread works, which is given an event that says when the context is over."""
    is_over = threading.Event()
    threading.Thread(target=work, args=(is_over,), daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def _end(answer: dict[str, Any], folder: Path) -> None:
    """End this process, with an answer; what the script has left to be done at its end is not done."""
    (folder / "answer.json").write_text(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)


def _without_step(script: Command, run: ScriptRun, refused: list[str]) -> BadTrain:
    code = run.exit_code
    ended = "ran to its end" if code is None else f"called sys.exit({code!r})"
    remedy = "give the script that trains, with the arguments (behind --) with which it does"
    if refused:
        remedy = f"it was refused something, {refused[-1]}"
    return BadTrain(f"{script.__name__} {ended} before an optimizer of PyTorch's made a step: {remedy.rstrip('.')}.")


def _raised(script: Command, error: Exception) -> MemlabError:
    """Return the error to report for one that the script raised: the refusal behind it, or ``ScriptFailed``."""
    refusal = _refusal_behind(error, lambda behind: behind.__cause__ or behind.__context__)
    if refusal and (str(refusal) in str(error) or _refusal_behind(error, lambda behind: behind.__cause__)):
        return refusal
    sys.stderr.write("".join(_shown(error, script)))
    if wanted := _wanted_of_hub(error):
        return Refused(
            f"the script needs {wanted} of Hugging Face's hub, at {where(error)}, and it is not on this machine: a "
            "prediction reaches no network, so download it before, or give the path of what is here."
        )
    first = str(error).strip().partition("\n")[0] or _line(error)  # an assertion mostly says nothing
    if "environment variable RANK expected" in first:
        first = "it is written for torchrun, so say how many ranks there are (--world-size)."
    if isinstance(error, EOFError) and "reading a line" in first:
        first = "nobody is there to type: give what it asks for on its command line, or in a file."
    dealt_with = f" (while it dealt with a refusal: {str(refusal).rstrip('.')})" if refusal else ""
    sentence = f"{script.__name__} raised {type(error).__name__} at {where(error)}: {first}{dealt_with}"
    guesses = getattr(error, "__notes__", [])  # see VirtualGpu.running
    return ScriptFailed(" ".join([f"{sentence.rstrip('.')}.", *guesses]) if guesses else sentence)


def _wanted_of_hub(error: BaseException | None) -> str:
    """The request of Hugging Face's hub that is why it failed, or nothing."""
    if type(error) is ConnectionError and (match := re.search(r" '([^']+)' on the Hub \(OfflineMode", str(error))):
        return match[1]  # datasets 5.2 does not say what is behind it
    while error is not None and type(error).__name__ not in OFFLINE_ERRORS:
        error = error.__cause__ or error.__context__
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__)] if error else []
    names = [frame["repo_id"] for frame in frames if isinstance(frame.get("repo_id"), str)]
    return names[-1] if names else "something" if error else ""


def _line(error: Exception) -> str:
    """The line of source that raised it."""
    return traceback.extract_tb(error.__traceback__)[-1].line or ""


def _refusal_behind(
    error: BaseException | None, behind: Callable[[BaseException], BaseException | None]
) -> Refused | None:
    while error is not None and not isinstance(error, Refused):
        error = behind(error)
    return error


def _shown(error: Exception, script: Command) -> list[str]:
    """The traceback, from the script's own first line on."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != str(script.path):
        frame = frame.tb_next
    return traceback.format_exception(type(error), error, frame or error.__traceback__)


def _error(error: MemlabError) -> dict[str, Any]:
    return {"error": type(error).__name__, "message": str(error)}


def main() -> None:
    """Answer the request of this process's command line with a file in the folder that it names."""
    request = json.loads(sys.argv[1])
    folder = Path(request["folder"])
    try:
        _end(answer(request, folder), folder)
    except KeyboardInterrupt:  # the process that asks has had it too
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
