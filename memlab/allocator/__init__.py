"""The CUDA caching allocator, simulated; the same with expandable segments."""

from memlab.allocator.blocks import Block, Segment
from memlab.allocator.caching import CachingAllocator, OutOfRoom
from memlab.allocator.checkpoints import Checkpoint, checkpoint, restore
from memlab.allocator.expandable import ExpandableAllocator
from memlab.allocator.reading import read_settings
from memlab.allocator.settings import (
    LARGE_LIMIT,
    LARGE_SEGMENT,
    ROUND,
    SEGMENT_ROUND,
    SMALL_LIMIT,
    SMALL_SEGMENT,
    Settings,
    is_small,
    round_up,
    rounded,
    segment_size,
)

__all__ = [
    "LARGE_LIMIT",
    "LARGE_SEGMENT",
    "ROUND",
    "SEGMENT_ROUND",
    "SMALL_LIMIT",
    "SMALL_SEGMENT",
    "Block",
    "CachingAllocator",
    "Checkpoint",
    "ExpandableAllocator",
    "OutOfRoom",
    "Segment",
    "Settings",
    "checkpoint",
    "is_small",
    "read_settings",
    "restore",
    "round_up",
    "rounded",
    "segment_size",
]
