"""The values of a panel's controls that its notebook names: a page has them, and runs with those that it asks to run.

In the text above the panel a number belongs to the control that its list item, or its paragraph, named last; in other
texts only where it stands right behind the name: "a batch of 20", ``batch_size=24``, "checkpoint every 4".
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from memlab.lab.choices import Choice, Doubling, OneOf, Range
from memlab.lab.page.grid import CARD, MODEL
from memlab.lab.session import Session
from memlab.vgpu.cards import CARDS
from tests.site.texts import FOLLOWS, ITEM, MARK, items

MOST_RUNS = 6
# How a text calls a control, beside its label.
CALLED = {"batch_size": "batch", "batch_per_rank": "batch", "world_size": "ranks?", "sequence_length": "tokens"}
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
# "One" is mostly no number.
WORDED = rf"(?:(?:(?<=of )|(?<=to ))one|{'|'.join(WORDS[2:])})\b"
NUMBER = rf"(?<![\w./-])(?:\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?![\w%])|{WORDED})"
Named = list[tuple[str, Any]]


def named(session: Session, above: str, others: Sequence[str]) -> Named:
    """Values by control: first those of the text above the panel, then those of the others. Models and cards, too."""
    found = [pair for text in items(above) for pair in in_item(session, text)]
    for choice in session.choices.values():
        behind = rf"(?i:{_names(choice)})\W{{0,3}}(?:(?:of|to|at|is|every)\W{{1,3}})?({NUMBER})"
        found += [pair for text in others for match in re.finditer(behind, text) for pair in _legal(choice, match[1])]
    return list(dict.fromkeys(found))


def runs(session: Session, above: str) -> list[dict[str, Any]]:
    """The settings that the text above the panel asks the reader to run, after those that it begins with."""
    wanted: list[dict[str, Any]] = [{}]
    before: dict[str, list[Any]] | None = None  # what the last item asks to run
    for item in items(above):
        values: dict[str, list[Any]] = {}
        for name, value in in_item(session, item):
            if name in session.choices and value not in values.setdefault(name, []):
                values[name].append(value)
        if before is not None and FOLLOWS.match(item):
            before = before | values
        else:
            before = values if "**Run**" in item and ITEM.match(item) else None
        if before:
            wanted += [dict(zip(before, chosen, strict=True)) for chosen in product(*before.values())]
    return list(_different(wanted, session.screen.settings))[:MOST_RUNS]


def _different(wanted: Sequence[Mapping[str, Any]], start: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    seen = []
    for settings in wanted:
        if (whole := {**start, **settings}) not in seen:
            seen.append(whole)
            yield dict(settings)


def in_item(session: Session, text: str) -> Iterator[tuple[str, Any]]:
    """The values that one list item or paragraph names, each with its control."""
    controls = {name: choice for name, choice in session.choices.items() if isinstance(choice, Range | Doubling)}
    tokens = [f"(?P<{name}>(?i:{_names(choice)}))" for name, choice in controls.items()]
    last, waiting = "", []
    text = MARK.sub("", text)
    for match in re.finditer("|".join([*tokens, f"(?P<number>{NUMBER})"]), text):
        if match.lastgroup == "number":
            waiting.append(match[0])
        else:
            last = match.lastgroup or ""
        if last:
            for number in waiting:
                yield from _legal(controls[last], number)
            waiting = []
    yield from _of_menus(session, text)


def _of_menus(session: Session, text: str) -> Iterator[tuple[str, Any]]:
    for name, choice in session.choices.items():
        if isinstance(choice, OneOf) and not isinstance(choice, Doubling):
            whole = re.search(rf"(?i)\b(?:both|all) {re.escape(choice.label)}s", text)
            yield from ((name, option) for option in choice.options if whole or _says(text, str(option)))
    if "*model*" in text:
        yield MODEL, session.model
    yield from ((MODEL, model) for model in list(session.models)[1:] if _says(text, model))
    shortly = {card.partition("-")[0]: card for card in reversed(CARDS)}  # an A100
    yield from (
        (CARD, card) for name, card in {**shortly, **{card: card for card in CARDS}}.items() if _says(text, name)
    )


def _says(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}s?(?![\w-])", text) is not None


def _names(choice: Choice) -> str:
    label = choice.label.replace(" ", "[ _-]")
    return rf"\b(?:{'|'.join(filter(None, [label, CALLED.get(choice.name)]))})\b"


def _legal(choice: Choice, number: str) -> Iterator[tuple[str, Any]]:
    """The number as a value of the control, if it is one."""
    plain = str(WORDS.index(number)) if number in WORDS else number.replace(",", "")
    value = float(plain)
    value = int(value) if value.is_integer() else value
    if isinstance(choice, Range) and not choice.whole:
        value = float(value)
    legal = choice.options if isinstance(choice, OneOf) else [value] * (choice.low <= value <= choice.high)
    if value in legal:
        yield choice.name, value
