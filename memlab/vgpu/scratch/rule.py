"""The form of a rule: the order in which an operator allocates its results and what it needs beside them."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from memlab.vgpu.arguments import Arguments
from memlab.vgpu.cards import Card


@dataclass(frozen=True)
class Result:
    """Here one of the results is allocated, by its place among them; None: all that are not yet."""

    index: int | None = None


RESULT = Result()


@dataclass(frozen=True)
class Workspace:
    """Here ``nbytes`` are allocated for good, unless this thread has a workspace of that name on this stream."""

    name: str
    nbytes: int


@dataclass(frozen=True)
class Plan:
    """Here cuDNN runs something with one of its plans, whose workspace is allocated and freed again.

    Attributes:
        of: what is run; the plan that a thread has found for it once is kept.
        sizes: workspaces in bytes, in the order in which the plans are tried.
        searched: whether all of them are run first, to find the fastest.
    """

    of: Hashable
    sizes: tuple[int, ...]
    searched: bool = False


@dataclass(frozen=True)
class Remark:
    """A sentence that the reader should know about an allocation.

    Attributes:
        leaves_out: whether it says that bytes are left out of the prediction.
    """

    sentence: str
    leaves_out: bool = False


# A number of bytes is allocated until the operator's end; a negative one gives the last block of so many bytes back.
Step = int | Result | Workspace | Plan | Remark
# Of the card, an operator's arguments and its results, in order. Without a ``Result`` the results come first.
Rule = Callable[[Card, Arguments, Any], Iterable[Step]]
