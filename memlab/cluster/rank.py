"""One rank, as the process that started it knows it: what it has said."""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from memlab.cluster.lines import GONE, STACK, Message
from memlab.trace import Step, Trace


class Rank:
    """The state of one rank, as far as its messages have told it.

    Attributes:
        pid: of its process, 0 as long as it has not said it.
        heard: when it last said something, on the monotonic clock.
        steps: those that it has made.
        trace: of its X-rayed step with the highest peak, None before it has made one.
        error: what it said of the error that ended it.
        ended: it has done all that it had to.
        gone: its connection has ended, and so, where it was not this side that hung up, its process.
        stack: where it stood when it was asked, in faulthandler's words.
    """

    def __init__(self) -> None:
        self.pid = 0
        self.heard = time.monotonic()
        self.steps: list[Step] = []
        self.trace: Trace | None = None
        self.error: Mapping[str, Any] | None = None
        self.ended = False
        self.gone = False
        self.stack: list[str] = []

    def take(self, message: Message) -> None:
        """Take in what it says."""
        self.heard = time.monotonic()
        content = message.content
        match message.kind:
            case "hello":
                self.pid = content["pid"]
            case "step":
                self.steps.append(Step.from_plain(content["step"]))
            case "trace":
                self.trace = Trace.from_json(content["trace"])
            case "error":
                self.error = content
            case "end":
                self.ended = True
            case _ if message.kind == STACK:
                self.stack.append(content["text"])
            case _ if message.kind == GONE:
                self.gone = True

    @property
    def died(self) -> bool:
        """True if the connection of the rank has ended although it reported neither success nor an error."""
        return self.gone and not (self.ended or self.error)

    @property
    def is_full(self) -> bool:
        """True if memory has run out on it, and it has told the step in which it did."""
        return self.trace is not None and self.trace.oom is not None and len(self.steps) >= len(self.trace.steps)

    def silent(self, seconds: float) -> bool:
        """Return True if the rank has not ended and has sent nothing for more than this many seconds."""
        return not self.ended and time.monotonic() - self.heard > seconds

    def whole_trace(self) -> Trace:
        """The trace, with all the steps that have been made since."""
        assert self.trace is not None
        return replace(self.trace, steps=tuple(self.steps))

    def ask(self) -> None:
        """Let faulthandler say where it stands, even if it waits in C++."""
        if self.pid and hasattr(signal, "SIGUSR1"):
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGUSR1)
