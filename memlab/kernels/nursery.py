"""``python -m memlab.kernels.nursery``: loads PyTorch and memlab once, and forks a kernel for each that is asked for.

Its standard input is the socket that it listens at. It ends when the process that started it has.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterable
from typing import Any

INLINE = "module://matplotlib_inline.backend_inline"  # as ipykernel sets it, which here comes after matplotlib


def main(listener: socket.socket, parent: int) -> None:
    """Fork kernels for as long as the process ``parent`` lives."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is for Jupyter
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a kernel's end here
    _load()
    loaded = changed_at()
    while os.getppid() == parent:
        ready, _, _ = select.select([listener], [], [], 1.0)
        if ready:
            line, _ = listener.accept()
            # Who has installed or edited something begins anew to have it: then the kernel is one of the usual kind.
            if changed_at(loaded) == loaded and os.fork() == 0:
                listener.close()
                _become_kernel(line)
                return
            line.close()


def _load() -> None:
    """What kernels have in common, all of it before there is a thread: only the thread that forks lives on."""
    os.environ.setdefault("MPLBACKEND", INLINE)
    import ipykernel.kernelapp
    import torch

    import memlab.lab
    import memlab.plots
    import memlab.vgpu.gpu

    torch.optim.SGD([torch.ones(1)])  # loads PyTorch's compiler, as any optimizer does
    memlab.vgpu.gpu.VirtualGpu("T4")
    del ipykernel
    gc.collect()
    gc.freeze()  # the collector writes into what it looks at, and then it is shared no more


def changed_at(files: Iterable[str] | None = None) -> dict[str, int]:
    """When each file was changed, in nanoseconds; those of all modules that are loaded, where none are given."""
    if files is None:
        files = filter(None, (getattr(module, "__file__", None) for module in list(sys.modules.values())))
    return {file: os.stat(file).st_mtime_ns if os.path.exists(file) else 0 for file in files}


def _become_kernel(line: socket.socket) -> None:
    """Be the kernel that was asked for, until it ends."""
    import ipykernel.kernelapp
    import numpy as np

    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request = _receive(line)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    np.random.seed()
    threading.Thread(target=_end_with, args=(line,), name="memlab kernel", daemon=True).start()
    line.sendall(b"k")
    # 1: it has a parent, whose end it need not look out for.
    ipykernel.kernelapp.launch_new_instance(argv=["-f", request["file"], "--IPKernelApp.parent_handle=1"])


def _receive(line: socket.socket) -> dict[str, Any]:
    _, descriptors, _, _ = socket.recv_fds(line, 1, 3)
    for standard, descriptor in enumerate(descriptors):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    with line.makefile("rb") as lines:
        request: dict[str, Any] = json.loads(lines.readline())
    return request


def _end_with(line: socket.socket) -> None:
    """When the process that Jupyter takes for the kernel is killed, so is this one, and what it started."""
    line.recv(1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of whoever started it
    main(socket.socket(fileno=os.dup(0)), int(sys.argv[1]))
