"""``python -m tests.notebooks.panels NOTEBOOK``: its panels at both ends of every control, stopped, interrupted."""

import _thread
import gc
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from memlab import Lab
from memlab.lab.choices import Choice, Doubling, OneOf, Switch
from memlab.lab.ranks import WORLD_SIZE
from tests.notebooks.cells import code_cells, needed, notebook_named, run

STEPS = 2
ENOUGH = 60  # seconds for a prediction


def panels(notebook: Path) -> list[Lab]:
    """The panels of a notebook; their cells run twice, as a learner may do."""
    cells = code_cells(notebook)
    making = [cell for cell in cells if "Lab(" in cell]
    space, _ = run([*needed(cells, making), *making])
    return [value for value in space.values() if isinstance(value, Lab)]


def ends(choice: Choice) -> list[Any]:
    """The values between which a learner can move a control, or all of a menu."""
    if isinstance(choice, Switch):
        return [False, True]
    if isinstance(choice, Doubling):
        return [choice.options[0], choice.options[-1]]
    return list(choice.options) if isinstance(choice, OneOf) else [choice.low, choice.high]


def live_bytes() -> int:
    """Bytes of all tensors that Python can reach."""
    gc.collect()
    tensors = (thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, torch.nn.Parameter))
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def exercise(lab: Lab) -> Iterator[str]:
    """Use a panel in every way that may break it; a line for each thing that is not as it should be."""
    session = lab.session
    steps, session.steps = session.steps, STEPS  # enough to see, for models that take long at one end
    start = dict(session.screen.settings)
    yield from complete(lab, start)
    ranks = WORLD_SIZE in session.choices  # then all else may be too large for a CPU
    if ranks:  # all once before bytes are counted: torch.distributed makes small tensors of its own and keeps them
        for choice in session.choices.values():
            yield from predicted(lab, choice)
        yield from interrupted(lab, start)
        stopped(lab)
    before = live_bytes()
    if ranks:
        yield from predicted(lab, next(iter(session.choices.values())))
    for name, choice in session.choices.items():
        for end in few(choice) if name == WORLD_SIZE else [] if ranks else ends(choice):
            if end != start[name]:  # that has run first
                yield from complete(lab, start | {name: end})
    session.steps = steps
    yield from interrupted(lab, start)
    lab.run(**start) if steps <= STEPS else stopped(lab)
    after = live_bytes()
    if after > before or (after < before and not ranks):  # of the meshes of ranks the newest few stay, large or small
        yield f"{after - before:+,} live bytes after all runs"


def complete(lab: Lab, settings: dict[str, Any]) -> Iterator[str]:
    """A run to its end."""
    trace = lab.run(**settings)
    if not trace.oom and len(trace.steps) != STEPS:
        yield f"{settings}: {trace!r} after {len(trace.steps)} steps"


def few(choice: Choice) -> list[int]:
    """As many ranks as any machine can run."""
    return [ranks for ranks in (1, 2) if not isinstance(choice, OneOf) or ranks in choice.options]


def predicted(lab: Lab, choice: Choice) -> Iterator[str]:
    """Move a control from end to end, and back to where it was: each time there must be a prediction."""
    session, start = lab.session, lab.session.screen.settings[choice.name]
    for end in [*(end for end in ends(choice) if end != start), start]:
        before, deadline = session.prediction, time.monotonic() + ENOUGH
        session.choose(choice.name, end)
        while session.prediction is before and time.monotonic() < deadline and not session.screen.note.alert:
            time.sleep(0.05)
        if session.prediction is before:
            yield f"{choice.name}={end!r}: no prediction: {session.screen.note.text}"


def interrupted(lab: Lab, settings: dict[str, Any]) -> Iterator[str]:
    """Ctrl-C in the middle of a run."""
    timer = threading.Timer(0.5, _thread.interrupt_main)
    timer.start()
    try:
        trace = lab.run(**settings)
    except KeyboardInterrupt:
        return
    timer.cancel()
    if len(trace.steps) < lab.session.steps:
        yield f"an interrupted run ended quietly: {trace!r}"


def stopped(lab: Lab) -> None:
    """Run and then Stop, as the buttons do."""
    job = lab.session.start()
    lab.stop()
    job.result()


def faults(notebook: Path) -> list[str]:
    """Return the faults of all panels of a notebook."""
    return [line for lab in panels(notebook) for line in exercise(lab)]


if __name__ == "__main__":
    print("\n".join(faults(notebook_named(sys.argv[1]))))
