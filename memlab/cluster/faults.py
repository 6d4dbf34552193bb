"""The rank that ended a run and the reason, worked out from what the ranks reported and what torchrun saw."""

import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memlab.errors import RankFailed

# torchrun's summary has a block for each rank that failed, the one that it saw first at the end.
_BLOCK = re.compile(r"rank\s*: (\d+) .*\n\s*exitcode\s*: (-?\d+)")
_NOTED_LINES = 40
_AGAIN = "the other ranks were ended, and the next run starts anew"


def failure(errors: Mapping[int, Mapping[str, Any]], printed: Sequence[str], when: str) -> RankFailed:
    """The cause. One rank's end makes the others fail too: a signal counts first, then the first error.

    Args:
        errors: what ranks said of their errors, by rank.
        printed: the last lines that torchrun and the ranks printed.
        when: ``"after 3 steps"``.
    """
    exits = {int(rank): int(code) for rank, code in _BLOCK.findall("".join(printed))}
    killed = {rank: code for rank, code in exits.items() if code < 0 and -code != signal.SIGTERM}
    if killed:
        cause = _ended(*list(killed.items())[-1], when)
    elif errors:
        return _raised(*min(errors.items(), key=lambda item: item[1]["time"]))
    elif exits:
        cause = _ended(*list(exits.items())[-1], when)
    else:
        cause = RankFailed(f"torchrun ended {when} and did not say why: its last lines are below, run it again.")
    cause.add_note("".join(printed[-_NOTED_LINES:]))
    return cause


def silence(ranks: Sequence[int], stacks: Mapping[int, Sequence[str]], seconds: float, file: str) -> RankFailed:
    """Ranks have said nothing for so many seconds.

    Args:
        ranks: which.
        stacks: of those that answered, what faulthandler wrote, the innermost call first.
        seconds: the longest silence that was allowed.
        file: the reader's own, a line of which says where a rank stands.
    """
    names = f"{'rank' if len(ranks) == 1 else 'ranks'} {' and '.join(map(str, ranks))}"
    found = {rank: line for rank in ranks if (line := _line_of(stacks.get(rank, ()), file))}
    places = ", ".join(f"rank {rank} at {Path(file).name}, line {line}" for rank, line in found.items())
    has = "has" if len(ranks) == 1 else "have"
    where = f" ({places})" if places else ""
    cause = RankFailed(
        f"{names} {has} said nothing for {seconds:g} s{where}: a rank waits for another that never comes, or a step "
        "takes longer, and then a larger timeout lets it."
    )
    for rank, stack in stacks.items():
        cause.add_note(f"rank {rank}:\n" + "\n".join(stack))
    return cause


def _ended(rank: int, code: int, when: str) -> RankFailed:
    if code >= 0:
        return RankFailed(f"rank {rank} ended {when} with exit code {code} and no word: {_AGAIN}.")
    name = signal.Signals(-code).name
    hint = ", as the system does when the host runs out of memory" if name == "SIGKILL" else ""
    return RankFailed(f"rank {rank} was killed by {name} {when}{hint}: {_AGAIN}.")


def _raised(rank: int, error: Mapping[str, Any]) -> RankFailed:
    where = f" ({error['file']}, line {error['line']})" if error["line"] else ""
    cause = RankFailed(f"rank {rank} raised {error['type']}: {error['text']}{where}")
    cause.add_note(error["traceback"])
    return cause


def _line_of(stack: Sequence[str], file: str) -> str | None:
    lines = (re.match(r'\s*File "(.*)", line (\d+)', text) for text in stack)
    return next((line[2] for line in lines if line and Path(line[1]).resolve() == Path(file)), None)
