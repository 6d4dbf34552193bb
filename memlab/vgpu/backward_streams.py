"""On which stream backward works: each node of the graph on the one that its forward pass was on.

As ``engine.cpp`` has it ("Streaming backwards"). What accumulates into a leaf works on the stream of who started
backward, and so do the nodes that ``node_order.py`` has numbered anew.
"""

from bisect import bisect
from collections.abc import Iterator
from contextlib import contextmanager

from memlab.allocator import CachingAllocator
from memlab.tracking.internals import current_node, next_node_number
from memlab.vgpu.internals import node_number
from memlab.vgpu.node_order import CUDAS


class BackwardStreams:
    """The stream of the work at hand, in the loop and in backward.

    Args:
        blocks: takes blocks for the stream that work goes to.
    """

    def __init__(self, blocks: CachingAllocator):
        self._blocks = blocks
        self._first: list[int] = []  # the numbers of nodes from which on work went to another stream
        self._streams: list[int] = [0]  # to which it went before each of them, and goes now
        self._node: int | None = None  # the number of the one that runs, as far as is known
        self._outside = 0  # the stream of who started backward

    def current(self) -> int:
        """The stream that work goes to."""
        self.follow()
        return self._blocks.stream

    def change(self, stream: int) -> int:
        """Work goes to this stream from now on; the one before."""
        before = self.current()
        self._go_to(stream)
        return before

    def follow(self) -> None:
        """Work goes to the stream of the node that runs, where that is another node than a moment ago."""
        if not self._first:
            return
        node = current_node()
        number = None if node is None else node_number(node)
        if number != self._node:
            self._node = number
            self._go_to(self._outside if number is None or number >= CUDAS else self._stream_of(number))

    @contextmanager
    def backward(self) -> Iterator[None]:
        """A backward pass runs, perhaps within another."""
        before = self._node, self._outside
        self._outside = self.current()
        try:
            yield
        finally:
            self._go_to(self._outside)
            self._node, self._outside = before

    def _go_to(self, stream: int) -> None:
        if stream != self._blocks.stream:
            self._blocks.stream = stream
            self._first.append(next_node_number())
            self._streams.append(stream)

    def _stream_of(self, number: int) -> int:
        return self._streams[bisect(self._first, number)]
