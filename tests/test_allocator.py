"""The simulated caching allocator: each rule by hand, and what must always hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.allocator import CachingAllocator, OutOfRoom, rounded, segment_size
from memlab.units import MIB


@pytest.mark.parametrize(("asked", "size"), [(1, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512)])
def test_rule_1_sizes_are_rounded_up_to_512(asked, size):
    assert rounded(asked) == size
    assert CachingAllocator().allocate(asked).size == size


def test_rule_1_nothing_is_allocated_for_nothing():
    allocator = CachingAllocator()
    assert allocator.allocate(0) is None
    assert (allocator.allocated, allocator.reserved) == (0, 0)


def test_rule_2_small_and_large_never_share_a_segment():
    allocator = CachingAllocator()
    large = allocator.allocate(2 * MIB)
    small = allocator.allocate(MIB)
    assert (large.segment.small, small.segment.small) == (False, True)
    assert allocator.reserved == 22 * MIB


def test_rule_3_the_best_fit_wins_then_the_lowest_address():
    allocator = CachingAllocator()
    sizes = [64, 16, 64, 8, 64, 16, 64]
    blocks = [allocator.allocate(size * 1024) for size in sizes]
    for block in (blocks[1], blocks[3], blocks[5]):
        allocator.release(block)
    assert allocator.allocate(8 * 1024).address == blocks[3].address
    assert allocator.allocate(12 * 1024).address == blocks[1].address  # two holes of 16 KiB: the lower one


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (33 * MIB, 34 * MIB),
    ],
)
def test_rule_4_segments_have_these_sizes(size, segment):
    assert segment_size(size) == segment
    allocator = CachingAllocator()
    allocator.allocate(size)
    assert allocator.reserved == segment


def test_rule_5_and_6_a_large_block_with_little_to_spare_is_not_split_and_counts_whole():
    allocator = CachingAllocator()
    assert allocator.allocate(11 * MIB).size == 12 * MIB  # 1 MiB over: not more than 1 MiB, not split
    assert allocator.allocated == 12 * MIB
    other = CachingAllocator()
    assert other.allocate(2 * MIB).size == 2 * MIB  # 18 MiB over: split
    assert other.allocated == 2 * MIB


def test_rule_7_free_neighbours_merge_and_the_segment_stays():
    allocator = CachingAllocator()
    blocks = [allocator.allocate(MIB // 2) for _ in range(4)]
    for block in (blocks[0], blocks[2], blocks[1], blocks[3]):
        allocator.release(block)
    (segment,) = allocator.segments.values()
    assert segment.unsplit
    assert (allocator.allocated, allocator.reserved) == (0, 2 * MIB)


def test_rule_8_cached_segments_are_given_back_before_it_is_out_of_room():
    allocator = CachingAllocator(limit=40 * MIB)
    cached = allocator.allocate(30 * MIB)
    allocator.release(cached)
    assert allocator.reserved == 30 * MIB
    allocator.allocate(32 * MIB)  # does not fit beside the cached 30 MiB
    assert allocator.reserved == 32 * MIB
    with pytest.raises(OutOfRoom) as error:
        allocator.allocate(16 * MIB)
    assert error.value.asked == 16 * MIB
    assert (allocator.allocated, allocator.reserved) == (32 * MIB, 32 * MIB)


def test_fragmentation_keeps_a_segment_from_being_given_back():
    allocator = CachingAllocator(limit=20 * MIB)
    blocks = [allocator.allocate(4 * MIB) for _ in range(5)]
    for block in blocks[::2]:
        allocator.release(block)
    with pytest.raises(OutOfRoom):
        allocator.allocate(8 * MIB)  # 12 MiB are free, but in three pieces
    assert allocator.empty_cache() == 0


def test_peaks_are_kept():
    allocator = CachingAllocator()
    allocator.release(allocator.allocate(30 * MIB))
    allocator.empty_cache()
    assert (allocator.allocated, allocator.reserved) == (0, 0)
    assert (allocator.peak_allocated, allocator.peak_reserved) == (30 * MIB, 30 * MIB)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), st.integers(1, 40 * MIB) | st.integers(1, 4096)),
        st.tuples(st.just("release"), st.integers(0, 99)),
        st.tuples(st.just("empty"), st.just(0)),
    ),
    max_size=60,
)


@given(ACTIONS, st.none() | st.integers(0, 200 * MIB))
def test_what_always_holds(actions, limit):
    allocator, live = CachingAllocator(limit=limit), []
    for action, number in actions:
        if action == "allocate":
            try:
                live.append(allocator.allocate(number))
                assert live[-1].size >= number
            except OutOfRoom:
                assert limit is not None
        elif action == "release" and live:
            allocator.release(live.pop(number % len(live)))
        elif action == "empty":
            allocator.empty_cache()
        check(allocator, live, limit)


def check(allocator, live, limit):
    end = -1
    for segment in sorted(allocator.segments.values(), key=lambda segment: segment.address):
        assert segment.address >= end  # segments do not overlap
        end = segment.address
        neighbour_is_free = False
        for block in segment.blocks():
            assert block.address == end  # blocks neither overlap nor leave gaps
            assert not (block.free and neighbour_is_free)  # merging leaves no two free neighbours
            neighbour_is_free, end = block.free, block.address + block.size
        assert end == segment.address + segment.size
    held = [block for segment in allocator.segments.values() for block in segment.blocks() if not block.free]
    assert {id(block) for block in held} == {id(block) for block in live}  # emptying the cache keeps live blocks
    assert allocator.allocated == sum(block.size for block in live)
    assert allocator.allocated <= allocator.reserved == sum(s.size for s in allocator.segments.values())
    assert limit is None or allocator.reserved <= limit
