"""Temporary storage of CUB, NVIDIA's library of sorts and scans: one allocation a call.

Each is made of parts of whole 256 bytes and 255 more (``AliasTemporaries``). How many items a block of threads takes is
tuned for each generation of cards (``cub/device/dispatch/tuning``, the same in CUDA 13.0 and 13.2).
"""

from memlab.vgpu.cards import Card

DIGITS = 256  # of eight bits, which one pass over the keys sorts by
MERGED = 2048  # keys of eight bytes that a block of threads sorts before they are merged
PADDING = 32  # tiles that a scan adds for its first warp to look back at


def radix_sort(card: Card, count: int, key: int, value: int, bits: int) -> int:
    """Bytes to sort by the lowest ``bits`` of ``key`` bytes each, with ``value`` bytes carried along.

    ``DispatchRadixSort``: a single tile needs nothing, small keys on older cards are counted and moved by turns, all
    others are sorted in one sweep for every eight bits.
    """
    if count <= 256 * (19 * 4 // max(key, value, 4)):
        return 1
    if key < 4 and card.sm < 90:
        return aliased(8 * _spine(card, key), count * key, count * value)
    tile = _sort_tile(card, key, value)
    portions = -(-count // ((2**28 - 1) // tile * tile))
    passes = -(-bits // 8)
    twice = passes > 1
    parts = (8 * DIGITS * portions * passes, 4 * DIGITS * -(-count // tile), twice * count * key, twice * count * value)
    return aliased(*parts, 4 * portions * passes)


def unique_by_key(card: Card, count: int, key: int, *, state: int = 16) -> int:
    """Bytes to keep the first of equal neighbours among keys of four or eight bytes; each tile tells ``state``."""
    if card.sm == 80:
        tile = 1344 if key == 8 else 2816
    elif card.sm >= 90:
        tile = 4928 if key == 8 else 7168
    else:
        tile = 320 if key == 8 else 704
    return aliased(state * (-(-count // tile) + PADDING), 1)


def thrust_unique_by_key(card: Card, count: int, key: int) -> int:
    """The same for ``thrust::unique_by_key``, which counts in four bytes and keeps the number of those left beside."""
    return aliased(8, unique_by_key(card, count, key, state=8))


def merge_sort(count: int, key: int, value: int) -> int:
    """Bytes to sort by an order of one's own, as ``thrust::sort_by_key`` does: ``DispatchMergeSort``.

    Tiles of 16 KiB of keys, and where each two of them part; keys and what goes with them once more.
    """
    return aliased(4 * (-(-count // MERGED) + 1), count * key, count * value)


def running_sum(count: int, element: int) -> int:
    """Bytes for the sums of all before each element, of four or eight bytes."""
    tile, state = (896, 16) if element == 8 else (1920, 8)
    return aliased(state * (-(-count // tile) + PADDING), 1)


def unique(count: int) -> int:
    """Bytes to drop what equals its neighbour."""
    return aliased(8 * (-(-count // 640) + PADDING), 1)


def bits_of(number: int) -> int:
    """Return the number of bits of keys up to ``number``: ``cuda::cub::get_num_bits``."""
    return max(number, 1).bit_length()


def aliased(*parts: int) -> int:
    """Bytes of an allocation of these parts."""
    return sum(-(-part // 256) * 256 for part in parts) + 255


def _spine(card: Card, key: int) -> int:
    """Counters of ``InvokePasses``: a digit for each block of a full card, five times over, and one tile of a scan."""
    digits, threads = (32, 128) if key == 1 else (128, 256)
    return 5 * card.processors * (card.threads // threads) * digits + 512 * 11


def _sort_tile(card: Card, key: int, value: int) -> int:
    if card.sm < 80:
        return 256 * 46 if max(key, value) == 4 else 256 * 11
    if key == 4:
        return 384 * 17 if value <= 4 else 256 * 12 if card.sm < 90 else 384 * 14
    if card.sm < 90:
        return 256 * 15
    return {1: 384 * 9, 2: 512 * 11}.get(key, 384 * 15 if value == 0 else 384 * 12)
