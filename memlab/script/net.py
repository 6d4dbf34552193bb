"""Actions that a predicted script may not take: Python's audit hook refuses them before they happen.

Python reports them as audit events. A library that writes files from C or C++ raises none, and is not seen here.
"""

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from memlab.errors import Refused
from memlab.script.overlay import WRITING, Overlay
from memlab.vgpu.cudnn import __name__ as CUDNN  # the process in which a prediction itself asks cuDNN

_FILES = ("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime", "os.setxattr")
_TWO_FILES = ("os.rename", "os.link", "os.symlink")
_PROGRAMS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile", "pty.spawn")
# With this typeshed_client asks a Python where its modules are. Refused that, jsonargparse would take no arguments of a
# class, without a word, and Lightning's LightningCLI stands on it.
_SEARCH_PATH = "import sys, json; print(json.dumps(sys.path))"
# What starts training in processes of its own.
_LAUNCHERS = {"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "sbatch", "horovodrun"}
_PYTHON = re.compile(r"python[\d.]*(\.exe)?")
_SHELL = re.compile(r"(ba|da|z)?sh")
_NOT_FOUND = 127  # what a shell ends with that has not found the program
_NOTHING = f"exit {_NOT_FOUND}"
# What a shell tells: how large the terminal is, for progress bars.
_TERMINAL = {
    "stty size": "{0.lines} {0.columns}",
    "tput cols": "{0.columns}",
    "tput lines": "{0.lines}",
}
_HERE = ("localhost", "127.0.0.1", "::1", "", None)


class Net:
    """Refuses what would leave a trace outside of the overlay, and keeps what was refused.

    Attributes:
        refused: the sentences, in order.
    """

    def __init__(self, overlay: Overlay):
        self.refused: list[str] = []
        self._overlay = overlay
        size = shutil.get_terminal_size()
        self._answers = {asked: f"echo {told.format(size)}" for asked, told in _TERMINAL.items()}  # for a shell
        self._checks: dict[str, Callable[..., None]] = {"open": self._open, "sqlite3.connect": self._file}
        self._checks |= dict.fromkeys(_FILES, self._file)
        self._checks |= dict.fromkeys(_TWO_FILES, self._two_files)
        self._checks |= dict.fromkeys(_PROGRAMS, self._program)
        self._checks |= {"socket.connect": self._address, "socket.sendto": self._address}
        self._checks |= {"socket.getaddrinfo": self._host, "socket.gethostbyname": self._host}

    def spread(self) -> None:
        """From now on, until the process ends."""
        os.system = self._system
        subprocess.Popen.__init__ = self._without_shell(subprocess.Popen.__init__)  # type: ignore[method-assign]
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
        if flags & WRITING:
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
        """Answer as a machine that does not have the program; but one that trains is missed, so that is said."""
        words = list(map(os.fsdecode, [words] if isinstance(words, str | bytes) else words or [program]))
        told = (_SEARCH_PATH, _NOTHING, *self._answers.values())
        if CUDNN in words or (words[1:2] == ["-c"] and words[2:] in ([code] for code in told)):
            return
        self._refuse_to_train(words)
        raise FileNotFoundError(2, "No such file or directory (a prediction starts no other program)", words[0])

    def _system(self, command: Any) -> int:
        """``os.system(command)``."""
        self._refuse_to_train(_split(command))
        return _NOT_FOUND << 8 if os.name == "posix" else _NOT_FOUND

    def _without_shell(self, init: Callable[..., None]) -> Callable[..., None]:
        """``subprocess.run(command, shell=True)``: there is a shell, which does not find the program.

        It knows how large the terminal is.
        """

        @functools.wraps(init)
        def initialised(process: Any, args: Any, *rest: Any, shell: bool = False, **kwargs: Any) -> None:
            if shell:
                words = _split(args if isinstance(args, str | bytes) else args[0])
                self._refuse_to_train(words)
                args = self._answers.get(" ".join(words[:2]), _NOTHING)
            init(process, args, *rest, shell=shell, **kwargs)

        return initialised

    def _refuse_to_train(self, words: list[str]) -> None:
        if _trains(words):
            self.refuse(
                f"the script would have started {' '.join(words)!r}",
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


def _split(command: Any) -> list[str]:
    """The words of a shell's command, as far as they are words."""
    text = os.fsdecode(command)
    words = shlex.shlex(text, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    try:
        return list(words)
    except ValueError:  # a quotation without an end
        return text.split()


def _trains(words: list[str]) -> bool:
    """Return True if a command may train: a launcher, a shell with a script, Python with a script or module but pip."""
    if len(words) > 2 and _SHELL.fullmatch(PurePath(words[0]).name) and words[1].endswith("c"):
        return _trains(_split(words[2]))
    commands: list[list[str]] = [[]]
    for word in words:
        if set(word) <= set(";&|()"):
            commands.append([])
        elif commands[-1] or "=" not in word:  # a variable of the environment stands before the program
            commands[-1].append(word)
    return any(map(_is_training, filter(None, commands)))


def _is_training(words: list[str]) -> bool:
    name, *others = (PurePath(word).name for word in words)
    if name in _LAUNCHERS or name.endswith(".sh") or (_SHELL.fullmatch(name) and others):
        return True
    python = next((place for place, name in enumerate([name, *others]) if _PYTHON.fullmatch(name)), len(words))
    behind = words[python + 1 :]
    return ("-m" in behind and "pip" not in behind) or any(word.endswith(".py") for word in behind)
