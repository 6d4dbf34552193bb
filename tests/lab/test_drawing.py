"""The live pictures: well-formed, labelled, and right about where things stand."""

import random
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest
from PIL import ImageFont

from memlab.lab.drawing import COLUMNS, memory_chart
from memlab.lab.progress import steps_chart
from memlab.lab.style import color
from memlab.lab.svg import NARROWEST, SIZE, Label, Scale, inside, text_width
from memlab.palette import ORANGE
from memlab.trace import Category, Event, OutOfMemory, Phase, Step, Trace
from memlab.units import GIB, MIB
from tests.golden.traces import FAILED, MEASURED

SVG = "{http://www.w3.org/2000/svg}"
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
FONT, BOLD = (ImageFont.truetype(FONTS / name, SIZE) for name in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf"))


def trace_of(count, oom=None):
    """A step that allocates ``count`` activations of 1 MiB, then frees them."""
    forward = [Event(2**20, Category.ACTIVATION, Phase.FORWARD, "blocks.0 <b>", "aten.mm")] * count
    backward = [Event(-(2**20), Category.ACTIVATION, Phase.BACKWARD, "blocks.0", "")] * count
    events = (*forward, *(() if oom else backward))
    start = {Category.PARAMETER: 2**21}
    return Trace("measured", "a device", "2.13.0", {}, (Step(1.0, 0.1, 5, True),), None, 0, start, events, 0, oom)


OOM = OutOfMemory(2**30, 2**24, 2**24, Phase.FORWARD, "blocks.0", "aten.mm")


def parse(html):
    """The picture proper: its numbers and its plot."""
    axis, plot = list(ElementTree.fromstring(html).iter(f"{SVG}svg"))[:2]
    return axis, plot


def texts(html):
    """All that is written, in the picture and beside it."""
    return [text.strip() for text in ElementTree.fromstring(html).itertext() if text.strip()]


def points(element):
    return [tuple(map(float, point.split(","))) for point in element.get("points").split()]


def dashed(html):
    """The curves of earlier runs, the newest first."""
    return [points(line) for line in parse(html)[1].iter(f"{SVG}polyline") if line.get("stroke-dasharray")]


def test_the_memory_chart_names_the_peak_the_phases_the_categories_and_the_budget():
    html = memory_chart(trace_of(10), [(trace_of(3), "before: batch 3")], heading="batch 10", budget=2**24)
    assert {"forward", "backward", "parameters", "activations", "before: batch 3", "batch 10", "budget 16.0 MiB"} <= {
        *texts(html)
    }
    assert any(word.startswith("peak 12.0 MiB · forward") for word in texts(html))
    plot = parse(html)[1]
    assert plot.get("role") == "img"
    assert plot.get("aria-label") == trace_of(10).sentence


def test_with_two_micro_batches_no_phase_is_without_a_name():
    turns = [
        (Phase.FORWARD, 15),
        (Phase.BACKWARD, 22),
        (Phase.FORWARD, 15),
        (Phase.BACKWARD, 27),
        (Phase.OPTIMIZER, 21),
    ]
    events = [Event(1, Category.ACTIVATION, phase, "", "") for phase, count in turns for _ in range(count)]
    written = texts(memory_chart(replace(trace_of(1), events=tuple(events))))
    assert {"forward", "backward", "optimizer"} <= {*written}


def test_a_forward_as_short_as_that_of_gpt_2_has_its_name():
    lengths = {Phase.FORWARD: 15, Phase.BACKWARD: 55, Phase.OPTIMIZER: 30}
    events = [Event(1, Category.ACTIVATION, phase, "", "") for phase, count in lengths.items() for _ in range(count)]
    written = texts(memory_chart(replace(trace_of(1), events=tuple(events))))
    assert {"forward", "backward", "optimizer"} <= {*written}


def test_where_forward_and_backward_take_turns_both_have_their_names():
    """As in a pipeline: no stretch of backward has room for its name."""
    turns = [Phase.FORWARD] * 40 + [Phase.BACKWARD, Phase.FORWARD] * 30 + [Phase.BACKWARD] * 3
    events = [Event(1, Category.ACTIVATION, phase, "", "") for phase in turns]
    written = texts(memory_chart(replace(trace_of(1), events=tuple(events))))
    assert {"forward", "backward"} <= {*written}
    rare = (*trace_of(50).events, Event(1, Category.GRADIENT, Phase.OPTIMIZER, "", ""))  # it has no room at all
    assert "optimizer" not in texts(memory_chart(replace(trace_of(1), events=rare)))


def test_the_name_of_the_peak_stands_at_its_mark_where_a_limit_is_near():
    """Not at the right end, because the limit's own name is in between."""
    trace = trace_of(10)
    trace = replace(trace, events=tuple(replace(event, module=30 * "m") for event in trace.events))
    for part in (1.05, 1.1, 1.15, 1.2):
        plot = parse(memory_chart(trace, budget=int(part * trace.peak_allocated)))[1]
        (name,) = [text for text in plot.iter(f"{SVG}text") if text.text.startswith("peak")]
        assert name.get("x") == plot.find(f"{SVG}circle").get("cx")


def test_a_budget_far_above_the_peak_leaves_the_step_its_height():
    html = memory_chart(trace_of(10), budget=2**30)
    assert "budget 1.00 GiB, 85 times this peak" in texts(html)
    assert float(parse(html)[1].find(f"{SVG}circle").get("cy")) < 100


def test_each_category_has_its_area_and_the_peak_is_never_smoothed_away():
    plot = parse(memory_chart(trace_of(5 * COLUMNS)))[1]
    areas = {area.get("fill"): points(area) for area in plot.iter(f"{SVG}polygon")}
    assert set(areas) == {color("parameter"), color("activation")}
    highest = min(y for _, y in areas[color("activation")])
    assert highest == float(plot.find(f"{SVG}circle").get("cy"))


def test_workspace_can_be_hidden_and_the_peak_still_counts_it():
    events = (Event(2**22, Category.WORKSPACE, Phase.FORWARD, "", "aten.mm"), *trace_of(3).events)
    trace = replace(trace_of(3), events=events)
    shown, hidden = (memory_chart(trace, workspace=workspace) for workspace in (True, False))
    areas = [[area.get("fill") for area in parse(html)[1].iter(f"{SVG}polygon")] for html in (shown, hidden)]
    assert areas[0] == [*areas[1], color("workspace")]
    assert "workspace is hidden: the line and the peak count it" in texts(hidden)
    marks = [parse(html)[1].find(f"{SVG}circle").attrib for html in (shown, hidden)]
    assert marks[0] == marks[1]


def test_out_of_memory_is_drawn_as_such():
    words = texts(memory_chart(trace_of(4, OOM), budget=2**24))
    assert "out of memory" in words
    assert not any(word.startswith("peak") for word in words)


def test_a_run_that_ran_out_of_memory_ends_where_it_ended():
    (ghost,) = dashed(memory_chart(trace_of(10), [(trace_of(4, OOM), "before")]))
    assert (ghost[0][0], ghost[-1][0]) == (0, 200)  # 4 of 20 events
    failed = memory_chart(trace_of(4, OOM), [(trace_of(10), "before")])
    (ghost,) = dashed(failed)
    assert ghost[-1][0] == 1000
    (area, *_) = parse(failed)[1].iter(f"{SVG}polygon")
    assert max(x for x, _ in points(area)) == 200


def test_earlier_runs_stand_phase_at_phase():
    """Twice the events in forward: its end is where the forward ends, and its peak with it."""
    busy = trace_of(10)
    more = [Event(0, Category.TEMPORARY, Phase.FORWARD, "", "")] * 10
    busy = replace(busy, events=(*more, *busy.events))
    (ghost,) = dashed(memory_chart(trace_of(10), [(busy, "before")]))
    highest = min(y for _, y in ghost)
    assert [x for x, y in ghost if y == highest] == [500]


def test_steps_of_other_phases_stand_backward_at_backward():
    """Two micro-batches have two forwards: the end of the last backward is what the two have in common."""
    once = [Event(1, Category.GRADIENT, Phase.OPTIMIZER, "", "")] * 5
    one, two = (replace(trace_of(10), events=(*trace_of(10).events * count, *once)) for count in (1, 2))
    (ghost,) = dashed(memory_chart(one, [(two, "before")]))
    ends = [x for x, _ in ghost]
    assert pytest.approx(1000 * 20 / 25, abs=0.1) in ends
    assert len([x for x in ends if x > 800]) == 5


def test_the_steps_chart_shows_what_is_known_and_survives_what_is_not():
    steps = [
        Step(2.5, 0.1, 2**20, True),
        Step(float("nan"), 0.1, None, False),
        Step(None, 0.1, None, False),
        Step(float("inf"), 0.1, None, False),
        Step(1.5, 0.1, 2**20, True),
    ]
    html = steps_chart(steps, [steps[:4]], 40)
    assert {"step 5 of 40", "Peak", "Loss", "1.5", "2.5"} <= set(texts(html))
    assert "nan" not in html
    assert "inf" not in html


@pytest.mark.parametrize("steps", [[], [Step(None, 0.1, None, False)], [Step(1.0, 0.1, 0, True)]])
def test_there_is_a_steps_chart_with_hardly_anything_to_draw(steps):
    assert parse(steps_chart(steps, [], 1))[1].get("role") == "img"


def test_the_line_of_the_peak_reaches_the_last_step():
    steps = [Step(1.0, 0.1, 2**20, True), *[Step(1.0, 0.1, None, False)] * 4]
    line = next(
        line for line in parse(steps_chart(steps, [], 9))[1].iter(f"{SVG}polyline") if line.get("stroke-width") == "2.5"
    )
    assert points(line)[-1][0] == 500  # the fifth of nine


def test_the_peaks_of_ranks_are_seen_after_one_step_too():
    ranks = [[Step(1.0, 0.1, 2**20, True)], [Step(1.0, 0.1, 2**19, True)]]
    html = steps_chart(ranks[0], [], 1, ranks)
    assert html.partition("Loss")[0].count("<circle") == 2


def test_while_a_run_goes_on_the_time_that_is_left_is_said_and_then_which_run_it_was():
    steps = [Step(1.0, 90.0, None, True), *[Step(1.0, 0.5, None, False)] * 5]
    going_on, over = (
        texts(steps_chart(steps, [], 10)),
        texts(steps_chart(steps, [], 10, name="last run", settings="batch 8 · width <16>")),
    )
    assert [text for text in going_on if text not in over] == ["step 6 of 10", "about 2.0 s left"]
    assert [text for text in over if text not in going_on] == ["last run: step 6 of 10", "batch 8 · width <16>"]
    assert "nowrap" not in steps_chart(steps, [], 10, name="last run", settings="batch 8")  # it would widen the panel


def test_a_step_without_events_is_drawn():
    assert "peak 2.00 MiB · other" in texts(memory_chart(trace_of(0)))


def test_a_run_that_allocated_nothing_is_drawn():
    empty = Trace("measured", "a device", "2.13.0", {}, (), None, 0, {}, (), 0)
    assert "peak 0 B · other" in texts(memory_chart(empty, [(empty, "before")]))


def test_a_scale_maps_its_corners():
    scale = Scale(x_top=4, y_top=8, top=20, height=50, y_bottom=2)
    assert (scale.x(0), scale.x(4), scale.y(2), scale.y(8)) == (0, 1, 70, 20)


def test_each_rank_has_a_line_of_its_own_and_a_name():
    low, high = ([Step(1.0, 0.1, peak, True)] * 4 for peak in (2**20, 2**21))
    html = steps_chart(high, [], 4, [low, high])
    heights = []
    for stroke in (color("line"), ORANGE):
        first = next(line for line in parse(html)[1].iter(f"{SVG}polyline") if line.get("stroke") == stroke)
        heights.append({y for _, y in points(first)})
    assert [len(found) for found in heights] == [1, 1]
    assert heights[0] != heights[1]
    assert {"rank 0", "rank 1"} <= {*texts(html)}


# Labels do not collide: measured with the widest of the usual system fonts, in the narrowest picture and in wider ones.


def random_trace(chance):
    """A step of random length, peak, names and phases; one in four runs out of memory."""
    module = ".".join(chance.choice(("blocks", "11", "mlp", "transformer", "h", "c_fc", "wte")) for _ in range(4))
    size = chance.choice((1, 2**10, 2**20, 2**30))
    events = []
    for phase in (Phase.OTHER, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER) * chance.randint(1, 2):
        for _ in range(chance.randint(0, 40)):
            change = chance.randint(-size, size) if phase is not Phase.FORWARD else chance.randint(0, size)
            events.append(Event(change, Category.ACTIVATION, phase, module, "aten.mm"))
    oom = OOM if chance.random() < 0.25 else None
    return Trace(
        "predicted", "A100-40GB", "2.13.0", {}, (), 1, 0, {Category.PARAMETER: 50 * size}, tuple(events), 0, oom
    )


def drawn_boxes(html, width):
    """The texts of a picture, and where they stand when its plot is so wide: left, top, right, bottom."""
    axis, plot = parse(html)
    boxes = {}
    for text in plot.iter(f"{SVG}text"):
        length = (BOLD if text.get("font-weight") else FONT).getlength(text.text)
        left = float(text.get("x").rstrip("%")) / 100 * width
        left -= {"start": 0, "middle": length / 2, "end": length}[text.get("text-anchor")]
        base = float(text.get("y"))
        boxes[text.text] = (left, base - 0.78 * SIZE, left + length, base + 0.24 * SIZE)
    for text in axis.iter(f"{SVG}text"):
        base = float(text.get("y"))
        boxes[f"axis {text.text}"] = (-6 - FONT.getlength(text.text), base - 0.7 * SIZE, -6, base)
    return boxes


def collisions(boxes):
    return [
        pair
        for pair in combinations(boxes, 2)
        for a, b in [(boxes[pair[0]], boxes[pair[1]])]
        if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
    ]


def limits_of(chance, peak):
    """None, far away, just above the peak, or at the same height."""
    return chance.choice(
        (None, 5 * peak + 1, round(1.01 * peak) + 1, round(1.05 * peak) + 1, peak, 2 * peak, peak // 2 + 1)
    )


@pytest.mark.parametrize("seed", range(300))
def test_labels_never_collide(seed):
    chance = random.Random(seed)
    trace, *others = (random_trace(chance) for _ in range(chance.randint(1, 4)))
    peak = trace.peak_allocated
    html = memory_chart(
        trace, [(other, "before") for other in others], budget=limits_of(chance, peak), room=limits_of(chance, peak)
    )
    for width in (NARROWEST, 500, 900):
        boxes = drawn_boxes(html, width)
        assert collisions(boxes) == []
        inner = {text: box for text, box in boxes.items() if not text.startswith("axis")}
        assert all(left >= -1 and right <= width + 1 for left, _, right, _ in inner.values())
        assert any(text.startswith(("peak ", "out of memory")) for text in inner)
        names = [text for text in inner if text.startswith(("budget", "A100"))]
        assert len(names) == len(list(parse(html)[1].iter(f"{SVG}line")))


@pytest.mark.parametrize("budget", [None, 240 * MIB, 236 * MIB, 250 * MIB])
@pytest.mark.parametrize("trace", [MEASURED, FAILED])
def test_the_golden_pictures_do_not_collide(trace, budget):
    boxes = drawn_boxes(memory_chart(trace, [(MEASURED, "before")], budget=budget, room=15 * GIB), NARROWEST)
    assert collisions(boxes) == []


def test_the_test_of_collisions_finds_one():
    assert collisions({"a": (0, 0, 10, 10), "b": (9, 9, 20, 20), "c": (10, 0, 20, 9)}) == [("a", "b")]


@pytest.mark.parametrize("bold", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "peak 12.6 GiB · backward · blocks.11.mlp.2",
        "out of memory",
        "A100-40GB: 38.9 GiB",
        "wwwmmm",
        "illicit",
        "forward",
    ],
)
def test_a_label_is_no_wider_than_it_is_taken_for(text, bold):
    assert (BOLD if bold else FONT).getlength(text) <= text_width(text, bold=bold)


@pytest.mark.parametrize("x", [0, 0.01, 0.5, 0.99, 1])
def test_a_label_at_the_edge_stays_inside(x):
    box = inside(Label("peak 12.6 GiB", x, 50)).box
    assert box.left >= 0
    assert box.right <= NARROWEST + 0.01
