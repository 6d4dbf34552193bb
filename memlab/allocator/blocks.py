"""The allocator's segments, as the driver gave them, and the blocks that they are cut into."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False, slots=True)
class Block:
    """A stretch of a segment, in use or free, between its neighbours. Sizes and addresses in bytes.

    ``mapped`` says whether memory stands behind it: always, except in an expandable segment. ``since`` is how often
    its pool had been asked when it became free: the younger a free block is, the later it is collected.
    """

    address: int
    size: int
    segment: "Segment"
    free: bool = True
    mapped: bool = True
    before: "Block | None" = None
    after: "Block | None" = None
    since: int = 0


@dataclass(eq=False, slots=True)
class Segment:
    """A range of addresses that the driver gave in one piece: memory, or addresses alone for an ``expandable`` one.

    ``small`` says which pool it serves, ``stream`` which stream; ``number`` counts the segments that there were before.
    ``graphs`` is the private pool of CUDA graphs that it belongs to, 0 for none.
    """

    address: int
    size: int
    small: bool
    number: int
    expandable: bool = False
    stream: int = 0
    graphs: int = 0
    first: Block = field(init=False)

    def __post_init__(self) -> None:
        self.first = Block(self.address, self.size, self, mapped=not self.expandable)

    @property
    def unsplit(self) -> bool:
        """True if the whole segment is one free block with memory behind it."""
        return self.first.free and self.first.mapped and self.first.after is None

    def blocks(self) -> Iterator[Block]:
        """Its blocks, by address."""
        block: Block | None = self.first
        while block is not None:
            yield block
            block = block.after


def plain(blocks: Iterable[Block]) -> dict[str, Any]:
    """Adjoining blocks as one segment of a snapshot."""
    states = {True: "inactive", False: "active_allocated"}
    held = list(blocks)
    return {
        "address": held[0].address,
        "total_size": sum(block.size for block in held),
        "segment_type": "small" if held[0].segment.small else "large",
        "stream": held[0].segment.stream,
        "is_expandable": held[0].segment.expandable,
        "segment_pool_id": (0, held[0].segment.graphs),
        "blocks": [{"address": b.address, "size": b.size, "state": states[b.free]} for b in held],
    }
