"""Operations that autograd does in place, but not under a dispatch mode.

PyTorch's engine and a few of its formulas ask ``at::isTensorSubclassLike``, which says yes to everything under a
dispatch mode, and then do out of place what they would do in place. Here it is done in place again, so that an
X-rayed step allocates what a plain step does, and a prediction what a card would.
"""

from typing import Any

import torch

from memlab.tracking.internals import called_by_engine, current_node, is_dense, reference_counts

aten = torch.ops.aten

# In backward, formulas use these out of place on a fresh tensor of zeros (FunctionsManual.cpp: gather_backward,
# value_selecting_reduction_backward, index_backward, index_select_backward, take_backward, masked_select_backward).
ON_FRESH_ZEROS = {
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
    aten.index_add.default: aten.index_add_.default,
    aten.scatter_add.default: aten.scatter_add_.default,
    aten.index_put.default: aten.index_put_.default,
    aten.put.default: aten.put_.default,
    aten.masked_scatter.default: aten.masked_scatter_.default,
}
ZEROS = (aten.new_zeros.default, aten.zeros.default, aten.zeros_like.default)

# In the backward of these nodes, on the formula's own first result.
IN_NODES = {
    "BinaryCrossEntropyWithLogitsBackward0": {aten.sub.Tensor: aten.sub_.Tensor, aten.mul.Tensor: aten.mul_.Tensor},
    # evenly_distribute_backward, of the largest or the smallest of all
    "MaxBackward1": {aten.logical_and.default: aten.logical_and_.default},
    "MinBackward1": {aten.logical_and.default: aten.logical_and_.default},
    # since 2.15, where what ``where`` has made is held twice
    "MaximumBackward0": {aten.masked_fill.Scalar: aten.masked_fill_.Scalar},
    "MinimumBackward0": {aten.masked_fill.Scalar: aten.masked_fill_.Scalar},
}
_NODE_OPERATORS = {func for rules in IN_NODES.values() for func in rules}

CANDIDATES = {aten.add.Tensor, *ON_FRESH_ZEROS, *_NODE_OPERATORS}

# How often a tensor that only the engine's buffer, or the formula at work, holds is referred to when a dispatch mode
# sees it: by its holder, by the dispatcher (twice) and by its Python object; its storage by the tensor and by Python's
# view of the storage. So it is for real and for fake tensors, on torch 2.11.0, 2.13.0 and 2.15.0.
ALONE = (4, 2)


def in_place(func: Any, args: tuple[Any, ...], made_by: Any, *, written: bool) -> Any:
    """The operator that autograd would run without a mode in the place of this one, None if it is this one.

    Args:
        func: a candidate, in backward and without gradients.
        args: its arguments.
        made_by: the operator just before it if that made its first argument, else None.
        written: whether the last operator that was run in place wrote to its first argument. The formula's temporaries
            still hold that as often as it was written to.
    """
    if not called_by_engine():
        return None  # the reader's own backward formula, or hook: what it reads must stay as it is
    if func in ON_FRESH_ZEROS:
        return ON_FRESH_ZEROS[func] if made_by in ZEROS else None
    if func is aten.add.Tensor:
        return aten.add_.Tensor if _is_accumulation(*args) else None
    node = current_node()
    rules = IN_NODES.get(node.name(), {}) if node is not None else {}
    own = written or made_by is aten.where.self or reference_counts(args[0]) == ALONE
    return rules.get(func) if own else None


def _is_accumulation(held: torch.Tensor, arriving: torch.Tensor) -> bool:
    """Return True if the engine adds a gradient to one that nobody else holds.

    The conditions are those of ``can_accumulate_inplace`` in ``torch/csrc/autograd/input_buffer.cpp``.
    """
    if not isinstance(arriving, torch.Tensor) or held.shape != arriving.shape or held.layout is not torch.strided:
        return False
    return reference_counts(held) == ALONE and is_dense(held)
