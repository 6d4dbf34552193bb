"""Jupyter's kernels, started the quick way, for as long as Jupyter runs in this process."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memlab.kernels.launch import ADDRESS

PATH = "JUPYTER_PATH"
CARD = Path("/dev/nvidiactl")  # what has talked to CUDA cannot be forked


@contextmanager
def shared_kernels() -> Iterator[None]:
    """A context in which Jupyter's ``python3`` kernels are forked from one process, where that can be done: on Linux
    without a GPU. Thirty of them then take a third of the memory, and each begins at once.
    """
    if sys.platform != "linux" or CARD.exists():
        yield
        return
    before = os.environ.get(PATH)
    with tempfile.TemporaryDirectory(prefix="memlab-") as folder, socket.socket(socket.AF_UNIX) as listener:
        address = Path(folder, "socket")
        listener.bind(str(address))
        listener.listen(100)
        _write_spec(Path(folder, "kernels", "python3"), address)
        os.environ[PATH] = os.pathsep.join(filter(None, [folder, before]))
        command = [sys.executable, "-m", "memlab.kernels.nursery", str(os.getpid())]
        nursery = subprocess.Popen(command, stdin=listener.fileno(), start_new_session=True)
        try:
            yield
        finally:
            nursery.kill()
            nursery.wait()
            os.environ.pop(PATH)
            if before is not None:
                os.environ[PATH] = before


def _write_spec(folder: Path, address: Path) -> None:
    folder.mkdir(parents=True)
    spec = {
        "argv": [sys.executable, "-m", "memlab.kernels.launch", "{connection_file}"],
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {"debugger": True},
        "env": {ADDRESS: str(address)},
    }
    (folder / "kernel.json").write_text(json.dumps(spec))
