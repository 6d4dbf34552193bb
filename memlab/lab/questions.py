"""The guesses and claims that a notebook has shown, for its panels in Present mode."""

from collections.abc import Callable

_shown: dict[str, Callable[[], str]] = {}


def add(question: str, answer: Callable[[], str]) -> None:
    """Remember a question that a notebook shows; ``answer`` is asked for its text when it is revealed."""
    _shown[question] = answer


def questions() -> list[list[str]]:
    """Each question and its answer, in the order in which they were first shown."""
    return [[question, answer()] for question, answer in _shown.items()]
