"""The CUDA caching allocator, simulated."""

from memlab.allocator.blocks import Block, Segment
from memlab.allocator.caching import CachingAllocator, OutOfRoom
from memlab.allocator.checkpoints import Checkpoint, checkpoint, restore
from memlab.allocator.reading import read_settings
from memlab.allocator.settings import (
    EXPANDABLE,
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
    "EXPANDABLE",
    "LARGE_LIMIT",
    "LARGE_SEGMENT",
    "ROUND",
    "SEGMENT_ROUND",
    "SMALL_LIMIT",
    "SMALL_SEGMENT",
    "Block",
    "CachingAllocator",
    "Checkpoint",
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
