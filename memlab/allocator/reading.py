"""The allocator's settings from the words of ``PYTORCH_ALLOC_CONF``.

Names and forms are those of ``c10/core/AllocatorConfig.cpp`` and ``c10/cuda/CUDAAllocatorConfig.cpp``; the names of all
versions together.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from memlab.allocator.settings import INTERVALS, Settings, check
from memlab.errors import BadValue
from memlab.units import MIB


def read_settings(text: str) -> Settings:
    """The settings that a text like ``"expandable_segments:True,max_split_size_mb:64"`` gives.

    Raises:
        BadValue: for a name that PyTorch does not know, or a value that it would refuse.
    """
    found: dict[str, Any] = {}
    unfollowed = []
    for name, value in _pairs(text):
        if name not in _READERS:
            names = ", ".join(sorted(_READERS))
            raise BadValue(f"Unrecognized key {name!r} in PYTORCH_ALLOC_CONF: give some of {names}.")
        field, read = _READERS[name]
        if field:
            found[field] = read(name, value)
        elif _is_unfollowed(name, value):
            unfollowed.append(f"{name}:{value}")
    return Settings(**found, unfollowed=tuple(unfollowed))


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Names and values; a value may be a list in brackets, which has commas and colons of its own."""
    rest = re.sub(r"\s", "", text)
    while rest:
        match = re.match(r"([^,:\[\]]+):(\[[^\]]*\]|[^,:\[\]]+)(?:,|$)", rest)
        if match is None:
            raise BadValue(f"PYTORCH_ALLOC_CONF has {rest!r}, which is no setting: write name:value,name:value.")
        yield match[1], match[2]
        rest = rest[match.end() :]


def _truth(name: str, value: str) -> bool:
    check(value in ("True", "False"), name, value, "True or False")
    return value == "True"


def _mebibytes(name: str, value: str) -> int:
    check(value.isdecimal(), name, value, "a whole number of MiB")
    return int(value) * MIB


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise BadValue(f"{name}:{value} is not a number: give one like 0.8.") from None


def _divisions(name: str, value: str) -> tuple[int, ...]:
    """``"4"`` for all sizes, or ``"[256:1,512:2,>:4]"``: a number for each interval, by its first size in MiB."""
    if not value.startswith("["):
        check(value.isdecimal() and value != "0", name, value, "a power of two")
        return (int(value),) * INTERVALS
    found = [0] * INTERVALS
    last = None
    for part in value[1:-1].split(","):
        size, _, number = part.partition(":")
        check(number.isdecimal() and (size == ">" or size.isdecimal()), name, part, "size:number, as in [256:1,>:4]")
        if size == ">":
            after = (last or 0) + 1
            found[after:] = [int(number)] * (INTERVALS - after)
            continue
        check(int(size) > 0 and int(size) & int(size) - 1 == 0, name, part, "a size that is a power of two")
        place = min(int(size).bit_length() - 1, INTERVALS - 1)
        first = 0 if last is None else place  # the first given counts for all below it
        found[first : place + 1] = [int(number)] * (place + 1 - first)
        last = place
    return tuple(found)


def _is_unfollowed(name: str, value: str) -> bool:
    """Return True if memlab ignores this setting although it would change what the card holds."""
    return (name, value) in (("backend", "cudaMallocAsync"), ("throw_on_cudamalloc_oom", "True"))


_READERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "expandable_segments": ("expandable", _truth),
    "max_split_size_mb": ("max_split_size", _mebibytes),
    "max_non_split_rounding_mb": ("max_non_split_rounding", _mebibytes),
    "large_segment_size_mb": ("large_segment", _mebibytes),
    "roundup_power2_divisions": ("divisions", _divisions),
    "garbage_collection_threshold": ("threshold", _number),
    "per_process_memory_fraction": ("fraction", _number),
    # These change nothing on the card that is predicted: the host's pinned memory, locks, streams, addresses.
    **dict.fromkeys(
        (
            "backend",
            "expandable_segments_reserve",
            "expandable_segments_reserve_by_class",
            "graph_capture_record_stream_reuse",
            "pinned_free_catch_all",
            "pinned_max_cached_size_mb",
            "pinned_max_round_threshold_mb",
            "pinned_num_register_threads",
            "pinned_reserve_segment_size_mb",
            "pinned_use_background_threads",
            "pinned_use_cuda_host_register",
            "release_lock_on_cudamalloc",
            "throw_on_cudamalloc_oom",
        ),
        ("", _truth),
    ),
}
