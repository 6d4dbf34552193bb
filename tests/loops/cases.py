"""The cases that this machine can record, all of them or by parts of their names."""

import importlib.util

from memlab.errors import BadValue
from tests.loops.case import Case
from tests.loops.matrix import matrix


def all_cases() -> list[Case]:
    """Every case of the matrix that the libraries of this machine allow, the most telling first.

    The ordinary loops are not recorded: some leave tensors behind, which the cases after them would find on the card.
    """
    cases: dict[str, Case] = {}
    for case in matrix():
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
