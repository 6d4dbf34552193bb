"""Jupyter's kernels, and the ranks that they start, begun the quick way for as long as Jupyter runs in this process."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memlab.forked import ADDRESS

PATH = "JUPYTER_PATH"
CARD = Path("/dev/nvidiactl")  # what has talked to CUDA cannot be forked


@contextmanager
def shared_processes() -> Iterator[None]:
    """A context in which Jupyter's ``python3`` kernels are forked from one process, where that can be done: on Linux
    without a GPU. Thirty of them then take a third of the memory, and each begins at once; so do the ranks of a run.
    """
    if sys.platform != "linux" or CARD.exists():
        yield
        return
    with tempfile.TemporaryDirectory(prefix="memlab-") as folder, socket.socket(socket.AF_UNIX) as listener:
        address = Path(folder, "socket")
        listener.bind(str(address))
        listener.listen(100)
        _write_spec(Path(folder, "kernels", "python3"))
        command = [sys.executable, "-m", "memlab.kernels.nursery", str(os.getpid())]
        nursery = subprocess.Popen(command, stdin=listener.fileno(), start_new_session=True)
        path = os.pathsep.join(filter(None, [folder, os.environ.get(PATH)]))
        try:
            with environment({PATH: path, ADDRESS: str(address)}):
                yield
        finally:
            nursery.kill()
            nursery.wait()


@contextmanager
def environment(changes: dict[str, str]) -> Iterator[None]:
    """A context in which these variables of the environment have these values."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _write_spec(folder: Path) -> None:
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "memlab.forked", "ipykernel_launcher"]
    spec = {
        "argv": [*command, "-f", "{connection_file}", "--log-level=ERROR"],  # warnings are not the reader's business
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "interrupt_mode": "message",
        "metadata": {"debugger": True},
    }
    (folder / "kernel.json").write_text(json.dumps(spec))
