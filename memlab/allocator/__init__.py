"""The CUDA caching allocator, simulated; the same with expandable segments."""

from memlab.allocator.caching import (
    LARGE_LIMIT,
    LARGE_SEGMENT,
    ROUND,
    SEGMENT_ROUND,
    SMALL_LIMIT,
    SMALL_SEGMENT,
    Block,
    CachingAllocator,
    OutOfRoom,
    Segment,
    is_small,
    round_up,
    rounded,
    segment_size,
)
from memlab.allocator.expandable import ExpandableAllocator

__all__ = [
    "LARGE_LIMIT",
    "LARGE_SEGMENT",
    "ROUND",
    "SEGMENT_ROUND",
    "SMALL_LIMIT",
    "SMALL_SEGMENT",
    "Block",
    "CachingAllocator",
    "ExpandableAllocator",
    "OutOfRoom",
    "Segment",
    "is_small",
    "round_up",
    "rounded",
    "segment_size",
]
