"""In which order backward runs the nodes that an earlier backward pass has made (``create_graph=True``).

Of the nodes that are ready, autograd runs the one with the highest number first (``engine.cpp``), and each thread
counts the nodes that it makes for itself (``ATen/SequenceNumber.cpp``). On CUDA backward runs in a thread of its own,
which begins at 0 too. A prediction has one thread for both, so nodes get CUDA's numbers before backward runs them.
"""

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch.autograd.graph import GradientEdge

from memlab.tracking.internals import next_node_number
from memlab.vgpu.internals import is_wrapped, node_number, set_node_number, unwrapped

CUDAS = 1 << 62  # CUDA's numbers begin here, so that they are known from those of this thread


class NodeOrder:
    """The numbers of autograd nodes since a prediction began, and those that CUDA's backward would have given."""

    def __init__(self) -> None:
        self._start = next_node_number()
        self._passes: list[range] = []  # the numbers that each backward pass gave
        self._made = [0]  # how many nodes they have made before each of them, and until now
        self._mixed = False  # whether a graph may have nodes of both
        self._running = False

    @property
    def is_running(self) -> bool:
        """True while a backward pass runs."""
        return self._running

    def run(self, run_backward: Callable[..., Any], outputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Run ``backward`` or ``grad`` in Python's place: the arguments are those of ``_engine_run_backward``."""
        if self._running:  # a backward pass within another runs in the other's thread
            return run_backward(outputs, *args, **kwargs)
        if self._mixed:
            self._renumber(outputs)
        first, self._running = next_node_number(), True
        try:
            return run_backward(outputs, *args, **kwargs)
        finally:
            self._running = False
            self._passes.append(made := range(first, next_node_number()))
            self._made.append(self._made[-1] + len(made))
            self._mixed |= bool(args[2])  # create_graph

    def _renumber(self, outputs: Iterable[Any]) -> None:
        waiting = list(_ends(outputs))
        while waiting:
            node = waiting.pop()
            # A number that high is a leaf's, or was given before, then to all nodes below as well.
            if node is not None and (number := node_number(node)) < CUDAS:
                set_node_number(node, CUDAS + self._of_cuda(number))
                waiting += [below for below, _ in node.next_functions]

    def _of_cuda(self, number: int) -> int:
        begun = bisect(self._passes, number, key=lambda made: made.start)
        if begun and number in self._passes[begun - 1]:
            return self._made[begun - 1] + number - self._passes[begun - 1].start
        return max(0, number - self._start - self._made[begun])


def _ends(outputs: Iterable[Any]) -> Iterator[Any]:
    """The nodes that outputs were made by."""
    for output in outputs:
        if isinstance(output, GradientEdge):
            yield output.node
            continue
        while is_wrapped(output):  # torch.func has a graph for each of its transforms
            yield output.grad_fn
            output = unwrapped(output)
        yield output.grad_fn
