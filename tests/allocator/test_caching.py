"""The simulated caching allocator: each rule by hand, and what must always hold."""

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlab.allocator import (
    EXPANDABLE,
    CachingAllocator,
    OutOfRoom,
    Settings,
    checkpoint,
    restore,
    rounded,
    segment_size,
)
from memlab.errors import BadValue
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


def oversized_from_32(limit=None):
    return CachingAllocator(limit=limit, settings=Settings(max_split_size=32 * MIB))


def test_rule_10_an_oversized_block_is_never_split():
    allocator = oversized_from_32()
    allocator.release(allocator.allocate(64 * MIB))
    block = allocator.allocate(48 * MIB)  # 16 MiB to spare: the same block, whole
    assert (block.size, allocator.reserved) == (64 * MIB, 64 * MIB)


def test_rule_10_an_oversized_block_is_not_taken_where_20_mib_would_be_idle():
    allocator = oversized_from_32()
    allocator.release(allocator.allocate(64 * MIB))
    assert allocator.allocate(44 * MIB).size == 44 * MIB
    assert allocator.reserved == 108 * MIB


def test_rule_10_what_is_not_oversized_keeps_away_from_oversized_blocks():
    sizes = (30 * MIB, 4 * MIB)
    allocator, plain = oversized_from_32(), CachingAllocator()
    for one in (allocator, plain):
        one.release(one.allocate(64 * MIB))
        for size in sizes:
            one.allocate(size)
    assert plain.reserved == 64 * MIB  # cut from the free segment
    assert allocator.reserved == (64 + 30 + 20) * MIB


def test_rule_10_one_oversized_block_that_is_large_enough_is_given_back_first():
    allocator = oversized_from_32(limit=180 * MIB)
    blocks = [allocator.allocate(size * MIB) for size in (20, 36, 48, 76)]
    for block in blocks:
        allocator.release(block)
    allocator.allocate(2 * MIB)  # in the 20 MiB
    allocator.allocate(27 * MIB)  # its segment of 28 MiB needs room: the smallest oversized block goes, the rest stays
    assert sorted(segment.size // MIB for segment in allocator.segments.values()) == [20, 28, 48, 76]


def test_rule_10_else_several_are_given_back_the_largest_first():
    allocator = oversized_from_32(limit=140 * MIB)
    for block in [allocator.allocate(size * MIB) for size in (34, 44, 60)]:
        allocator.release(block)
    allocator.allocate(96 * MIB)
    assert sorted(segment.size // MIB for segment in allocator.segments.values()) == [34, 96]


def test_rule_10_the_limit_must_not_be_below_20_mib():
    assert Settings(max_split_size=20 * MIB).oversized(20 * MIB)
    with pytest.raises(BadValue, match="max_split_size_mb:19 is not allowed: give 20 or more"):
        Settings(max_split_size=19 * MIB)


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


def test_rule_9_allocated_is_what_was_asked_for_and_reserved_is_whole_pages():
    allocator = CachingAllocator(settings=EXPANDABLE)
    allocator.allocate(11 * MIB)  # counts 12 MiB in a segment of its own
    assert (allocator.allocated, allocator.reserved) == (11 * MIB, 20 * MIB)
    allocator.allocate(25 * MIB)  # 9 MiB are there: 16 more are one page
    assert (allocator.allocated, allocator.reserved) == (36 * MIB, 40 * MIB)
    allocator.allocate(45 * MIB)  # 4 MiB are there: 41 more are three pages
    assert (allocator.allocated, allocator.reserved) == (81 * MIB, 100 * MIB)
    allocator.allocate(700)
    assert (allocator.allocated, allocator.reserved) == (81 * MIB + 1024, 102 * MIB)


def test_rule_9_each_pool_has_one_segment_that_grows_in_place():
    allocator = CachingAllocator(settings=EXPANDABLE)
    small = [allocator.allocate(MIB) for _ in range(5)]
    large = [allocator.allocate(15 * MIB) for _ in range(5)]
    for blocks, size in ((small, MIB), (large, 15 * MIB)):
        first = blocks[0].address
        assert [block.address for block in blocks] == [first + number * size for number in range(5)]
    held = [(segment["segment_type"], segment["total_size"]) for segment in allocator.snapshot()]
    assert held == [("small", 6 * MIB), ("large", 80 * MIB)]


def test_rule_9_a_free_block_at_the_end_grows():
    allocator = CachingAllocator(settings=EXPANDABLE)
    allocator.release(allocator.allocate(40 * MIB))
    assert allocator.allocate(60 * MIB).size == 60 * MIB
    assert allocator.reserved == 60 * MIB  # ordinary segments: 100 MiB, or out of memory


def test_rule_9_a_hole_is_preferred_to_the_end_that_can_grow():
    allocator = CachingAllocator(settings=EXPANDABLE)
    kept, hole, _ = [allocator.allocate(size * MIB) for size in (5, 10, 17)]  # 8 MiB remain at the end
    allocator.release(hole)
    assert allocator.allocate(6 * MIB).address == kept.address + kept.size  # 8 MiB would fit best


def test_rule_9_whole_free_pages_are_given_back_from_between_live_blocks():
    allocator = CachingAllocator(settings=EXPANDABLE)
    before, hole, after = [allocator.allocate(size * MIB) for size in (15, 50, 15)]
    allocator.release(hole)
    assert allocator.empty_cache() == 40 * MIB  # from 20 to 60 MiB; 5 MiB remain on each side
    assert (allocator.allocated, allocator.reserved) == (30 * MIB, 40 * MIB)
    low, high = allocator.snapshot()
    assert [block["size"] for block in low["blocks"]] == [15 * MIB, 5 * MIB]
    assert [block["size"] for block in high["blocks"]] == [5 * MIB, 15 * MIB]
    assert high["address"] - low["address"] == 60 * MIB
    assert allocator.empty_cache() == 0
    assert not before.free
    assert not after.free


def test_rule_9_pages_that_were_given_back_are_mapped_again_at_the_lowest_address():
    allocator = CachingAllocator(settings=EXPANDABLE)
    first, hole, _ = [allocator.allocate(size * MIB) for size in (15, 50, 15)]
    allocator.release(hole)
    allocator.empty_cache()
    block = allocator.allocate(30 * MIB)  # 5 free before the gap: 25 more are two pages
    assert block.address == first.address + 15 * MIB
    assert allocator.reserved == 80 * MIB
    assert len(allocator.snapshot()) == 1


def test_rule_9_a_gap_that_is_too_narrow_is_passed_over():
    allocator = CachingAllocator(settings=EXPANDABLE)
    first, hole, last = [allocator.allocate(size * MIB) for size in (15, 50, 15)]
    allocator.release(hole)
    allocator.empty_cache()
    block = allocator.allocate(51 * MIB)  # one more than lies between the live blocks
    assert block.address == last.address + last.size
    assert allocator.reserved == 40 * MIB + 60 * MIB
    assert first.address + 65 * MIB == last.address


def test_rule_9_free_pages_are_given_back_before_it_is_out_of_room():
    allocator = CachingAllocator(settings=EXPANDABLE, limit=62 * MIB)
    hole = allocator.allocate(20 * MIB)
    allocator.allocate(20 * MIB)
    allocator.release(hole)
    allocator.allocate(30 * MIB)  # two more pages are too many beside the free one
    assert (allocator.allocated, allocator.reserved) == (50 * MIB, 60 * MIB)
    allocator.allocate(MIB)
    with pytest.raises(OutOfRoom) as error:
        allocator.allocate(11 * MIB)  # 10 are free, and there is no room for a page
    assert error.value.asked == 11 * MIB
    assert (allocator.allocated, allocator.reserved) == (51 * MIB, 62 * MIB)


def test_rule_9_the_holes_that_stop_ordinary_segments_do_not_stop_these():
    allocator = CachingAllocator(settings=EXPANDABLE, limit=100 * MIB)
    blocks = [allocator.allocate(20 * MIB) for _ in range(5)]
    for block in blocks[::2]:
        allocator.release(block)
    assert allocator.allocate(60 * MIB).size == 60 * MIB  # three pages from elsewhere, next to one another
    assert allocator.reserved == 100 * MIB


def test_rule_9_ordinary_segments_that_were_taken_over_serve_and_are_given_back_whole():
    allocator = CachingAllocator(settings=EXPANDABLE)
    segment = allocator.add_segment(2**62, 30 * MIB, small=False)
    block = allocator.allocate(29 * MIB + MIB // 2)
    assert block.segment is segment
    assert block.size == 29 * MIB + MIB // 2
    assert allocator.empty_cache() == 0
    allocator.release(block)
    assert allocator.empty_cache() == 30 * MIB
    assert allocator.snapshot() == []


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), st.integers(1, 40 * MIB) | st.integers(1, 4096)),
        st.tuples(st.just("release"), st.integers(0, 99)),
        st.tuples(st.just("empty"), st.just(0)),
    ),
    max_size=60,
)


@pytest.mark.parametrize(
    "settings", [Settings(), EXPANDABLE, Settings(max_split_size=24 * MIB)], ids=["plain", "expandable", "split"]
)
@given(actions=ACTIONS, limit=st.none() | st.integers(0, 200 * MIB))
def test_what_always_holds(settings, actions, limit):
    allocator, live = CachingAllocator(limit=limit, settings=settings), []  # live: each block, and what was asked for
    for action, number in actions:
        if action == "allocate":
            try:
                live.append((allocator.allocate(number), number))
            except OutOfRoom:
                assert limit is not None
        elif action == "release" and live:
            allocator.release(live.pop(number % len(live))[0])
        elif action == "empty":
            reserved = allocator.reserved
            assert allocator.empty_cache() == reserved - allocator.reserved
        check(allocator, [block for block, _ in live], limit)
        assert all(block.size >= asked for block, asked in live)
        if settings.expandable:
            check_pages(allocator)
            assert allocator.allocated == sum(rounded(asked) for _, asked in live)
    for block, _ in live:
        allocator.release(block)
    allocator.empty_cache()
    assert (allocator.allocated, allocator.reserved, allocator.snapshot()) == (0, 0, [])


def check(allocator, live, limit):
    end = -1
    for segment in sorted(allocator.segments.values(), key=lambda segment: segment.address):
        assert segment.address >= end  # segments do not overlap
        end, before = segment.address, None
        for block in segment.blocks():
            assert block.address == end  # blocks neither overlap nor leave gaps
            if before and block.free and before.free:
                assert block.mapped != before.mapped  # merging leaves no two free neighbours
            before, end = block, block.address + block.size
        assert end == segment.address + segment.size
    held = [block for segment in allocator.segments.values() for block in segment.blocks() if not block.free]
    assert {id(block) for block in held} == {id(block) for block in live}  # emptying the cache keeps live blocks
    assert all(block.mapped for block in live)
    assert allocator.allocated == sum(block.size for block in live) <= allocator.peak_allocated
    snapshot = allocator.snapshot()
    assert allocator.allocated <= allocator.reserved == sum(segment["total_size"] for segment in snapshot)
    assert allocator.reserved <= allocator.peak_reserved
    assert limit is None or allocator.peak_reserved <= limit
    check_snapshot(snapshot, live)


def check_snapshot(snapshot, live):
    for segment in snapshot:
        ends = [block["address"] + block["size"] for block in segment["blocks"]]
        assert [block["address"] for block in segment["blocks"]] == [segment["address"], *ends[:-1]]
        assert ends[-1] == segment["address"] + segment["total_size"]
    blocks = [block for segment in snapshot for block in segment["blocks"]]
    active = {(block["address"], block["size"]) for block in blocks if block["state"] == "active_allocated"}
    assert active == {(block.address, block.size) for block in live}


def check_pages(allocator):
    pages = {"small": 2 * MIB, "large": 20 * MIB}
    starts = {"small" if s.small else "large": s.address for s in allocator.segments.values()}
    for segment in allocator.snapshot():
        pool = segment["segment_type"]
        assert segment["total_size"] % pages[pool] == (segment["address"] - starts[pool]) % pages[pool] == 0


def test_a_snapshot_is_plain_data_in_the_shape_of_pytorchs():
    allocator = CachingAllocator()
    hole, _ = allocator.allocate(512), allocator.allocate(3 * MIB)
    allocator.release(hole)
    large = {"address": 2 * MIB, "size": 3 * MIB, "state": "active_allocated"}
    rest = {"address": 5 * MIB, "size": 17 * MIB, "state": "inactive"}
    assert json.loads(json.dumps(allocator.snapshot())) == [
        {
            "address": 0,
            "total_size": 2 * MIB,
            "segment_type": "small",
            "stream": 0,
            "is_expandable": False,
            "segment_pool_id": [0, 0],
            "blocks": [{"address": 0, "size": 2 * MIB, "state": "inactive"}],
        },
        {
            "address": 2 * MIB,
            "total_size": 20 * MIB,
            "segment_type": "large",
            "stream": 0,
            "is_expandable": False,
            "segment_pool_id": [0, 0],
            "blocks": [large, rest],
        },
    ]


def test_the_snapshot_of_an_empty_allocator_is_empty():
    assert CachingAllocator().snapshot() == []


def test_the_snapshot_is_by_address_wherever_the_driver_places_segments():
    places = iter((50 * MIB, 10 * MIB))
    allocator = CachingAllocator(place=lambda size: next(places))
    allocator.allocate(2 * MIB)
    allocator.allocate(512)
    assert [segment["address"] for segment in allocator.snapshot()] == [10 * MIB, 50 * MIB]


@pytest.mark.parametrize("kind", [CachingAllocator, partial(CachingAllocator, settings=EXPANDABLE, space=2**30)])
def test_rule_12_a_private_pool_has_its_own_segments_until_its_graphs_are_gone(kind):
    allocator = kind()
    allocator.release(allocator.allocate(30 * MIB))
    allocator.graphs = 1
    block = allocator.allocate(30 * MIB)
    allocator.graphs = 0
    reserved = allocator.reserved
    allocator.empty_cache()
    assert allocator.reserved == reserved / 2
    allocator.release(block)
    allocator.empty_cache()
    assert allocator.reserved == reserved / 2
    assert allocator.allocate(30 * MIB).segment is not block.segment
    allocator.let_go(1)
    allocator.empty_cache()
    assert allocator.reserved == reserved / 2
    assert not allocator.used_by(1)


def test_rule_12_nothing_is_given_back_for_a_pool():
    allocator = CachingAllocator(limit=50 * MIB)
    allocator.release(allocator.allocate(30 * MIB))
    allocator.graphs = 1
    with pytest.raises(OutOfRoom):
        allocator.allocate(30 * MIB)
    allocator.graphs = 0
    assert (allocator.reserved, allocator.retries) == (30 * MIB, 0)


@pytest.mark.parametrize("kind", [CachingAllocator, partial(CachingAllocator, settings=EXPANDABLE, space=2**30)])
def test_a_pool_goes_back_to_an_earlier_state(kind):
    allocator = kind()
    outside = allocator.allocate(3 * MIB)
    allocator.graphs = 1
    first, second, third = (allocator.allocate(size * MIB) for size in (2, 4, 3))
    allocator.release(second)
    known = checkpoint(allocator, 1)
    used = {block.address: block.size for block in (first, third)}
    allocator.release(third)
    later = allocator.allocate(5 * MIB)
    allocator.peak_allocated = 0
    restored = restore(allocator, known)
    assert {address: block.size for address, block in restored.items()} == used
    assert allocator.used_by(1) == list(restored.values())
    assert later not in allocator.used_by(1)
    assert allocator.allocated == outside.size + sum(used.values())
    assert allocator.peak_allocated > allocator.allocated  # what was free was allocated for a moment
    assert checkpoint(allocator, 1).segments[: len(known.segments)] == known.segments
