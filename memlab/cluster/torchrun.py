"""``python -m memlab.cluster.torchrun RANKS LOGS ARGUMENT...``: the launcher of ``torchrun``, whose ranks are forked.

``torchrun`` itself starts a program as often as there are ranks, and each loads PyTorch, which takes longer than the
steps of a small model. Forked from a process that has loaded it, ranks begin at once. Only Linux forks safely, and not
where there is a card: PyTorch asks CUDA about it, and what has done that cannot be forked, even if its ranks train on
the CPU. Elsewhere this is ``torchrun --standalone``.
"""

import signal
import sys
import uuid
from collections.abc import Callable

import torch
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from memlab.cluster import rank_process


def main(ranks: int, logs: str, arguments: list[str]) -> None:
    """Start so many ranks of this machine with these arguments of ``memlab.cluster.rank_process``, and wait for them.

    Raises:
        ChildFailedError: of the ranks, saying which failed and how.
    """
    launch(ranks, logs, _rank, "memlab.cluster.rank_process", arguments)


def launch(ranks: int, logs: str, rank: Callable[[list[str]], None], module: str, arguments: list[str]) -> None:
    """Start so many ranks of this machine: each calls ``rank``, or is ``python -m MODULE`` where they cannot be forked.

    Raises:
        ChildFailedError: of the ranks, saying which failed and how.
    """
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        run_id=str(uuid.uuid4()),  # as torchrun --standalone
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        start_method="fork",
        logs_specs=DefaultLogsSpecs(log_dir=logs),
    )
    if sys.platform == "linux" and not torch.cuda.is_available():
        torch.optim.SGD([torch.ones(1)])  # loads PyTorch's compiler, as any optimizer does
        elastic_launch(config, rank)(arguments)
    else:
        elastic_launch(config, sys.executable)("-m", module, *arguments)


def _rank(arguments: list[str]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the launcher's own handler came with the fork
    if rank_process.main(arguments):
        # It has said why. It stays until it is ended, for the launcher looks at forked ranks now and then, and of two
        # that have ended meanwhile it names any: here the one that was killed, by which this one failed.
        while True:
            signal.pause()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
