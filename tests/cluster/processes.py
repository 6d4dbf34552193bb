"""The remains of a run: its processes, found by their environment, and the ports that they listened at."""

import os
import socket
from contextlib import suppress
from pathlib import Path

LISTENS = "0A"  # the state of a socket in /proc/net/tcp


def mark(monkeypatch, word):
    """Let every process that is started from now on carry a word."""
    monkeypatch.setenv("MEMLAB_TEST_RUN", word)


def marked(word):
    """The processes that carry it and have not ended, but for this one."""
    wanted = f"MEMLAB_TEST_RUN={word}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ends just now
            if wanted in (process / "environ").read_bytes().split(b"\0") and int(process.name) != os.getpid():
                found.append(int(process.name))
    return found


def ports(processes):
    """Return the ports at which these processes listen."""
    inodes = set()
    for process in processes:
        with suppress(OSError):
            inodes |= {os.readlink(file) for file in Path(f"/proc/{process}/fd").iterdir()}
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            (
                _,
                local,
                _,
                state,
                *_,
            ) = line.split()
            if state == LISTENS and f"socket:[{line.split()[9]}]" in inodes:
                found.add(int(local.rpartition(":")[2], 16))
    return found


def in_use(port):
    """Return True if a process listens at the port."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
