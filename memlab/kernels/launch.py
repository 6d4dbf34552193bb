"""``python -m memlab.kernels.launch FILE``: what Jupyter takes for the kernel. It asks for one and ends with it.

Where the process that forks kernels is gone, it becomes a kernel of the usual kind.
"""

import json
import os
import socket
import sys

ADDRESS = "MEMLAB_KERNELS"  # an environment variable: the socket's


def main(file: str) -> None:
    """Be a kernel with this connection file, or wait for one."""
    if not _wait_for_kernel(file):
        os.execv(sys.executable, [sys.executable, "-m", "ipykernel_launcher", "-f", file])


def _wait_for_kernel(file: str) -> bool:
    """Whether there was one. That this process ends, however it does, is the kernel's end."""
    request = {"file": file, "folder": os.getcwd(), "environment": dict(os.environ)}
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(os.environ[ADDRESS])
            socket.send_fds(line, [b"\0"], [0, 1, 2])
            line.sendall(json.dumps(request).encode() + b"\n")
            begun = line.recv(1)
            line.recv(1)  # nothing comes but the end
    except (OSError, KeyError):
        return False
    return begun != b""


if __name__ == "__main__":
    main(sys.argv[1])
