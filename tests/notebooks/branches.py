"""Run cells as they are, and with changes, one by one: what stands before the first changed cell runs once for all.

Each change runs on in a process of its own, forked where its first cell comes. So no change sees what another did.
"""

import multiprocessing
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tests.notebooks.cells import changed, run

PATIENCE = 300  # seconds for the cells after a change
# What comes of running cells in a namespace.
Outcome = Callable[[Sequence[str], dict[str, Any]], str]


def branches(
    cells: Sequence[str], cases: Sequence[dict[str, str]], outcome: Outcome, *, unchanged: str = ""
) -> dict[str, str]:
    """Return the outcome of the cells after each of the changes, by ``why``; and of the cells ``unchanged``, if named.

    Raises:
        ValueError: what is to be replaced is not there exactly once.
        EOFError: a process has ended without telling.
        TimeoutError: one has neither ended nor told.
    """
    torch.set_num_threads(1)  # a fork has none of OpenMP's other threads and would wait for them for ever
    after = {case["why"]: changed(cells, case["replace"], case["with"]) for case in cases}
    pairs = {why: enumerate(zip(cells, others, strict=True)) for why, others in after.items()}
    first = {why: next(number for number, (cell, other) in pairs[why] if cell != other) for why in after}
    space: dict[str, Any] = {}
    found, begun = {}, 0
    for why in sorted(after, key=first.__getitem__):
        run(cells[begun : first[why]], space)
        begun = first[why]
        found[why] = _forked(outcome, after[why][begun:], space)
        print(f"{len(found)} of {len(after)}: {why}", file=sys.stderr, flush=True)  # all of them may take minutes
    told = {unchanged: outcome(cells[begun:], space)} if unchanged else {}
    return told | {why: found[why] for why in after}


def _forked(outcome: Outcome, cells: Sequence[str], space: dict[str, Any]) -> str:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=lambda: theirs.send(outcome(cells, space)))
    process.start()
    theirs.close()  # or the end of the process would not end the wait
    if not ours.poll(PATIENCE):  # a thread of gloo may wait for Python, while Python waits for that thread to end
        process.kill()
        raise TimeoutError(f"the changed cells said nothing in {PATIENCE} s")
    said: str = ours.recv()
    process.join()
    return said
