"""The figures: they draw, carry their sentence, and touch nothing global."""

import html
import io
import subprocess
import sys
from dataclasses import replace

import pytest
from PIL import Image

from memlab import plots
from memlab.allocator import EXPANDABLE, CachingAllocator
from memlab.errors import BadValue
from memlab.segment_plots import MOST_ROWS, ROW, segment_map
from memlab.trace import Category, Event, OutOfMemory, Phase, Trace
from memlab.units import MIB, format_bytes
from memlab.vgpu import CARDS

PNG = b"\x89PNG"


def trace(peak, oom=None, **settings):
    events = (
        Event(peak, Category.ACTIVATION, Phase.FORWARD, "blocks.0", "aten.mm"),
        Event(-peak, Category.ACTIVATION, Phase.BACKWARD, "blocks.0", ""),
    )
    return Trace("measured", "CPU", "2.13.0", settings, (), None, 0, {Category.PARAMETER: 1000}, events, 0, oom)


EMPTY = Trace("measured", "CPU", "2.13.0", {}, (), None, 0, {}, (), 0)
FAILED = trace(500, OutOfMemory(10**6, 1500, 2000, Phase.FORWARD, "blocks.0", "aten.mm"), width=2)


def test_the_cross_of_a_run_that_ran_out_of_memory_does_not_touch_the_name_of_the_limit():
    picture = plots.timeline(FAILED)
    picture.png()
    (axes,) = picture.axes
    (limit,) = [text for text in axes.texts if text.get_text().startswith("budget")]
    (cross,) = [line for line in axes.lines if line.get_marker() == "X"]
    half = cross.get_markersize() / 2 * picture.dpi / 72
    assert limit.get_window_extent().x0 > axes.bbox.x1 + half + 4  # pixels


def test_what_was_alive_when_memory_ran_out_is_drawn():
    full = replace(FAILED, events=FAILED.events[:1])  # it fails at the end of what has happened
    (axes,) = plots.timeline(full).axes
    assert axes.get_xlim()[1] > len(full.events)
    drawn = [path.get_extents() for area in axes.collections for path in area.get_paths()]
    assert max(area.y1 for area in drawn if area.width > 0) == full.allocated[-1]


def test_a_note_of_two_lines_leaves_the_title_of_a_low_picture_within_it():
    sentence = "A title of so many words that, one word a line, they are higher than the picture below it is"
    picture = plots.Picture(sentence, height=3.4)
    axes = picture.add_subplot()
    plots.write_title(axes, sentence, "measured on a machine with a long name, " * 4)
    picture.png()  # a layout that collapses warns, and a warning is an error
    assert axes.get_tightbbox().y1 <= picture.bbox.y1


def test_a_number_in_a_title_and_its_unit_are_on_one_line():
    written = plots.timeline(FAILED).axes[0].get_title(loc="left")
    assert "1.46\u00a0KiB of 1.95\u00a0KiB" in written
    assert written.replace("\u00a0", " ").lower() == FAILED.sentence.lower()


@pytest.mark.parametrize(
    ("picture", "sentence"),
    [
        (plots.timeline(trace(3000)), "peak 3.91 KiB in forward at blocks.0: 75% activations"),
        (plots.timeline(trace(3000), budget="8 KiB"), "peak 3.91 KiB in forward at blocks.0: 75% activations"),
        (plots.timeline(FAILED), FAILED.sentence),
        (plots.timeline(trace(0)), "peak 0.98 KiB outside of forward, backward and optimizer: 100% parameters"),
        (
            plots.bars({"off": trace(3000), "on": trace(1000)}, budget=2000),
            "least 1.95 KiB with on, most 3.91 KiB with off: 2.00 times",
        ),
        (plots.timeline(EMPTY), "peak 0 B outside of forward, backward and optimizer: nothing allocated"),
        (plots.bars({"one": EMPTY}), "one: peak 0 B outside of forward, backward and optimizer: nothing allocated"),
        (plots.bars({"one": FAILED}), f"one: {FAILED.sentence}"),
        (plots.bars({"one": trace(1)}, title="Mine"), "Mine"),
        (
            plots.curve([trace(3000, width=2), trace(1000, width=1)], "width"),
            "least 1.95 KiB with width=1, most 3.91 KiB with width=2: 2.00 times",
        ),
    ],
)
def test_a_figure_is_a_png_with_its_sentence_as_text(picture, sentence):
    bundle = picture._repr_mimebundle_()
    assert bundle["text/plain"] == sentence
    assert bundle["text/html"].startswith(f'<img alt="{html.escape(sentence)}" src="data:image/png;base64,')
    assert picture.png().startswith(PNG)
    assert Image.open(io.BytesIO(picture.png())).text["Description"] == sentence  # for whoever finds the file alone


def test_curves_by_name_share_one_scale():
    lines = {"one": [trace(3000, width=2), trace(1000, width=1)], "two": [trace(2000, width=1)]}
    picture = plots.curve(lines, "width")
    drawn = {line.get_label(): line.get_xydata().tolist() for line in picture.axes[0].lines}
    assert drawn == {"one": [[1, 2000], [2, 4000]], "two": [[1, 3000]]}
    assert picture.sentence == "least 1.95 KiB with one width=1, most 3.91 KiB with one width=2: 2.00 times"


def test_a_wait_for_other_ranks_is_striped_to_its_end_and_named():
    events = [event._replace(seconds=seconds) for event, seconds in zip(trace(3000).events, (1.0, 3.0), strict=True)]
    waiting = replace(trace(3000), source="predicted", events=tuple(events), waits=((1.0, 2.0), (3.0, 4.0)))
    axes = plots.timeline(waiting).axes[0]
    assert [
        patch.get_extents().transformed(axes.transData.inverted()).intervalx.tolist()
        for patch in axes.patches
        if patch.get_hatch()
    ] == [pytest.approx(span) for span in waiting.waits]
    assert axes.get_xlim() == (0, 4)
    assert "waits for other ranks" in axes.get_legend_handles_labels()[1]
    assert "waits for other ranks" not in plots.timeline(trace(3000)).axes[0].get_legend_handles_labels()[1]


def test_a_timeline_has_the_title_that_it_is_given():
    assert plots.timeline(trace(3000), title="a lesson").sentence == "a lesson"
    assert plots.timeline(trace(3000)).sentence == trace(3000).sentence


def test_a_prediction_is_drawn_by_its_time_or_by_its_events():
    events = [event._replace(seconds=seconds) for event, seconds in zip(trace(3000).events, (1.0, 1.0), strict=True)]
    predicted = replace(trace(3000), source="predicted", events=tuple(events))
    by_time, by_events = plots.timeline(predicted).axes[0], plots.timeline(predicted, by_events=True).axes[0]
    assert (by_time.get_xlim(), by_events.get_xlim()) == ((0, 1), (0, 2))
    assert "events of one step" in by_events.get_xlabel()


def test_the_stack_adds_up_to_the_peak():
    axes = plots.timeline(trace(3000)).axes[0]
    tops = [collection.get_paths()[0].vertices[:, 1].max() for collection in axes.collections]
    assert max(tops) == 4000


def test_a_cpu_figure_says_what_its_bytes_are():
    texts = [text.get_text() for text in plots.timeline(trace(1)).axes[0].texts]
    assert "measured on CPU, bytes of live tensor storages" in texts


def test_the_legend_of_all_categories_lies_within_the_picture():
    everything = Trace("measured", "CPU", "2.13.0", {}, (), None, 0, dict.fromkeys(Category, 1000), (), 0)
    picture = plots.bars({"one": everything})
    picture.png()
    (legend,) = picture.legends
    assert legend.get_window_extent().x1 < picture.bbox.width


def test_the_axis_is_marked_in_powers_of_two():
    labels = [label.get_text() for label in plots.timeline(trace(3 * 2**20)).axes[0].get_yticklabels()]
    assert labels == ["0", "1 MiB", "2 MiB", "3 MiB"]


def segment(size, blocks, pool="large", address=2**40):
    """As in ``torch.cuda.memory_snapshot()``, with some of the fields that a map does not need."""
    states = {"used": "active_allocated", "waiting": "active_pending_free", "free": "inactive"}
    described, at = [], address
    for state, nbytes in blocks:
        described.append({"address": at, "size": nbytes, "state": states[state], "requested_size": 1, "frames": []})
        at += nbytes
    facts = {"address": address, "total_size": size, "segment_type": pool, "blocks": described}
    return {"device": 0, "stream": 0, "is_expandable": False, "active_size": 0} | facts


HALF_USED = segment(20 * MIB, [("used", 6 * MIB), ("free", 10 * MIB), ("waiting", 4 * MIB)])


@pytest.mark.parametrize(
    ("snapshot", "sentence"),
    [
        ([], "no segment is held"),
        (CachingAllocator().snapshot(), "no segment is held"),
        (CachingAllocator(settings=EXPANDABLE).snapshot(), "no segment is held"),
        ([HALF_USED], "1 segment holds 20.0 MiB, 10.0 MiB in use; the largest free block is 10.0 MiB"),
        ([segment(2 * MIB, [("used", 2 * MIB)])], "1 segment holds 2.00 MiB, 2.00 MiB in use; no block is free"),
        (
            [segment(2 * MIB, [("free", 2 * MIB)], "small", 0), HALF_USED],
            "2 segments hold 22.0 MiB, 10.0 MiB in use; the largest free block is 10.0 MiB",
        ),
        (
            [segment(2 * MIB, [("used", 2 * MIB)], "small", at * 2 * MIB) for at in range(MOST_ROWS + 5)],
            "605 segments hold 1.18 GiB, 1.18 GiB in use; no block is free; the 600 largest are drawn, "
            "5 smaller ones are not",
        ),
    ],
)
def test_a_segment_map_says_what_it_shows(snapshot, sentence):
    bundle = segment_map(snapshot)._repr_mimebundle_()
    assert bundle["text/plain"] == sentence
    assert segment_map(snapshot, title="Mine").sentence == f"Mine: {sentence}"


def drawn(picture, state):
    """Row, first byte and size of each block that is drawn in a state."""
    (collection,) = (found for found in picture.axes[0].collections if found.get_label() == state)
    extents = [path.get_extents() for path in collection.get_paths()]
    return [(int((box.y0 + box.y1) / 2 / ROW), box.x0, box.width) for box in extents]


def texts(picture):
    return [text.get_text() for text in picture.axes[0].texts]


def test_a_segment_map_draws_every_block_at_its_place_the_largest_segment_first():
    small = segment(2 * MIB, [("used", MIB), ("free", MIB)], "small", 0)
    picture = segment_map([small, HALF_USED])
    assert drawn(picture, "in use") == [(0, 0, 6 * MIB), (0, 16 * MIB, 4 * MIB), (1, 0, MIB)]
    assert drawn(picture, "free") == [(0, 6 * MIB, 10 * MIB), (1, MIB, MIB)]
    assert [label.get_text() for label in picture.axes[0].get_yticklabels()] == ["large", "small"]
    assert texts(picture)[:2] == ["20.0 MiB", "2.00 MiB"]


def test_a_segment_map_draws_a_simulated_allocator():
    allocator = CachingAllocator(settings=EXPANDABLE)
    allocator.release([allocator.allocate(5 * MIB) for _ in range(3)][1])
    picture = segment_map(allocator.snapshot())
    assert drawn(picture, "in use") == [(0, 0, 5 * MIB), (0, 10 * MIB, 5 * MIB)]
    assert drawn(picture, "free") == [(0, 5 * MIB, 5 * MIB), (0, 15 * MIB, 5 * MIB)]


def test_a_map_of_one_row_has_room():
    allocator = CachingAllocator()
    allocator.allocate(4 << 20)
    picture = segment_map(allocator.snapshot(), title="One tensor")
    picture.draw_without_rendering()  # warns where there is none
    assert picture.axes[0].get_window_extent().height > 20  # pixels


def test_rows_too_narrow_for_text_are_named_together():
    large = [segment(20 * MIB, [("used", 20 * MIB)], address=at * 20 * MIB) for at in range(100)]
    small = [segment(2 * MIB, [("free", 2 * MIB)], "small", at * 2 * MIB) for at in range(50)]
    few, many = segment_map(large[:30]), segment_map(large + small)
    assert texts(few).count("20.0 MiB") > 1
    assert texts(many)[:2] == ["100 of 20.0 MiB", "50 of 2.00 MiB"]
    assert many.get_figheight() < 8
    for picture in (few, many):
        assert [text.get_text() for text in picture.legends[0].get_texts()] == ["in use", "free"]


def test_a_request_that_failed_is_drawn_above_the_segments():
    picture = segment_map([HALF_USED], asked=30 * MIB)
    assert "asked for: 30.0 MiB" in texts(picture)
    (axes,) = picture.axes
    request = axes.patches[-1]
    assert request.get_width() == 30 * MIB <= axes.get_xlim()[1]
    assert axes.get_ylim()[1] <= request.get_y() < request.get_y() + request.get_height() < 0


def test_of_many_segments_the_large_ones_have_rows_that_can_be_seen():
    large = [segment(200 * MIB, [("used", MIB), ("free", 199 * MIB)])]
    small = [segment(2 * MIB, [("free", 2 * MIB)], "small", at * 2 * MIB) for at in range(100)]
    picture = segment_map(small + large)
    ((_, _, size),) = drawn(picture, "free")
    assert size == 199 * MIB
    assert texts(picture)[:2] == ["200 MiB", "100 of 2.00 MiB"]


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: plots.bars({}), "nothing to draw"),
        (lambda: plots.curve([], "width"), "nothing to draw"),
        (lambda: plots.curve([trace(1, width=1)], "depth"), "'depth' is no setting of these runs: .* width"),
        (lambda: plots.timeline(trace(1), budget="lots"), "'lots' is not a number of bytes"),
    ],
)
def test_what_cannot_be_drawn_is_told(draw, words):
    with pytest.raises(BadValue, match=words):
        draw()


def test_drawing_never_loads_pyplot():
    code = "import sys; from memlab import plots; print('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize(
    ("traces", "limit", "name"),
    [
        ({"one": replace(trace(1), source="predicted", device="T4")}, CARDS["T4"].room, "T4"),
        ({"one": replace(trace(1), source="predicted", device="T4")}, 2000, "budget"),
        ({"one": replace(trace(1), source="predicted", device="L4")}, CARDS["T4"].room, "budget"),
        ({"one": trace(1)}, CARDS["T4"].room, "budget"),
    ],
)
def test_a_limit_is_the_cards_only_if_it_is(traces, limit, name):
    (axes,) = plots.bars(traces, budget=limit).axes
    assert f"{name}\n{format_bytes(limit)}" in [text.get_text() for text in axes.texts]


def test_a_long_note_is_wrapped_and_leaves_the_axes_their_width():
    widths = []
    for note in ("short", "a setting, " * 30):
        picture = plots.Picture("A sentence")
        axes = picture.add_subplot()
        plots.write_title(axes, "A sentence", note)
        picture.png()
        widths.append(axes.get_position().width)
    assert widths[1] == pytest.approx(widths[0], abs=0.02)
