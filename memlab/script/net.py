"""What a predicted script may not do at all, whichever way it tries: Python tells of it before it is done.

These are Python's audit events. A library that writes files in a language of its own is not seen here.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

from memlab.errors import Refused
from memlab.script.overlay import Overlay
from memlab.vgpu.cudnn import __name__ as CUDNN  # the process in which a prediction itself asks cuDNN

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FILES = ("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime", "os.setxattr")
_TWO_FILES = ("os.rename", "os.link", "os.symlink")
_PROGRAMS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile", "pty.spawn")
# With this typeshed_client asks a Python where its modules are. Refused that, jsonargparse would take no arguments of a
# class, without a word, and Lightning's LightningCLI stands on it.
_SEARCH_PATH = "import sys, json; print(json.dumps(sys.path))"
_HERE = ("localhost", "127.0.0.1", "::1", "", None)


class Net:
    """Refuses what would leave a trace outside of the overlay, and keeps what was refused.

    Attributes:
        refused: the sentences, in order.
    """

    def __init__(self, overlay: Overlay):
        self.refused: list[str] = []
        self._overlay = overlay
        self._checks: dict[str, Callable[..., None]] = {"open": self._open, "sqlite3.connect": self._file}
        self._checks |= dict.fromkeys(_FILES, self._file)
        self._checks |= dict.fromkeys(_TWO_FILES, self._two_files)
        self._checks |= dict.fromkeys(_PROGRAMS, self._program)
        self._checks |= {"socket.connect": self._address, "socket.sendto": self._address}
        self._checks |= {"socket.getaddrinfo": self._host, "socket.gethostbyname": self._host}

    def spread(self) -> None:
        """From now on, until the process ends."""
        sys.addaudithook(self._hear)

    def refuse(self, what: str, remedy: str) -> None:
        """Say no.

        Raises:
            Refused: always.
        """
        sentence = f"{what}: {remedy}"
        if sentence not in self.refused:
            self.refused.append(sentence)
        raise Refused(sentence)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        check = self._checks.get(event)
        if check is not None:
            check(*args)

    def _open(self, path: Any, mode: str | None, flags: int) -> None:
        if flags & _WRITING:
            self._file(path)

    def _file(self, path: Any, *args: Any) -> None:
        if path != ":memory:" and not self._overlay.holds(path):
            self.refuse(
                f"the script would have written {os.fsdecode(path)}",
                "a prediction writes nothing, so leave that out, or measure instead.",
            )

    def _two_files(self, source: Any, target: Any, *args: Any) -> None:
        self._file(target)

    def _program(self, program: Any, words: Any = (), *args: Any) -> None:
        words = [words] if isinstance(words, str | bytes) else list(words or [program])
        if CUDNN in words or words[1:] == ["-c", _SEARCH_PATH]:
            return
        self.refuse(
            f"the script would have started {' '.join(map(os.fsdecode, words))!r}",
            "a prediction starts no other process, so give it the script that trains itself.",
        )

    def _address(self, socket: Any, address: Any) -> None:
        if isinstance(address, tuple):
            self._host(address[0])

    def _host(self, host: Any, *args: Any) -> None:
        if host not in _HERE:
            self.refuse(
                f"the script needs the network ({os.fsdecode(host)})",
                "a prediction reaches none, so give it the path of data and models that are on this machine.",
            )
