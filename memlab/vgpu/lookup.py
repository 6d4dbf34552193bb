"""The lookup of a card: by its name, by a description, or by what CUDA tells of one."""

import re
from dataclasses import replace
from difflib import SequenceMatcher

from memlab.errors import BadValue
from memlab.units import parse_bytes
from memlab.vgpu.architectures import ARCHITECTURES
from memlab.vgpu.cards import CARDS, Card

SIMILAR = 4  # names that are suggested for an unknown one
DESCRIPTION = re.compile(r"(.*\S)\s+sm_?(\d+)(?:\s+([1-9]\d*)\s*SMs?)?", re.IGNORECASE)
_HALF_SAID = re.compile(r".*\bsm_?\d.*|[\d.,]+\s*[KMGT]i?B\b.*", re.IGNORECASE)  # meant as a description
_FORM = "memory as PyTorch prints it and compute capability, as in '24 GiB sm_86', or '24 GiB sm_86 82 SMs'"
# pytorch#190385; PyTorch 2.11, 2.13 and 2.15 with CUDA 13 name sm_75 as their oldest (torch.cuda.get_arch_list).
_REFUSED = {
    "p100": "has compute capability 6.0, for which PyTorch has kernels only in its builds with CUDA 12.6, and from "
    "2.15 on in none: give another card, on Kaggle 'T4'"
}


def find_card(name: str) -> Card:
    """The card of that name; upper and lower case, spaces and dashes do not matter.

    Its memory may be left out where memlab knows the card with one size alone: "RTX 4060 Ti" for "RTX 4060 Ti 16GB".
    So may RTX: "5080".
    One that memlab does not know can be described: ``"24 GiB sm_86"``, or ``"24 GiB sm_86 82 SMs"``. What that leaves
    open is taken from the nearest card of the same compute capability (``Card.assumption``).

    Raises:
        BadValue: for an unknown card, or a description that says too little.
    """
    text = " ".join(str(name).split())
    wanted = _plain(text)
    for card in CARDS.values():
        if _plain(card.name) in (wanted, f"rtx{wanted}"):  # a panel's menu leaves RTX out
            return card
    sizes = [card for card in CARDS.values() if re.fullmatch(re.escape(wanted) + r"\d+gb", _plain(card.name))]
    if len(sizes) == 1:
        return sizes[0]
    if match := DESCRIPTION.fullmatch(text):
        return _described(text, match[1], int(match[2]), int(match[3] or 0))
    raise BadValue(f"gpu {name!r} {_why_not(text)}.")


def known_card(name: str) -> Card | None:
    """The same, or None where no card is meant: a trace may be of a CPU."""
    try:
        return find_card(name)
    except BadValue:
        return None


def card_like(driver_name: str, sm: int, processors: int, capacity: int) -> Card | None:
    """The card with this compute capability, so many multiprocessors and about this capacity in bytes, or None.

    Where there are several, the one whose driver gives it this name.
    """
    alike = [
        card
        for card in CARDS.values()
        if (card.sm, card.processors) == (sm, processors) and abs(card.capacity / capacity - 1) < 0.05
    ]
    return min(alike, key=lambda card: card.driver_name != driver_name, default=None)


def _described(text: str, memory: str, sm: int, processors: int) -> Card:
    capacity = parse_bytes(memory)
    alike = [card for card in CARDS.values() if card.sm == sm]
    if not alike:
        known = ", ".join(f"sm_{one}" for one in ARCHITECTURES)
        raise BadValue(f"gpu {text!r} has a compute capability that memlab does not know: give one of {known}.")
    # The number of multiprocessors says more of a card than its memory does.
    apart = {card.name: abs(card.processors - processors) if processors else 0 for card in alike}
    nearest = min(alike, key=lambda card: (apart[card.name], abs(card.capacity - capacity)))
    if capacity <= nearest.context:
        raise BadValue(f"gpu {text!r} has less memory than CUDA's context takes of it: give its {_FORM}.")
    return replace(
        nearest,
        name=text,
        driver_name=text,
        capacity=capacity,
        processors=processors or nearest.processors,
        taken_from=nearest.name,
    )


def _why_not(text: str) -> str:
    """The rest of the sentence that refuses a name."""
    wanted = _plain(text)
    if wanted in _REFUSED:
        return _REFUSED[wanted]
    if _HALF_SAID.fullmatch(text):
        return f"does not describe a card: give its {_FORM}"

    def unlike(name: str) -> tuple[bool, float]:
        plain = _plain(name)
        return not wanted or wanted not in plain, -SequenceMatcher(None, wanted, plain).ratio()

    *most, last = sorted(CARDS, key=unlike)[:SIMILAR]
    return (
        f"is not a card that memlab knows: similar names are {', '.join(most)} and {last}, memlab.vgpu.CARDS has all "
        f"{len(CARDS)}, and any other can be described, as in '24 GiB sm_86'"
    )


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
