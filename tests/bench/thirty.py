"""``python -m tests.bench.thirty``: thirty learners on one server: their memory, and how soon a slider answers.

Each kernel runs the cells of notebook 00 up to its lab, and moves the slider. Then ten of them train while all others
move theirs. Then they are used as in an hour: everybody tries other settings and cards, keeps and saves some; ten train
again and again; one goes on for longer. Memory is PSS: what a process has alone, and its share of what it has with
others, so that it adds up.
"""

import os
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import nbformat
from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

from memlab.kernels.shared import shared_processes
from memlab.shipped import shipped_folder
from memlab.units import MIB

KERNELS, TRAINING, USUAL = 30, 10, 3
MOVES = 3
TRIED, TRIED_BY_ONE, RUNS = 10, 150, 3  # as a compressed hour
SOON = 900

# Moves the slider like a hand that waits for the exact picture, and tells the seconds of each move.
MOVE = """
import time
def moved(value):
    begun = time.perf_counter()
    lab.session.choose("batch_size", value)
    while lab.session.prediction is None or lab.session.prediction.settings["batch_size"] != value:
        time.sleep(0.005)
    return time.perf_counter() - begun
print(*(moved(value) for value in {values}))
"""
# Tries so many settings and cards that were not seen before, and takes some of them away.
TRY = """
import itertools, random, time
from memlab.vgpu import CARDS
if "untried" not in globals():
    untried = list(itertools.product(range(1, 65), CARDS))
    random.Random({seed}).shuffle(untried)
def shown():
    found = lab.session.prediction
    return found and (found.settings["batch_size"], found.device)
for place in range({count}):
    value, card = untried.pop()
    lab._card_menu.value = card
    lab._controls["batch_size"].value = value
    while shown() != (value, card):
        time.sleep(0.005)
    if place % 10 == 0:
        lab.session.screen.keep()
        lab._small_menu._save()
"""
TRAIN = "lab.session.steps = 10**6; job = lab.session.start()"
STOP = "lab.stop(); job.result(); lab.session.steps = 40"


def cells() -> list[str]:
    """The code of notebook 00 up to its lab, which is called ``lab``."""
    notebook = nbformat.read(shipped_folder() / "00_start_here.ipynb", as_version=4)
    found: list[str] = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            found.append(cell.source)
            if "Lab(" in cell.source and "import" not in cell.source:
                return found
    raise LookupError("notebook 00 has no lab")


@contextmanager
def kernel() -> Iterator[BlockingKernelClient]:
    """A kernel, ready."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(shipped_folder()))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=SOON)
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def run(client: BlockingKernelClient, code: str) -> str:
    """Return what the code prints."""
    told: list[str] = []

    def hear(message: dict) -> None:
        if message["msg_type"] == "error":
            raise RuntimeError(message["content"]["evalue"])
        if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
            told.append(message["content"]["text"])

    client.execute_interactive(code, timeout=SOON, output_hook=hear)
    return "".join(told)


def pss() -> tuple[int, int]:
    """Bytes of all processes below this one, and how many they are."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    below = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in below} - below:
        below |= more
    below.remove(os.getpid())
    return sum(map(_pss_of, below)), len(below)


def _pss_of(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def memory(kernels: int) -> str:
    """All of them together, and each."""
    total, processes = pss()
    return f"{total / MIB:,.0f} MiB, {total / MIB / kernels:.0f} a kernel ({processes} processes)"


def times(answers: list[str]) -> str:
    """Of all moves."""
    seconds = sorted(float(second) for answer in answers for second in answer.split())
    return f"median {statistics.median(seconds):.2f} s, nine in ten below {seconds[len(seconds) * 9 // 10]:.2f} s"


def prepare(client: BlockingKernelClient) -> str:
    """Up to the lab, and the first moves."""
    for source in cells():
        run(client, source)
    return move(client, 2)


def move(client: BlockingKernelClient, first: int) -> str:
    """Some moves to values that were not seen before."""
    return run(client, MOVE.format(values=[first + n for n in range(MOVES)]))


def try_out(client: BlockingKernelClient, seed: int, count: int = TRIED) -> None:
    """So many other settings."""
    run(client, TRY.format(seed=seed, count=count))


def used(clients: list[BlockingKernelClient], threads: ThreadPoolExecutor) -> Iterator[tuple[str, str, str]]:
    """The same rows, after an hour or so."""
    for client in clients[:TRAINING]:
        run(client, STOP)
    begun = time.perf_counter()
    list(threads.map(try_out, clients, range(KERNELS)))
    yield f"{TRIED} other settings in each, after", "", f"{time.perf_counter() - begun:.0f} s"
    list(threads.map(run, clients[:TRAINING], [f"for _ in range({RUNS}): lab.run()"] * TRAINING))
    yield f"{KERNELS} kernels then, {RUNS} runs in ten of them", "6,000 MiB", memory(KERNELS)
    before, _ = pss()
    try_out(clients[0], 0, TRIED_BY_ONE)
    yield f"one of them after {TRIED_BY_ONE} more", "", f"{(pss()[0] - before) / MIB:+.0f} MiB"
    yield "one slider then, nobody trains", "", times([run(clients[1], MOVE.format(values=[31, 33, 35]))])


def figures() -> Iterator[tuple[str, str, str]]:
    """Rows of (what, reach, figure)."""
    with ExitStack() as several:
        for _ in range(USUAL):
            prepare(several.enter_context(kernel()))
        yield f"{USUAL} kernels of the usual kind, a lab shown", "", memory(USUAL)
    with shared_processes(), ExitStack() as several, ThreadPoolExecutor(KERNELS) as threads:
        begun = time.perf_counter()
        clients = [several.enter_context(kernel()) for _ in range(KERNELS)]
        yield f"{KERNELS} kernels have begun, after", "", f"{time.perf_counter() - begun:.1f} s"
        yield f"{KERNELS} at once, to the lab and {MOVES} moves", "", times(list(threads.map(prepare, clients)))
        yield f"{KERNELS} kernels with a lab shown", "6,000 MiB", memory(KERNELS)
        for client in clients[:TRAINING]:
            run(client, TRAIN)
        moving = clients[TRAINING:]
        yield "one slider while ten train", "", times([move(moving[0], 11)])
        yield f"{len(moving)} sliders at once while ten train", "", times(list(threads.map(move, moving, [21] * 20)))
        yield f"{KERNELS} kernels, ten of them training", "6,000 MiB", memory(KERNELS)
        yield from used(clients, threads)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()}")
    for row in figures():
        print("{:<50} {:<10} {}".format(*row))
