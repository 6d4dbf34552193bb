"""For whom each buffer of compiled code is there: the module, the operator, and whether forward is computed again.

PyTorch's compiler knows it of each node of its graphs (``node.meta``), and each buffer of Inductor of the nodes that it
was made for. It is written at the end of the Python that Inductor makes, so that its cache keeps both together.
"""

import operator
import re
from typing import Any, NamedTuple

import torch

from memlab.vgpu import internals

TABLE = "MEMLAB_ORIGINS"


class Origin(NamedTuple):
    """The node of a graph that a buffer was made for first of all.

    Attributes:
        path: of its module in what was compiled, ``"blocks.0.mlp"``; ``""`` for all of it.
        op: such as ``"aten.mul.Tensor"``; ``""`` if it is no operator.
        recomputed: whether it belongs to forward and runs again in backward.
        differentiated: whether it runs in a forward that has a backward.
    """

    path: str
    op: str
    recomputed: bool
    differentiated: bool


def table(graph: Any) -> str:
    """The origins of the buffers of one of Inductor's graphs, by their names, as a line of Python."""
    nodes = {name: _node(buffer) for name, buffer in graph.name_to_buffer.items()}
    found = {name: tuple(_origin(node, graph)) for name, node in nodes.items() if node is not None}
    return f"\n{TABLE} = {found!r}\n"


def operator_of(name: str) -> Any:
    """The operator of this name, None where there is none."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None) if part else None
    return found


def _node(buffer: Any) -> Any:
    node = buffer.get_origin_node() or next(iter(getattr(buffer, "origins", ())), None)
    while node is not None and node.target is operator.getitem:
        node = node.args[0]
    return node


def _origin(node: Any, graph: Any) -> Origin:
    op = str(node.target) if isinstance(node.target, internals.kinds_of_operators) else ""
    recomputed = graph.is_backward and node.meta.get("partitioner_tag") == "is_forward"
    return Origin(_path(node.meta), op, recomputed, not (graph.is_backward or graph.is_inference))


def _path(meta: dict[str, Any]) -> str:
    """The module's path without the variable that holds what was compiled: ``L['self'].blocks.0`` is ``blocks.0``."""
    stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    name = re.sub(r"\._modules\['(\w+)'\]", r".\1", list(stack.values())[-1][0])
    return ".".join(part for part in name.rpartition("]")[2].split(".") if part not in ("", "cell_contents"))
