"""The layer that a tensor belongs to."""

import re

from memlab.alive import Alive

# "blocks.3.mlp.0" is in "blocks.3", "transformer.h.3.mlp" in "transformer.h.3", and "head" in "head".
LAYER = re.compile(r"^(?:[^.]+\.)*?[^.]+(\.\d+)|^[^.]+")


def part_of(one: Alive) -> str:
    """Return the part of the network that a tensor belongs to: ``"blocks.3"``, ``"head"``, or ``"loss"``.

    A weight and what belongs to it are known by the weight's name; whatever else by the layer that computed it. The
    model itself is named after its class, which begins with a capital letter.
    """
    name = one.storage.name or (one.born.module if one.born else "")
    layer = LAYER.match(name)
    return layer[0] if layer and not name[0].isupper() else "loss"
