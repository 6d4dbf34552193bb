"""Several training loops, one after the other, on the same ranks.

``python -m tests.cluster.schemes RANKS FOLDER RUN...``: starting processes takes seconds, so the ranks are forked, too.
A RUN is a Python literal, ``("pipeline", {"schedule": "gpipe"})``; of the first, the trace of rank 1 stands in
FOLDER/0-1.json.
"""

import ast
import importlib
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch.distributed as dist

from memlab.cluster.torchrun import launch
from memlab.devices import Cpu
from memlab.run import Run


def of_loop(settings):
    """Return the settings of a loop; one without sizes of its own is made narrower."""
    return settings if "sizes" in settings else {"width": 32} | settings


def rank(arguments):
    """Run all of them, as one of the ranks."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the launcher's own handler came with the fork
    folder, *runs = arguments
    dist.init_process_group("gloo")
    for number, (module, settings) in enumerate(map(ast.literal_eval, runs)):
        train = importlib.import_module(f"notebooks.ranks.{module}").train
        trace = Run(train, of_loop(settings), Cpu()).complete()
        trace = replace(trace, rank=dist.get_rank(), world_size=dist.get_world_size())
        Path(folder, f"{number}-{trace.rank}.json").write_text(trace.to_json())
        dist.barrier()
    dist.destroy_process_group()


def main(ranks, *arguments):
    launch(int(ranks), arguments[0], rank, "tests.cluster.schemes", list(arguments))


if __name__ == "__main__":
    if "RANK" in os.environ:
        rank(sys.argv[1:])
    else:
        main(*sys.argv[1:])
