"""cuDNN's fused attention: the workspaces of its plans.

They are arithmetic of the shapes, fitted to what cuDNN 9.19, 9.20 and 9.26 answered for sm_80, sm_89, sm_90 and sm_100,
and 9.20 for sm_120: ``tests/vgpu/test_attention_cudnn.py`` has the answers.
"""

from collections.abc import Iterable
from typing import Any

from memlab.vgpu.cards import Card
from memlab.vgpu.scratch.rule import RESULT, Step

HOPPER, BLACKWELL = 90, 100


def forward_workspace(card: Card) -> int:
    """Bytes beside the results."""
    return 256 if card.sm == HOPPER else 0


def backward(card: Card, args: tuple[Any, ...], out: Any) -> Iterable[Step]:
    """``run_cudnn_SDP_bprop``: the gradients, then the workspace."""
    query, key = args[1], args[2]
    batch, heads, length, width = query.shape
    rows = 4 * batch * heads
    # The row sums of softmax's backward and a float32 gradient of the queries; where the kernel is not of Hopper or of
    # Blackwell (whose is for more than 128 tokens) another of these, of whole blocks of 8 queries. With fewer key
    # heads, gradients of keys and values for each query head.
    grouped = key.shape[1] != heads
    size = rows * length * (1 + width)
    if card.sm == HOPPER:
        size += 256
    elif card.sm == BLACKWELL and min(length, key.shape[2]) > 128:
        size += 128 if grouped else 0
    else:
        size += rows * -(-length // 8) * 8 * width + 128
    if grouped:
        size += 2 * batch * heads * key.shape[2] * width * key.element_size()
    return RESULT, size
