"""Helpers for sentences."""

from collections.abc import Sequence


def capital(sentence: str) -> str:
    """The sentence with a capital letter at its beginning; the rest as it is, names among it."""
    return sentence[:1].upper() + sentence[1:]


def listed(names: Sequence[str]) -> str:
    """Names as a sentence lists them: ``a``, ``a and b``, ``a, b and c``."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def message(error: BaseException) -> str:
    """Return the text of an error; another library's ``__str__`` may itself raise one."""
    try:
        return str(error)
    except Exception as other:
        return f"its message cannot be read ({type(other).__name__})"
