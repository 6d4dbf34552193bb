"""PyTorch's threads on a CPU: how they wait for each other."""

import functools
import os
import threading

import torch


def let_waiting_threads_sleep() -> None:
    """From now on, a thread of PyTorch's that waits for the others sleeps instead of holding its core for milliseconds.

    A thread that holds a core keeps it from the very thread that it waits for, as soon as another program wants one
    too: a step of 40 ms then takes a second. How many threads compute does not change, and so no number does. Where the
    environment says how threads wait, nothing is changed.
    """
    if torch.get_num_threads() > 1 and "OMP_WAIT_POLICY" not in os.environ:
        _start_idle_team()


@functools.cache
def _start_idle_team() -> None:
    # libgomp, which PyTorch's builds for Linux use, lets a thread spin unless the process has more of its threads than
    # cores (do_spin in config/linux/wait.h). A second team makes them more, though it never has anything to do.
    has_team = threading.Event()
    threading.Thread(target=_keep_a_team, args=(has_team,), name="memlab idle team", daemon=True).start()
    has_team.wait()  # a process that ends while this thread is in PyTorch's code is aborted


def _keep_a_team(has_team: threading.Event) -> None:
    torch.zeros(2**20)  # enough for PyTorch to share it out among a team, which lives as long as this thread
    has_team.set()
    threading.Event().wait()
