"""Where the moments of one step stand beside those of another: forward at forward, backward at backward."""

from bisect import bisect_right
from collections.abc import Callable
from itertools import takewhile

from memlab.trace import Phase, Trace

Edge = tuple[int, float]  # a moment of the one step, and where in the other it belongs


def align(trace: Trace, reference: Trace) -> Callable[[int], float]:
    """From a moment of ``trace`` to the place on the x axis of ``reference``.

    Each stretch in one phase takes the room of its counterpart. A step that ran out of memory is not stretched: in the
    phase that it did not finish, an event is as wide as an event of the reference.
    """
    edges = _edges(trace, reference)
    moments = [moment for moment, _ in edges]

    def place(moment: int) -> float:
        after = min(max(bisect_right(moments, moment), 1), len(edges) - 1)
        (first, x), (last, x_last) = edges[after - 1], edges[after]
        return x + (x_last - x) * (moment - first) / (last - first)

    return place


def _edges(trace: Trace, reference: Trace) -> list[Edge]:
    """Moments where both steps change phase; at least two, the first of them 0."""
    total, width = max(len(trace.events), 1), len(reference.events)
    phases, others = trace.phases, reference.phases
    pairs = list(takewhile(lambda pair: pair[0][0] is pair[1][0], zip(phases, others, strict=False)))
    if trace.oom:
        edges: list[Edge] = [(0, 0.0), *((mine[2], float(its[2])) for mine, its in pairs[:-1])]
        moment, x = edges[-1]
        return [*edges, (total, min(x + total - moment, float(width)))]
    if len(pairs) < max(len(phases), len(others)):  # such as another number of micro-batches
        mine, its = _end_of_backward(trace), _end_of_backward(reference)
        inner = [(mine, float(its))] if 0 < mine < total and 0 < its < width else []
        return [(0, 0.0), *inner, (total, float(width))]
    return [(0, 0.0), *((mine[2], float(its[2])) for mine, its in pairs[:-1]), (total, float(width))]


def _end_of_backward(trace: Trace) -> int:
    return max((last for phase, _, last in trace.phases if phase is Phase.BACKWARD), default=0)
