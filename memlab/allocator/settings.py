"""The settings of PyTorch's caching allocator, and the sizes that follow from them.

Rules and bounds are those of ``c10/core/AllocatorConfig.cpp`` and ``c10/cuda/CUDACachingAllocator.cpp``.
"""

from dataclasses import dataclass

from memlab.errors import BadValue
from memlab.units import MIB

ROUND = 512
SMALL_LIMIT = MIB  # up to here an allocation is small, and so much must remain for a large block to be split
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
LARGE_LIMIT = 10 * MIB  # from here on an allocation gets a segment of its own size
SEGMENT_ROUND = 2 * MIB
INTERVALS = 16  # of sizes, from 1 MiB on, each twice the one before; the last has no end


def check(holds: bool, name: str, value: object, legal: str) -> None:
    """A setting that has a legal value.

    Raises:
        BadValue: it ``holds`` not.
    """
    if not holds:
        raise BadValue(f"{name}:{value} is not allowed: give {legal}.")


@dataclass(frozen=True)
class Settings:
    """The allocator's rules for rounding, splitting and collecting blocks. Sizes in bytes.

    Attributes:
        expandable: one segment for each pool, which grows (``expandable_segments``).
        max_split_size: blocks from here on are *oversized*: never split, and kept for allocations that are oversized
            too. None: there are none.
        max_non_split_rounding: so much an oversized block may be larger than what was asked for.
        large_segment: the segment of an allocation above 1 and below 10 MiB, and the page of expandable ones.
        divisions: into how many parts the sizes between two powers of two are divided, to round up to the next; one
            number for each interval, 0: round to 512 bytes (``roundup_power2_divisions``).
        threshold: above this part of what is allowed, old free segments are given back before new ones are asked for;
            0: never. PyTorch does so only where a fraction of the card was set (``garbage_collection_threshold``).
        fraction: of the card that may be held, None: all of it (``per_process_memory_fraction``).
        older_first: of free blocks of one size that of the older segment serves first, as since torch 2.13; else the
            one at the lower address. Not a setting, but a rule of the version (pytorch/pytorch#183591).
        unfollowed: settings that change what a card would hold, and that no prediction follows.

    Raises:
        BadValue: for a value that PyTorch would refuse, too.
    """

    expandable: bool = False
    max_split_size: int | None = None
    max_non_split_rounding: int = LARGE_SEGMENT
    large_segment: int = LARGE_SEGMENT
    divisions: tuple[int, ...] = (0,) * INTERVALS
    threshold: float = 0.0
    fraction: float | None = None
    older_first: bool = True
    unfollowed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check(self.large_segment > LARGE_LIMIT, "large_segment_size_mb", self.large_segment // MIB, "more than 10")
        for name, size in (
            ("max_split_size_mb", self.max_split_size),
            ("max_non_split_rounding_mb", self.max_non_split_rounding),
        ):
            check(size is None or size >= LARGE_SEGMENT, name, (size or 0) // MIB, "20 or more")
        check(0 <= self.threshold < 1, "garbage_collection_threshold", self.threshold, "a number between 0 and 1")
        check(self.fraction is None or 0 <= self.fraction <= 1, "per_process_memory_fraction", self.fraction, "0 to 1")
        for number in self.divisions:
            check(number & (number - 1) == 0, "roundup_power2_divisions", number, "powers of two")

    def rounded(self, asked: int) -> int:
        """Rule 1: a block's size, a multiple of 512 bytes, or the next part of a power of two."""
        divisions = self.divisions[min(max(asked.bit_length() - MIB.bit_length(), 0), INTERVALS - 1)]
        if divisions < 2 or asked <= ROUND * divisions:
            return rounded(asked)
        return round_up(asked, (1 << asked.bit_length() - 1) // divisions)

    def segment_size(self, size: int) -> int:
        """Rule 4: how much is asked of the driver for a block of ``size`` bytes."""
        if is_small(size):
            return SMALL_SEGMENT
        return self.large_segment if size < LARGE_LIMIT else round_up(size, SEGMENT_ROUND)

    def oversized(self, size: int) -> bool:
        """Rule 10: whether blocks of this size are never split."""
        return self.max_split_size is not None and size >= self.max_split_size


def rounded(asked: int) -> int:
    """Rule 1, with PyTorch's own settings: a block's size, a multiple of 512 bytes."""
    return max(ROUND, round_up(asked, ROUND))


def segment_size(size: int) -> int:
    """Rule 4, with PyTorch's own settings: how much is asked of the driver for a block of ``size`` bytes."""
    return DEFAULT.segment_size(size)


def is_small(size: int) -> bool:
    """Rule 2: whether a block of ``size`` bytes comes from the small pool."""
    return size <= SMALL_LIMIT


def round_up(size: int, step: int) -> int:
    """The first multiple of ``step`` that is not below ``size``."""
    return -(-size // step) * step


DEFAULT = Settings()
EXPANDABLE = Settings(expandable=True)
