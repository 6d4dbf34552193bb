"""The errors that memlab raises. Every message is one sentence: the value, what is legal, what to do."""

from memlab.tracebacks import place


class MemlabError(Exception):
    """The base of every error that memlab raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in a notebook in place of a traceback."""
        said = f"{type(self).__name__}: {self}"
        return [said, *filter(None, [place(self)]), *getattr(self, "__notes__", ())]


class BadValue(MemlabError, ValueError):
    """A value that memlab cannot use: a budget, a setting, a range, a file name."""


class BadTrain(MemlabError, TypeError):
    """A ``train`` function that does not keep the protocol: a generator that yields its loss."""


class NotWritten(MemlabError, OSError):
    """A file or a folder that could not be written; whatever was there before is untouched."""


class NotRead(MemlabError, OSError):
    """A file that is there and could not be read."""


class NotATrace(MemlabError, ValueError):
    """Text that is not a trace written by :meth:`memlab.trace.Trace.to_json`."""


class NoVirtualGpu(MemlabError, RuntimeError):
    """This PyTorch cannot carry the virtual GPU."""


class WrongDevice(MemlabError, RuntimeError):
    """Tensors on two devices, or a device named outright, in code that is predicted."""


class Unpredictable(MemlabError, RuntimeError):
    """An operator that the virtual GPU cannot follow, or a size or a branch that depends on the data."""


class RankFailed(MemlabError, RuntimeError):
    """A run of several ranks, one of which raised something, was killed, or fell silent; its traceback is a note."""


class ScriptFailed(MemlabError, RuntimeError):
    """A script that raised something, or ended its own process; its traceback is a note."""


class Refused(MemlabError, PermissionError):
    """An action that a predicted script may not take: reach the network, start a process, write past the overlay."""


class Stopped(BaseException):
    """A run that was asked to stop, within a step or while it waited for its turn."""
