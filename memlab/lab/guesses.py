"""Every guess of a learner, a line each, in a file beside the logbook, and how well they guess."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from memlab.errors import NotRead
from memlab.files import append_line
from memlab.logbook import logbook_file

TOLERANCE = 0.25  # of the truth: a guess of bytes that is as near as this counts as right, if nothing else is said


def guesses_file() -> Path:
    """Return the path of the file that keeps guesses: ``logbook-guesses.jsonl``, beside the logbook.

    Raises:
        NotWritten: there is no home folder.
    """
    logbook = logbook_file()
    return logbook.with_name(f"{logbook.stem}-guesses.jsonl")


def append(question: str, answers: Sequence[int | str], actual: int | str, tolerance: float) -> None:
    """Keep the guesses at a question, bytes or one of its choices, the truth, and how near is near enough.

    Raises:
        NotWritten: the file cannot be written.
    """
    time = datetime.now().isoformat(timespec="seconds")
    kept = {"question": question, "answers": list(answers), "actual": actual, "tolerance": tolerance}
    append_line(guesses_file(), json.dumps({"time": time} | kept))


def score() -> str:
    """Return a sentence with the numbers of all and of right guesses. A question counts once, by its first guess.

    The file has the guesses of all notebooks: a kernel does not know its notebook, and a restart should lose nothing.

    Raises:
        NotRead: the file cannot be read.
    """
    first: dict[str, bool] = {}
    for line in _lines():
        try:
            kept = json.loads(line)
            close = is_close(kept["answers"][-1], kept["actual"], kept.get("tolerance", TOLERANCE))
            first.setdefault(str(kept["question"]), close)
        except (ValueError, TypeError, LookupError, RecursionError, ArithmeticError):
            continue  # of a crash, or of another program
    if not first:
        return ""
    guesses = "guess" if len(first) == 1 else "guesses"
    return f"Your score in this and earlier notebooks: {sum(first.values())} of {len(first)} {guesses} right."


def is_close(answer: int | str, actual: int | str | None, tolerance: float) -> bool:
    """Return True if an answer counts as right: bytes may be off by ``tolerance`` times the truth."""
    if isinstance(answer, int) and isinstance(actual, int):
        return abs(answer / actual - 1) <= tolerance
    return answer == actual


def _lines() -> list[str]:
    file = guesses_file()
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise NotRead(f"The guesses {file} cannot be read ({error.strerror}).") from None
    return [line for line in text.split("\n") if line.strip()]
