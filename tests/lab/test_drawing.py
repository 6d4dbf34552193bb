"""The live pictures: well-formed, labelled, and right about where things stand."""

from xml.etree import ElementTree

import pytest

from memlab.lab.drawing import COLUMNS, Frame, memory_chart, steps_chart
from memlab.palette import BLUE, CATEGORY_COLORS, ORANGE
from memlab.trace import Category, Event, OutOfMemory, Phase, Step, Trace

SVG = "{http://www.w3.org/2000/svg}"


def trace_of(count, oom=None):
    """A step that allocates ``count`` activations of 1 MiB, then frees them."""
    forward = [Event(2**20, Category.ACTIVATION, Phase.FORWARD, "blocks.0 <b>", "aten.mm")] * count
    backward = [Event(-(2**20), Category.ACTIVATION, Phase.BACKWARD, "blocks.0", "")] * count
    events = (*forward, *(() if oom else backward))
    start = {Category.PARAMETER: 2**21}
    return Trace("measured", "a device", "2.13.0", {}, (Step(1.0, 0.1, 5, True),), None, 0, start, events, 0, oom)


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_the_memory_chart_names_the_peak_the_phases_the_categories_and_the_budget():
    svg = memory_chart(trace_of(10), [trace_of(3)], budget=2**24)
    words = texts(svg)
    assert "peak 12.0 MiB · forward · blocks.0 <b>" in words
    assert {"forward", "backward", "parameters", "activations", "the runs before", "budget 16.0 MiB"} <= set(words)
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert root.get("aria-label") == trace_of(10).sentence


def test_a_budget_far_above_the_peak_leaves_the_step_its_height():
    root = ElementTree.fromstring(memory_chart(trace_of(10), [], budget=2**30))
    assert "budget 1.00 GiB, 85 times this peak" in [element.text for element in root.iter(f"{SVG}text")]
    assert float(root.find(f"{SVG}circle").get("cy")) < 100


def test_each_category_has_its_area_and_the_peak_is_never_smoothed_away():
    count = 5 * COLUMNS
    root = ElementTree.fromstring(memory_chart(trace_of(count), []))
    areas = {path.get("fill"): path.get("d") for path in root.iter(f"{SVG}path")}
    assert set(areas) == {CATEGORY_COLORS[Category.PARAMETER], CATEGORY_COLORS[Category.ACTIVATION]}
    highest = min(
        float(point.split()[1].rstrip("Z")) for point in areas[CATEGORY_COLORS[Category.ACTIVATION]].split("L")[1:]
    )
    peak_dot = root.find(f"{SVG}circle")
    assert highest == float(peak_dot.get("cy"))


def test_out_of_memory_is_drawn_as_such():
    oom = OutOfMemory(2**30, 2**24, 2**24, Phase.FORWARD, "blocks.0", "aten.mm")
    words = texts(memory_chart(trace_of(4, oom), [], budget=2**24))
    assert "out of memory" in words
    assert not any(word.startswith("peak") for word in words)


def test_the_steps_chart_shows_what_is_known_and_survives_what_is_not():
    steps = [
        Step(2.5, 0.1, 2**20, True),
        Step(float("nan"), 0.1, None, False),
        Step(None, 0.1, None, False),
        Step(float("inf"), 0.1, None, False),
        Step(1.5, 0.1, 2**20, True),
    ]
    svg = steps_chart(steps, [steps[:4]], 40)
    words = texts(svg)
    assert words.count("step 5 of 40") == 2
    assert {"Peak per step", "Loss", "1.5", "2.5"} <= set(words)
    assert "nan" not in svg
    assert "inf" not in svg


@pytest.mark.parametrize("steps", [[], [Step(None, 0.1, None, False)], [Step(1.0, 0.1, 0, True)]])
def test_there_is_a_steps_chart_with_hardly_anything_to_draw(steps):
    assert ElementTree.fromstring(steps_chart(steps, [], 1)).get("role") == "img"


def test_a_step_without_events_is_drawn():
    assert "peak 2.00 MiB · other" in texts(memory_chart(trace_of(0), []))


def test_a_run_that_allocated_nothing_is_drawn():
    empty = Trace("measured", "a device", "2.13.0", {}, (), None, 0, {}, (), 0)
    assert "peak 0 B · other" in texts(memory_chart(empty, [empty]))


def test_a_frame_maps_its_corners():
    frame = Frame(left=10, top=20, width=100, height=50, x_top=4, y_top=8, y_bottom=2)
    assert (frame.x(0), frame.x(4), frame.y(2), frame.y(8)) == (10, 110, 70, 20)


def test_each_rank_has_a_line_of_its_own_and_a_name():
    low, high = ([Step(1.0, 0.1, peak, True)] * 4 for peak in (2**20, 2**21))
    svg = ElementTree.fromstring(steps_chart(high, [], 4, [low, high]))
    heights = []
    for color in (BLUE, ORANGE):
        first = next(line for line in svg.iter(f"{SVG}polyline") if line.get("stroke") == color)
        heights.append({point.split(",")[1] for point in first.get("points").split()})
    assert [len(found) for found in heights] == [1, 1]
    assert heights[0] != heights[1]
    assert {"rank 0", "1"} <= {text.text for text in svg.iter(f"{SVG}text")}
