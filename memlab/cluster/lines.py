"""Messages of the ranks to the process that started them: JSON, a line each, through a socket of this machine.

The socket also tells each side that the other is gone.
"""

import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

ADDRESS = "MEMLAB_CLUSTER"  # in a rank's environment: where to tell it, and a word that proves it may
GONE = "gone"  # the kind of the message that stands for the end of a connection
STACK = "stack"  # the kind of a line that is no JSON: faulthandler's


class Message(NamedTuple):
    """A message of a rank: its kind (``"step"``, ``"trace"``, ``"error"``, ...) and the content of this kind."""

    rank: int
    kind: str
    content: Mapping[str, Any]


class Listener:
    """The socket that ranks connect to. A thread reads each connection; :meth:`next` gives the messages in order."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._word = secrets.token_hex(16)
        self._connections: list[socket.socket] = []
        self._messages: SimpleQueue[Message] = SimpleQueue()
        threading.Thread(target=self._accept, name="memlab listener", daemon=True).start()

    @property
    def address(self) -> str:
        """For the ranks' environment."""
        return f"{self._server.getsockname()[1]} {self._word}"

    def next(self, seconds: float) -> Message | None:
        """The next message, None if none comes in so many seconds."""
        try:
            return self._messages.get(timeout=seconds)
        except Empty:
            return None

    def close(self) -> None:
        """Hang up. Ranks end when they notice."""
        _shut(self._server)
        for connection in self._connections:
            _shut(connection)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # closed
                return
            self._connections.append(connection)
            threading.Thread(target=self._listen, args=[connection], name="memlab rank", daemon=True).start()

    def _listen(self, connection: socket.socket) -> None:
        rank = None
        try:
            with connection, connection.makefile(encoding="utf-8", errors="replace") as lines:
                if next(lines, "").strip() != self._word:
                    return
                rank = int(next(lines))
                for line in lines:
                    self._messages.put(_message(rank, line))
        except (OSError, ValueError, StopIteration):  # it ended in the middle of a line, or was shut
            pass
        if rank is not None:
            self._messages.put(Message(rank, GONE, {}))


def _message(rank: int, line: str) -> Message:
    try:
        content = json.loads(line)
        return Message(rank, content.pop("kind"), content)
    except (ValueError, AttributeError, KeyError):
        return Message(rank, STACK, {"text": line.rstrip()})


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):  # the other side may be gone
        connection.shutdown(socket.SHUT_RDWR)  # or a thread that waits at it would wait on
    connection.close()


class Speaker:
    """A rank's side. Without anybody to tell it prints its lines, as ``torchrun`` by hand shows them.

    Args:
        rank: who speaks.
    """

    def __init__(self, rank: int):
        self._rank = rank
        self._socket: socket.socket | None = None
        if address := os.environ.get(ADDRESS):
            port, word = address.split()
            self._socket = socket.create_connection(("127.0.0.1", int(port)))
            self._socket.sendall(f"{word}\n{rank}\n".encode())
            threading.Thread(target=self._end_with_listener, daemon=True).start()

    def say(self, kind: str, **content: Any) -> None:
        """Tell something, with the time of day in seconds."""
        line = json.dumps({"kind": kind, "rank": self._rank, "time": time.time()} | content) + "\n"
        if self._socket is None:
            sys.stdout.write(line)
            sys.stdout.flush()
        else:
            self._socket.sendall(line.encode())

    def fileno(self) -> int:
        """The file descriptor that faulthandler writes to."""
        return 2 if self._socket is None else self._socket.fileno()

    def _end_with_listener(self) -> None:
        """A rank must not outlive the process that started it: when that is gone, so is this one."""
        assert self._socket is not None
        with suppress(OSError):
            while self._socket.recv(1):
                pass
        os._exit(1)
