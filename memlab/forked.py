"""``python -m memlab.forked MODULE ARGUMENT...``: as ``python -m MODULE``, but forked, where that can be done.

It asks the process that forks, ``memlab.kernels.nursery``, stands for what that has forked, and ends with it. Where
nobody forks, it becomes the process itself.
"""

import json
import os
import socket
import sys

ADDRESS = "MEMLAB_NURSERY"  # an environment variable: the socket's


def main(module: str, arguments: list[str]) -> None:
    """Have such a process forked and wait for its end, or be it."""
    if not _wait_for_end(module, arguments):
        os.execv(sys.executable, [sys.executable, "-m", module, *arguments])


def _wait_for_end(module: str, arguments: list[str]) -> bool:
    """Have the process that forks run the module and wait for its end; return False if there is no such process.

    When this process ends, however it does, the other one ends too.
    """
    try:
        folder, environment = os.getcwd(), dict(os.environ)
        request = {"module": module, "arguments": arguments, "folder": folder, "environment": environment}
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
    main(sys.argv[1], sys.argv[2:])
