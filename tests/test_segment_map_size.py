"""A map of an allocator's segments has room for its type, however few its rows."""

from memlab.allocator import CachingAllocator
from memlab.segment_plots import segment_map


def test_a_map_of_one_row_has_room():
    allocator = CachingAllocator()
    allocator.allocate(4 << 20)
    picture = segment_map(allocator.snapshot(), title="One tensor")
    picture.draw_without_rendering()  # warns where there is none
    assert picture.axes[0].get_window_extent().height > 20  # pixels
