"""A card as the stand-in's C libraries read it."""

from memlab.units import MIB
from memlab.vgpu import find_card


def described(name: str) -> str:
    """A card in one line, as ``libraries/cudart.c`` reads it.

    Raises:
        BadValue: for an unknown card.
    """
    card = find_card(name)
    own = card.architecture
    numbers = (card.capacity, card.context, *divmod(card.sm, 10), card.processors, card.threads)
    numbers += (own.shared, own.shared_optin, card.speed.cache // MIB, card.width, *card.clocks)
    return ";".join([card.driver_name, *map(str, numbers)])
