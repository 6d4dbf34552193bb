"""The cases that this machine can record, all of them or by parts of their names."""

import importlib.util
from itertools import chain

from memlab.errors import BadValue
from tests.loops.case import Case
from tests.loops.matrix import matrix
from tests.loops.ordinary import LOOPS


def all_cases() -> list[Case]:
    """Every case that the libraries of this machine allow, the most telling first."""
    cases: dict[str, Case] = {}
    for case in chain(matrix(), (case for case in LOOPS if not case.refused)):
        if not case.needs or importlib.util.find_spec(case.needs):
            cases.setdefault(case.name, case)
    return list(cases.values())


def find_cases(names: list[str]) -> list[Case]:
    """The cases whose names contain one of the words; all of them for no words.

    Raises:
        BadValue: for a word that no case contains.
    """
    cases = all_cases()
    for name in names:
        if not any(name in case.name for case in cases):
            raise BadValue(f"no case is called {name!r}: give a part of a name, as in gpt or precision=bf16.")
    return [case for case in cases if not names or any(name in case.name for name in names)]
