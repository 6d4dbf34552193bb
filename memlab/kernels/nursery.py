"""``python -m memlab.kernels.nursery``: loads PyTorch and memlab once, and forks a process for each that is asked for.

A kernel of Jupyter's, say, or the launcher of ranks: whatever ``python -m MODULE ARGUMENT...`` would start. Its
standard input is the socket that it listens at. It ends when the process that started it has.
"""

import io
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

INLINE = "module://matplotlib_inline.backend_inline"  # as ipykernel sets it, which here comes after matplotlib


def main(listener: socket.socket, parent: int) -> None:
    """Fork processes for as long as the process ``parent`` lives."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is for Jupyter
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for another's end here
    can_fork = _load()
    loaded = changed_at()
    while os.getppid() == parent:
        ready, _, _ = select.select([listener], [], [], 1.0)
        if ready:
            line, _ = listener.accept()
            # Who has installed or edited something begins anew to have it: then it is a process of the usual kind.
            if can_fork and changed_at(loaded) == loaded and os.fork() == 0:
                listener.close()
                _become(line)
                return
            line.close()


def _load() -> bool:
    """Load what these processes share, all of it before there is a thread: only the thread that forks lives on.

    Whether they can be forked then: where there is a card, PyTorch's compiler has asked CUDA for it.
    """
    os.environ.setdefault("MPLBACKEND", INLINE)
    os.environ["JPY_PARENT_PID"] = "1"  # ipykernel reads it now: a kernel need not look out for its parent's end
    import ipykernel.kernelapp  # noqa: F401
    import torch
    import torch.distributed.optim  # a third of a second, for it compiles scripts: for ranks that use ZeRO

    import memlab.drawings
    import memlab.lab.panel
    from memlab.garbage import freeze_for_good
    from memlab.run import predict

    # A prediction and a picture load, and keep, what all others use. Neither starts a thread, and random numbers stay.
    predict(_train, gpu="T4")
    memlab.drawings.bill("00").savefig(io.BytesIO())
    freeze_for_good()
    return not torch.cuda.is_available()


def _train(device: Any) -> Iterator[Any]:
    """Train a small GPT, in the operators that the notebooks' GPTs use."""
    import torch

    from memlab.nets import GPT

    model = GPT(depth=1, width=16, heads=2, context=16, vocabulary=16).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.zeros(1, 16, dtype=torch.int64).to(device)
    while True:
        loss = model(tokens, tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def changed_at(files: Iterable[str] | None = None) -> dict[str, int]:
    """When each file was changed, in nanoseconds; those of all modules that are loaded, where none are given."""
    if files is None:
        files = filter(None, (getattr(module, "__file__", None) for module in list(sys.modules.values())))
    return {file: os.stat(file).st_mtime_ns if os.path.exists(file) else 0 for file in files}


def _become(line: socket.socket) -> None:
    """Be the process that was asked for, until it ends."""
    import numpy as np
    import torch

    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request = _receive(line)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[:0] = [request["folder"], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    if (threads := os.environ.get("OMP_NUM_THREADS", "")).isdecimal():  # PyTorch reads it when it is loaded
        torch.set_num_threads(int(threads))
    np.random.seed()
    threading.Thread(target=_end_with, args=(line,), name="memlab process", daemon=True).start()
    line.sendall(b"k")
    sys.argv[1:] = request["arguments"]
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


def _receive(line: socket.socket) -> dict[str, Any]:
    _, descriptors, _, _ = socket.recv_fds(line, 1, 3)
    for standard, descriptor in enumerate(descriptors):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    with line.makefile("rb") as lines:
        request: dict[str, Any] = json.loads(lines.readline())
    return request


def _end_with(line: socket.socket) -> None:
    """When the process that stands for this one is killed, so is this one, and what it started."""
    line.recv(1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of whoever started it
    main(socket.socket(fileno=os.dup(0)), int(sys.argv[1]))
