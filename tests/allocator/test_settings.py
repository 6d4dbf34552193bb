"""The allocator's settings: as PyTorch reads them, and what follows."""

from dataclasses import replace

import pytest

from memlab.allocator import EXPANDABLE, CachingAllocator, OutOfRoom, Settings, read_settings
from memlab.errors import BadValue
from memlab.units import MIB


def test_nothing_set_is_the_default():
    assert read_settings("") == Settings()


def test_every_setting_is_read():
    text = (
        "expandable_segments:True, max_split_size_mb:64,max_non_split_rounding_mb:30,large_segment_size_mb:40,"
        "roundup_power2_divisions:8,garbage_collection_threshold:0.8,per_process_memory_fraction:0.5"
    )
    assert read_settings(text) == Settings(
        expandable=True,
        max_split_size=64 * MIB,
        max_non_split_rounding=30 * MIB,
        large_segment=40 * MIB,
        divisions=(8,) * 16,
        threshold=0.8,
        fraction=0.5,
    )


@pytest.mark.parametrize(
    ("text", "divisions"),
    [
        ("[256:1,512:2,1024:4,>:8]", [1] * 9 + [2, 4] + [8] * 5),
        ("[4:2,64:8,>:1]", [2, 2, 2, 0, 0, 0, 8] + [1] * 9),
        ("[>:4]", [0] + [4] * 15),
        ("[65536:2]", [2] * 16),
    ],
)
def test_divisions_by_size(text, divisions):
    assert list(read_settings(f"roundup_power2_divisions:{text},max_split_size_mb:64").divisions) == divisions


@pytest.mark.parametrize(
    ("asked", "divisions", "size"),
    [
        (MIB + 1, 4, MIB + MIB // 4),
        (MIB, 4, MIB),
        (33 * MIB, 4, 40 * MIB),
        (33 * MIB, 1, 33 * MIB),
        (33 * MIB + 7, 1, 33 * MIB + 512),
        (600, 1, 1024),  # one part is none
        (500, 1, 512),
        (2048, 4, 2048),
        (2049, 4, 2560),
        (2000, 4, 2048),  # up to 512 bytes a division the plain rule holds
        (33 * MIB + 7, 0, 33 * MIB + 512),
    ],
)
def test_rule_1_with_divisions(asked, divisions, size):
    settings = Settings(divisions=(divisions,) * 16)
    assert settings.rounded(asked) == size
    assert CachingAllocator(settings=replace(settings, expandable=True)).allocate(asked).size == size


def test_rule_4_with_other_segments():
    settings = Settings(large_segment=64 * MIB)
    for its in (settings, replace(settings, expandable=True)):
        allocator = CachingAllocator(settings=its)
        allocator.allocate(3 * MIB)
        allocator.allocate(50 * MIB)  # in what is left of the first segment, or page
        allocator.allocate(MIB)
        assert allocator.reserved == 66 * MIB


def test_rule_10_with_more_to_spare():
    for rounding, reserved in ((20, 64 + 40), (30, 64)):
        settings = Settings(max_split_size=32 * MIB, max_non_split_rounding=rounding * MIB)
        allocator = CachingAllocator(settings=settings)
        allocator.release(allocator.allocate(64 * MIB))
        allocator.allocate(40 * MIB)
        assert allocator.reserved == reserved * MIB


def collected(allowed):
    """Return the segments, in MiB, that are left of 30, 40 and 50 MiB, freed in this order, once 60 MiB are needed."""
    allocator = CachingAllocator(allowed=allowed, settings=Settings(threshold=0.5))
    for size in (30, 40, 50):
        allocator.release(allocator.allocate(size * MIB))
    allocator.allocate(60 * MIB)
    return sorted(segment.size // MIB for segment in allocator.segments.values())


def test_rule_11_segments_of_at_least_the_mean_age_are_given_back_above_the_threshold():
    assert collected(240 * MIB) == [30, 40, 50, 60]  # 120 MiB are held: not above
    assert collected(238 * MIB) == [50, 60]  # above: the two older ones, though one would be enough
    assert collected(140 * MIB) == [50, 60]
    assert collected(90 * MIB) == [60]  # then the next


def test_rule_11_needs_a_limit():
    assert collected(None) == [30, 40, 50, 60]


def test_rule_11_leaves_what_is_in_use():
    allocator = CachingAllocator(allowed=200 * MIB, settings=Settings(threshold=0.1))
    allocator.allocate(30 * MIB)
    allocator.release(allocator.allocate(MIB))
    allocator.allocate(40 * MIB)
    assert sorted(segment.size // MIB for segment in allocator.segments.values()) == [2, 30, 40]


def test_what_the_driver_has_and_what_is_allowed_are_two_limits():
    for settings in (Settings(), EXPANDABLE):
        allocator = CachingAllocator(limit=100 * MIB, allowed=45 * MIB, settings=settings)
        blocks = [allocator.allocate(19 * MIB) for _ in range(2)]
        with pytest.raises(OutOfRoom) as error:
            allocator.allocate(3 * MIB)
        assert (error.value.asked, error.value.segment) == (3 * MIB, 20 * MIB)
        assert (allocator.retries, allocator.failures) == (1, 1)
        allocator.release(blocks[0])
        allocator.allocate(3 * MIB)
        assert allocator.reserved == 40 * MIB


def test_a_new_segment_lies_at_the_lowest_address_where_it_fits():
    allocator = CachingAllocator()
    blocks = [allocator.allocate(size * MIB) for size in (30, 40, 50)]
    for block in blocks[:2]:
        allocator.release(block)
    allocator.empty_cache()
    assert [allocator.allocate(size * MIB).address // MIB for size in (80, 20, 50)] == [120, 0, 20]


@pytest.mark.parametrize(("older_first", "taken"), [(True, "older"), (False, "lower")])
def test_rule_3_of_equal_blocks_the_one_in_the_older_segment_or_at_the_lower_address(older_first, taken):
    allocator = CachingAllocator(settings=Settings(older_first=older_first))
    below, older = allocator.allocate(40 * MIB), allocator.allocate(30 * MIB)
    allocator.release(below)
    allocator.empty_cache()
    lower = allocator.allocate(30 * MIB)
    assert lower.address < older.address
    places = {"older": older.address, "lower": lower.address}
    for block in (lower, older):
        allocator.release(block)
    assert allocator.allocate(30 * MIB).address == places[taken]


def test_rule_10_holds_in_expandable_segments_but_for_what_is_given_back():
    allocator = CachingAllocator(limit=200 * MIB, settings=Settings(expandable=True, max_split_size=64 * MIB))
    large = allocator.allocate(80 * MIB)
    allocator.allocate(20 * MIB)
    allocator.release(large)
    assert allocator.allocate(10 * MIB).address == 100 * MIB + large.segment.address
    assert allocator.reserved == 120 * MIB


def test_rule_10_a_block_that_was_refused_is_taken_where_it_lies_before_the_next_page():
    allocator = CachingAllocator(settings=Settings(expandable=True, max_split_size=64 * MIB))
    allocator.release(allocator.allocate(80 * MIB))
    assert allocator.allocate(10 * MIB).size == 10 * MIB
    assert allocator.reserved == 80 * MIB


def test_rule_9_another_segment_begins_where_the_addresses_of_the_first_are_used_up():
    allocator = CachingAllocator(settings=EXPANDABLE, limit=100 * MIB, space=110 * MIB)
    first, hole, _ = [allocator.allocate(size * MIB) for size in (20, 40, 20)]
    allocator.release(hole)
    block = allocator.allocate(60 * MIB)  # 40 are free below and 40 above, but not in one piece
    assert (block.segment is first.segment, block.size) == (False, 60 * MIB)
    assert allocator.reserved == 100 * MIB


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo:1", "Unrecognized key 'foo' in PYTORCH_ALLOC_CONF: give some of backend, expandable_segments, "),
        ("expandable_segments:true", "expandable_segments:true is not allowed: give True or False"),
        ("expandable_segments", "'expandable_segments', which is no setting: write name:value,name:value"),
        ("expandable_segments=True", "which is no setting"),
        ("max_split_size_mb:19", "max_split_size_mb:19 is not allowed: give 20 or more"),
        ("max_split_size_mb:x", "max_split_size_mb:x is not allowed: give a whole number of MiB"),
        ("max_non_split_rounding_mb:1", "max_non_split_rounding_mb:1 is not allowed: give 20 or more"),
        ("large_segment_size_mb:10", "large_segment_size_mb:10 is not allowed: give more than 10"),
        ("garbage_collection_threshold:1.0", "garbage_collection_threshold:1.0 is not allowed: give a number between"),
        ("garbage_collection_threshold:much", "garbage_collection_threshold:much is not a number: give one like 0.8"),
        ("per_process_memory_fraction:2", "per_process_memory_fraction:2.0 is not allowed: give 0 to 1"),
        ("roundup_power2_divisions:3", "roundup_power2_divisions:3 is not allowed: give powers of two"),
        ("roundup_power2_divisions:0", "roundup_power2_divisions:0 is not allowed: give a power of two"),
        ("roundup_power2_divisions:[3:2]", "roundup_power2_divisions:3:2 is not allowed: give a size that is a power"),
        ("roundup_power2_divisions:[4]", "give size:number, as in"),
    ],
)
def test_what_pytorch_refuses_is_refused_in_a_sentence(text, message):
    with pytest.raises(BadValue, match=message.replace("[", r"\[")):
        read_settings(text)
