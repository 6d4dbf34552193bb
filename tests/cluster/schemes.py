"""Several training loops, one after the other, on the same ranks: ``torchrun -m tests.cluster.schemes FOLDER RUN...``

Starting processes takes seconds. A RUN is a Python literal, ``("pipeline", {"schedule": "gpipe"})``; of the first, the
trace of rank 1 stands in FOLDER/0-1.json.
"""

import ast
import importlib
import sys
from dataclasses import replace
from pathlib import Path

import torch.distributed as dist

from memlab.devices import Cpu
from memlab.run import Run


def of_loop(settings):
    """Return the settings of a loop; one without sizes of its own is made narrower."""
    return settings if "sizes" in settings else {"width": 32} | settings


def main(folder, *runs):
    dist.init_process_group("gloo")
    for number, (module, settings) in enumerate(map(ast.literal_eval, runs)):
        train = importlib.import_module(f"notebooks.ranks.{module}").train
        trace = Run(train, of_loop(settings), Cpu()).complete()
        trace = replace(trace, rank=dist.get_rank(), world_size=dist.get_world_size())
        Path(folder, f"{number}-{trace.rank}.json").write_text(trace.to_json())
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
