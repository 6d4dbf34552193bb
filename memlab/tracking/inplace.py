"""What autograd does in place on real tensors and not on ours, because ours need a dispatch mode.

PyTorch's engine and a few of its formulas ask ``at::isTensorSubclassLike``, which says yes to everything under a
dispatch mode, and then do out of place what they would do in place. Here it is done in place again, so that no byte
is counted that a card would not allocate.
"""

import torch

from memlab.tracking.internals import current_node, is_dense, reference_counts

aten = torch.ops.aten

# In backward, formulas use these out of place on a fresh tensor of zeros (FunctionsManual.cpp: gather_backward,
# value_selecting_reduction_backward, index_backward, index_select_backward).
ON_FRESH_ZEROS = {
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
    aten.index_add.default: aten.index_add_.default,
    aten.scatter_add.default: aten.scatter_add_.default,
    aten.index_put.default: aten.index_put_.default,
}


# In the backward of these nodes, on the formula's own first result.
IN_NODES = {
    "BinaryCrossEntropyWithLogitsBackward0": {aten.sub.Tensor: aten.sub_.Tensor, aten.mul.Tensor: aten.mul_.Tensor}
}

# How often a gradient that only the engine's buffer holds is referred to when a dispatch mode sees it: by the buffer,
# by the dispatcher (twice) and by its Python object; its storage by the tensor and by Python's view of the storage.
ALONE = (4, 2)


def in_place(func, args: tuple):
    """The operator that a card would run in backward in the place of this one; None if it is this one."""
    if func is aten.add.Tensor:
        return aten.add_.Tensor if _is_accumulation(*args) else None
    if func in ON_FRESH_ZEROS:
        return ON_FRESH_ZEROS[func]
    node = current_node() if func in _NODE_OPERATORS else None
    return IN_NODES.get(node.name(), {}).get(func) if node is not None else None


_NODE_OPERATORS = {func for rules in IN_NODES.values() for func in rules}


def _is_accumulation(held: torch.Tensor, arriving: torch.Tensor) -> bool:
    """Whether the engine adds a gradient to one that nobody else holds.

    The conditions are those of ``can_accumulate_inplace`` in ``torch/csrc/autograd/input_buffer.cpp``.
    """
    if not isinstance(arriving, torch.Tensor) or held.shape != arriving.shape:
        return False
    return reference_counts(held) == ALONE and is_dense(held)
