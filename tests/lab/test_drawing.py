"""The picture as the browser draws it: it says what the trace says, and no label stands on another.

``tests/browser`` uses it as a reader does; here it is given steps that no loop makes.
"""

import os
import random
import re
from dataclasses import replace
from itertools import combinations

import pytest

from memlab.categories import Category
from memlab.lab.browser import script
from memlab.lab.progress import progress
from memlab.lab.screen import View
from memlab.lab.style import style
from memlab.trace import Event, OutOfMemory, Phase, Step, Storage, Trace
from memlab.units import GIB, MIB, format_bytes, format_seconds
from tests.browser.jupyter import browser_page, find_chromium
from tests.golden.traces import FAILED, MEASURED, NAMED, PREDICTED, PREDICTED_TO_FAIL, STEPS

pytestmark = pytest.mark.skipif(
    not find_chromium() and not os.environ.get("CI"), reason="there is no Chromium to drive"
)
SIZE = 14  # of the letters
OOM = OutOfMemory(2**30, 2**24, 2**24, Phase.FORWARD, "blocks.0", "aten.mm")
DRAW = """([shown, other, width, byTime, reserved]) => {
    document.body.innerHTML = '<div class="memlab"><div></div></div>';
    document.body.style.width = `${width}px`;
    const picture = new drawing.Picture(document.querySelector('.memlab > div'));
    picture.byTime = byTime;
    picture.reserved = reserved;
    if (other) {
        picture.show(other);
        picture.pin();
    }
    picture.show(shown);
    window.picture = picture;
    const { chart } = picture;
    const all = kind => [...chart.box.querySelectorAll(kind)];
    const points = one => one.getAttribute('points').split(' ').map(pair => pair.split(',').map(Number));
    const dots = all('.memlab-dot, .memlab-cross').map(one => {
        const box = one.getBBox();
        return [box.x + box.width / 2, box.y + box.height / 2];
    });
    return {
        left: chart.left, width: chart.width, bottom: chart.bottom, whole: chart.box.clientWidth, dots,
        texts: all('text').map(one => {
            const end = { start: 0, middle: 0.5, end: 1 }[one.getAttribute('text-anchor')];
            const long = one.getComputedTextLength(), base = Number(one.getAttribute('y'));
            const begins = Number(one.getAttribute('x')) - end * long;
            return [one.textContent, begins, base - 0.78 * chart.size, begins + long, base + 0.24 * chart.size];
        }),
        areas: all('polygon').map(one => [one.getAttribute('fill'), points(one)]),
        line: all('polyline.memlab-line').map(points)[0],
        other: all('polyline.memlab-other').map(points)[0] ?? null,
        limits: all('line.memlab-limit').map(one => Number(one.getAttribute('y1'))),
        legend: [...picture.legend.children].map(one => one.textContent),
        head: picture.head.parentElement.innerText,
    };
}"""


@pytest.fixture(scope="module")
def browser():
    with browser_page(1280, 900) as page:
        faults = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.set_content("<!doctype html><html><head></head><body style='margin:0'></body></html>")
        page.evaluate("style => document.head.insertAdjacentHTML('beforeend', style)", style())
        names = "Step, Picture, formatBytes, formatSeconds"
        page.add_script_tag(content=f"{script()}\nwindow.drawing = {{ {names} }};", type="module")
        page.wait_for_function("window.drawing")
        yield page
        assert faults == []


@pytest.fixture
def draw(browser):
    """Return a function that draws a step beside another one that is pinned, in a page of some width."""

    def draw(trace, other=None, *, width=900, by_time=False, its_room=None, reserved=None, **view):
        pinned = View(other, room=its_room).to_plain() if other is not None else None
        shown = View(trace, **view).to_plain()
        return browser.evaluate(DRAW, [shown, pinned, width, by_time, reserved])

    return draw


def trace_of(count, oom=None):
    """A step that allocates ``count`` activations of 1 MiB, then frees them."""
    forward = [Event(2**20, Category.ACTIVATION, Phase.FORWARD, "blocks.0 <b>", "aten.mm")] * count
    backward = [Event(-(2**20), Category.ACTIVATION, Phase.BACKWARD, "blocks.0", "")] * count
    events = (*forward, *(() if oom else backward))
    start = {Category.PARAMETER: 2**21}
    return Trace("measured", "a device", "2.13.0", {}, (Step(1.0, 0.1, 5, True),), None, 0, start, events, 0, oom)


def texts(drawn):
    return [text for text, *_ in drawn["texts"]]


def part(drawn, x):
    """Return the horizontal position in a drawing, from 0 to 1."""
    return pytest.approx((x - drawn["left"]) / drawn["width"], abs=0.002)


# What it knows of a step


@pytest.mark.parametrize("trace", [MEASURED, NAMED, PREDICTED, FAILED, trace_of(500), trace_of(0)])
def test_it_reads_from_a_trace_what_the_trace_says(browser, trace):
    read = browser.evaluate(
        """trace => {
            const step = new drawing.Step(trace);
            return {
                allocated: [...step.allocated], peak: step.peak, peakAt: step.peakAt,
                series: [...step.series].map(([name, values]) => [name, [...values]]),
                phases: step.phases.map(({ name, begin, end }) => [name, begin, end]),
                atPeak: [...step.atPeak()],
            };
        }""",
        trace.to_plain(),
    )
    assert read["allocated"] == list(trace.allocated)
    assert (read["peak"], read["peakAt"]) == (trace.peak_allocated, trace.peak_index)
    assert read["series"] == [[str(name), list(values)] for name, values in trace.timeline.items()]
    assert read["phases"] == [[str(phase), first, last] for phase, first, last in trace.phases]
    assert {name: count for name, count in read["atPeak"] if count} == trace.by_category


def test_categories_are_stacked_in_the_order_in_which_python_has_them(draw):
    start = dict.fromkeys(Category, MIB)
    drawn = draw(replace(trace_of(3), start=start))
    assert drawn["legend"] == [category.plural for category in Category]
    colours = [fill for fill, _ in drawn["areas"]]
    assert colours == [f"var(--memlab-{category.name.lower()})" for category in Category]


COUNTS = [0, 1, 999, 1023, 1024, 10188, 10189, 102348, 102349, *(int(1.37**i) for i in range(0, 120, 3)), -5 * MIB]


def test_it_writes_bytes_and_seconds_as_python_does(browser):
    assert browser.evaluate("counts => counts.map(drawing.formatBytes)", COUNTS) == list(map(format_bytes, COUNTS))
    seconds = [1e-7, 9.94e-7, 1e-6, 9.96e-4, 0.0123, 0.0996, 0.5, 0.994, 0.996, 1.0, 9.96, 12.3, 119.6, 4000.0]
    assert browser.evaluate("seconds => seconds.map(drawing.formatSeconds)", seconds) == list(
        map(format_seconds, seconds)
    )


# What it draws


def test_it_names_the_peak_the_phases_the_categories_and_the_budget(draw):
    drawn = draw(trace_of(10), trace_of(3), budget=2**24)
    assert {"forward", "backward", "budget 16.0 MiB", "B 12.0 MiB", "A 5.00 MiB"} <= {*texts(drawn)}
    assert drawn["legend"] == ["parameters", "activations"]
    assert "12.0 MiB" in drawn["head"]
    assert re.search(r"4\.00 MiB [^·]*the budget", drawn["head"])  # as much is left
    assert "12.0 MiB" in texts(draw(trace_of(10)))


def test_a_module_is_a_text_and_nothing_else(draw, browser):
    draw(trace_of(10))
    browser.evaluate("picture.chart.point(5)")
    assert "forward of blocks.0 <b>" in browser.evaluate("picture.answer.innerText")


def of_phases(*turns):
    events = [Event(1, Category.ACTIVATION, phase, "", "") for phase, count in turns for _ in range(count)]
    return replace(trace_of(1), events=tuple(events))


def test_with_two_micro_batches_no_phase_is_without_a_name(draw):
    forward, backward = Phase.FORWARD, Phase.BACKWARD
    written = texts(
        draw(of_phases((forward, 15), (backward, 22), (forward, 15), (backward, 27), (Phase.OPTIMIZER, 21)))
    )
    assert {"forward", "backward", "optimizer"} <= {*written}


def test_a_forward_as_short_as_that_of_gpt_2_has_its_name(draw):
    written = texts(draw(of_phases((Phase.FORWARD, 15), (Phase.BACKWARD, 55), (Phase.OPTIMIZER, 30)), width=600))
    assert {"forward", "backward", "optimizer"} <= {*written}


def test_where_forward_and_backward_take_turns_both_have_their_names(draw):
    """As in a pipeline: no stretch of backward has room for its name."""
    turns = [(Phase.BACKWARD, 1), (Phase.FORWARD, 1)] * 30
    written = texts(draw(of_phases((Phase.FORWARD, 40), *turns, (Phase.BACKWARD, 3))))
    assert {"forward", "backward"} <= {*written}


def test_the_name_of_the_peak_stands_at_its_mark_where_a_limit_is_near(draw):
    """Not at the right end, because the limit's own name is in between."""
    trace = trace_of(10)
    for times in (1.05, 1.1, 1.15, 1.2):
        drawn = draw(trace, budget=int(times * trace.peak_allocated))
        ((_, left, _, right, _),) = [text for text in drawn["texts"] if text[0] == "12.0 MiB"]
        assert left - 20 <= drawn["dots"][0][0] <= right + 20


def test_a_limit_far_above_the_peak_leaves_the_step_its_height(draw):
    near, far = draw(trace_of(10), budget=2**24), draw(trace_of(10), budget=2**30, room=2**34)
    assert (len(near["limits"]), far["limits"]) == (1, [])
    assert far["dots"][0][1] < 100
    assert near["limits"][0] < near["dots"][0][1]
    for left in (2**30 - 12 * MIB, 2**34 - 12 * MIB):
        assert format_bytes(left) in far["head"]


def test_both_cards_have_their_line_where_two_are_compared(draw):
    near, far = 12 * 2**20, 20 * 2**20
    assert [text for text in texts(draw(trace_of(8), trace_of(9), room=near, its_room=far)) if "device" in text] == [
        "a device · 12.0 MiB",
        "A: a device · 20.0 MiB",
    ]
    same = draw(trace_of(8), trace_of(9), room=near, its_room=near)
    assert len(same["limits"]) == 1


def test_a_limit_below_the_peak_is_drawn_and_the_peak_is_said_to_be_over_it(draw):
    drawn = draw(trace_of(10), budget=10 * MIB)
    assert drawn["limits"][0] > drawn["dots"][0][1]
    assert "2.00 MiB over the budget" in drawn["head"]


@pytest.mark.parametrize("width", [300, 900])
def test_each_category_has_its_area_and_the_peak_is_never_smoothed_away(draw, width):
    """Of thousands of events, one reaches it."""
    flat = [Event(0, Category.ACTIVATION, Phase.FORWARD, "", "")] * 2500
    up, down = (Event(count, Category.ACTIVATION, Phase.FORWARD, "", "") for count in (2**24, -(2**24)))
    drawn = draw(replace(trace_of(1), events=(*flat, up, down, *flat)), width=width)
    areas = dict(drawn["areas"])
    assert list(areas) == ["var(--memlab-parameter)", "var(--memlab-activation)"]
    highest = min(y for _, y in areas["var(--memlab-activation)"])
    assert highest == pytest.approx(drawn["dots"][0][1], abs=0.1)
    assert highest == min(y for _, y in drawn["line"])
    assert len(drawn["line"]) < 4 * width


def test_workspace_can_be_hidden_and_the_peak_still_counts_it(browser):
    library = Event(2**22, Category.WORKSPACE, Phase.FORWARD, "", "aten.mm")
    view = View(replace(trace_of(3), events=(library, *trace_of(3).events)))
    shown, hidden = (
        browser.evaluate(DRAW, [view.to_plain(workspace=workspace), None, 900, False]) for workspace in (True, False)
    )
    assert [fill for fill, _ in shown["areas"]] == [*(fill for fill, _ in hidden["areas"]), "var(--memlab-workspace)"]
    assert (shown["dots"], shown["line"]) == (hidden["dots"], hidden["line"])
    assert hidden["legend"] == ["parameters", "activations"]


def test_out_of_memory_is_drawn_as_such(draw, browser):
    drawn = draw(trace_of(4, OOM), budget=2**24)
    assert any(text.startswith("out of memory") for text in texts(drawn))
    assert "6.00 MiB" not in texts(drawn)
    assert browser.locator(".memlab-cross").count() == 1
    assert browser.locator(".memlab-dot").count() == 0
    assert "out of memory" in drawn["head"]


def test_a_step_that_ran_out_of_memory_ends_where_it_ended(draw):
    drawn = draw(trace_of(10), trace_of(4, OOM))
    assert part(drawn, drawn["other"][0][0]) == 0
    assert part(drawn, drawn["other"][-1][0]) == 4 / 20  # events
    failed = draw(trace_of(4, OOM), trace_of(10))
    assert part(failed, failed["other"][-1][0]) == 1
    assert part(failed, failed["line"][-1][0]) == 4 / 20


def hatched(drawn):
    """Return the outline of what is reserved and free."""
    return next((points for fill, points in drawn["areas"] if fill.endswith("-cached)")), None)


def test_what_is_reserved_is_drawn_where_it_is_much_more_than_what_is_allocated(draw, browser):
    held = (0, 10 * MIB), (6, 2 * GIB)
    drawn = draw(replace(trace_of(10), reserved=held, peak_reserved=2 * GIB))
    low, high = hatched(drawn)[0][1], min(y for _, y in hatched(drawn))
    assert drawn["bottom"] - high == pytest.approx((drawn["bottom"] - low) * 2 * GIB / (10 * MIB), rel=0.1)
    assert "reserved: at most 2.00 GiB" in texts(drawn)
    button = browser.get_by_role("button", name="reserved")
    assert button.get_attribute("aria-pressed") == "true"
    browser.evaluate("picture.asked(8)")
    assert "reserved: 2.00 GiB" in browser.locator(".memlab-answer").text_content()
    button.click()
    assert browser.locator("polygon[fill*=cached]").count() == 0
    assert browser.evaluate("document.activeElement.textContent") == "reserved"


def test_what_is_reserved_is_drawn_for_who_asks_for_it_and_not_beside_a_category_alone(draw, browser):
    trace = replace(trace_of(10), reserved=((0, 13 * MIB),), peak_reserved=14 * MIB)
    assert hatched(draw(trace)) is None
    assert "reserved: in this step at most 13.0 MiB" in texts(draw(trace, reserved=True))
    browser.get_by_role("button", name="activations").click()
    assert browser.locator("polygon[fill*=cached]").count() == 0
    assert "reserved" not in draw(trace_of(10))["legend"]


def test_beside_a_the_difference_of_what_is_reserved_is_told_where_that_is_drawn(draw, browser):
    a, b = (replace(trace_of(10), reserved=((0, held),), peak_reserved=held) for held in (14 * MIB, 20 * MIB))
    draw(b, a, reserved=True)
    assert "reserved+6.00 MiB" in browser.locator(".memlab-difference").text_content()
    draw(a, a, reserved=True)
    assert "reservedsame" in browser.locator(".memlab-difference").text_content()
    draw(b, a)
    assert "reserved" not in browser.locator(".memlab-difference").text_content()


def test_a_request_that_failed_stands_on_what_is_reserved_where_that_is_drawn(draw, browser):
    trace = replace(trace_of(4, OOM), reserved=((0, 10 * MIB),), peak_reserved=10 * MIB)
    foot = """() => {
        const { y, height } = document.querySelector('.memlab-failed').getBBox(), { chart } = picture;
        return (chart.bottom - y - height) / (chart.bottom - chart.y(1048576));
    }"""
    for reserved, mebibytes in ((False, 16), (True, 10)):  # 16 MiB are in use, as the error says
        draw(trace, reserved=reserved, budget=2**24)
        assert browser.evaluate(foot) == pytest.approx(mebibytes, rel=0.01)


def test_another_step_stands_phase_at_phase(draw):
    """Twice the events in forward: its end is where the forward ends, and its peak with it."""
    busy = trace_of(10)
    more = [Event(0, Category.TEMPORARY, Phase.FORWARD, "", "")] * 10
    drawn = draw(trace_of(10), replace(busy, events=(*more, *busy.events)))
    highest = min(y for _, y in drawn["other"])
    assert [part(drawn, x) for x, y in drawn["other"] if y == highest] == [0.5]


def test_steps_of_other_phases_stand_backward_at_backward(draw):
    """Two micro-batches have two forwards: the end of the last backward is what the two have in common."""
    once = [Event(MIB, Category.GRADIENT, Phase.OPTIMIZER, "", "")] * 5
    one, two = (replace(trace_of(10), events=(*trace_of(10).events * count, *once)) for count in (1, 2))
    drawn = draw(one, two)
    lowest = max(y for _, y in drawn["other"])  # where all activations are freed: at the start and in the end
    ends = [(x - drawn["left"]) / drawn["width"] for x, y in drawn["other"] if y == lowest]
    assert max(ends) == pytest.approx(20 / 25, abs=0.002)


def timed(trace, seconds):
    """Its events at equal distances of time."""
    count = len(trace.events)
    events = (event._replace(seconds=seconds * (i + 1) / count) for i, event in enumerate(trace.events))
    return replace(trace, events=tuple(events))


def test_by_time_a_step_that_takes_half_as_long_ends_in_the_middle(draw):
    drawn = draw(timed(trace_of(10), 2.0), timed(trace_of(30), 1.0), by_time=True)
    assert part(drawn, drawn["line"][-1][0]) == 1
    assert part(drawn, drawn["other"][-1][0]) == 0.5
    assert {"0 s", "2.0 s"} <= {*texts(drawn)}


def test_by_time_a_step_ends_in_the_middle_where_the_pinned_one_takes_twice_as_long(draw):
    drawn = draw(timed(trace_of(10), 1.0), timed(trace_of(30), 2.0), by_time=True)
    assert part(drawn, drawn["line"][-1][0]) == 0.5
    assert part(drawn, drawn["other"][-1][0]) == 1
    assert {"0 s", "2.0 s"} <= {*texts(drawn)}


def test_a_first_step_that_sets_up_is_drawn_whole_though_the_others_take_less(draw):
    first = replace(timed(replace(trace_of(10), source="predicted"), 2.0), likely_seconds=0.5)
    drawn = draw(first, by_time=True)
    assert part(drawn, drawn["line"][-1][0]) == 1
    assert "2.0 s" in texts(drawn)


def test_the_times_of_a_card_and_of_this_machine_are_not_compared(draw):
    """A prediction beside a measurement: each fills the picture."""
    drawn = draw(timed(trace_of(10), 2.0), timed(replace(trace_of(10), source="predicted"), 0.01), by_time=True)
    assert part(drawn, drawn["other"][-1][0]) == part(drawn, drawn["line"][-1][0]) == 1


def test_by_time_a_prediction_stands_phase_at_phase_beside_a_measurement(draw):
    """Forward takes half of the predicted time and a quarter of the measured: both peaks stand where forward ends."""
    measured = timed(trace_of(10), 1.0)
    measured = replace(measured, events=tuple(event._replace(seconds=event.seconds**2) for event in measured.events))
    drawn = draw(measured, timed(replace(trace_of(10), source="predicted"), 0.01), by_time=True)
    for points in (drawn["line"], drawn["other"]):
        highest = min(y for _, y in points)
        assert [part(drawn, x) for x, y in points if y == highest] == [0.25]


def test_the_life_of_the_largest_tensor_stands_below_the_areas(draw, browser):
    drawn = draw(NAMED)
    browser.evaluate("picture.chart.point(picture.step.peakAt)")
    assert browser.locator(".memlab-life").evaluate("life => life.getBBox().y") > drawn["bottom"]


@pytest.mark.parametrize("oom", [None, OOM])
def test_where_memory_runs_out_no_tensor_outlives_the_step(draw, browser, oom):
    draw(replace(NAMED, oom=oom))
    browser.evaluate("picture.chart.point(picture.step.peakAt)")
    lives = " ".join(row.get_attribute("title") for row in browser.locator(".memlab-answer li").all())
    assert ("outlives the step" in lives, "alive when memory runs out" in lives) == (oom is None, oom is not None)


def test_another_model_is_not_drawn_beside_it(draw):
    drawn = draw(trace_of(10), trace_of(3), model="Wide")  # the pinned one has none
    assert drawn["other"] is None
    assert "is another model, so it is not drawn" in drawn["head"]


@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize(
    "trace", [trace_of(0), Trace("measured", "a device", "2.13.0", {}, (), None, 0, {}, (), 0)], ids=["idle", "empty"]
)
def test_a_step_without_events_is_drawn(draw, trace, by_time):
    drawn = draw(trace, trace, by_time=by_time)
    assert f"B {format_bytes(trace.peak_allocated)}" in texts(drawn)
    assert all(0 <= x <= drawn["whole"] for x, _ in drawn["line"])


def waiting(browser):
    return browser.evaluate(
        "[...document.querySelectorAll('.memlab-waits')].map(one => [one.x.baseVal.value, one.width.baseVal.value])"
    )


def test_where_a_rank_waits_for_others_is_striped_and_named_between_the_phases(draw, browser):
    trace = timed(replace(trace_of(10), source="predicted"), 1.0)  # forward ends in the middle
    late = (event._replace(seconds=event.seconds + (event.phase is Phase.BACKWARD)) for event in trace.events)
    trace = replace(trace, events=tuple(late), waits=((0.5, 1.5),))
    drawn = draw(trace, by_time=True)
    ((left, width),) = waiting(browser)
    assert (part(drawn, left), part(drawn, left + width)) == (0.25, 0.75)
    end = "(one => one.x.baseVal.value + one.width.baseVal.value)(document.querySelector('.memlab-shade'))"
    assert part(drawn, browser.evaluate(end)) == 0.25  # of forward
    name = next(text for text in drawn["texts"] if text[0] == "waits for other ranks")
    assert (name[1] + name[3]) / 2 == pytest.approx(left + width / 2, abs=8)  # pixels


def test_the_name_of_a_short_wait_stands_below_those_of_the_phases_and_by_event_there_is_none(draw, browser):
    trace = timed(replace(trace_of(10), source="predicted"), 1.0)
    trace = replace(trace, waits=((0.5, 0.55),))
    rows = {text: top for text, _, top, *_ in draw(trace, by_time=True, width=300)["texts"]}
    assert rows["waits for other ranks"] > rows["forward"]
    assert "waits for other ranks" not in texts(draw(trace))
    assert waiting(browser) == []


def test_a_step_that_waits_after_its_last_event_is_drawn_to_its_end(draw):
    waits = replace(NAMED, source="predicted", likely_seconds=2 * NAMED.events[-1].seconds)
    drawn = draw(waits, by_time=True)
    assert [part(drawn, x) for x, _ in drawn["line"][-2:]] == [0.5, 1]
    assert all(max(x for x, _ in area) == drawn["line"][-1][0] for _, area in drawn["areas"])
    failed = draw(replace(waits, oom=OOM), by_time=True)
    assert part(failed, failed["line"][-1][0]) == 0.45


# What stands beside it


def test_where_nobody_points_the_largest_categories_of_the_peak_are_told(draw, browser):
    draw(NAMED)
    answer = browser.locator(".memlab-answer")
    assert "at the peak · forward of blocks.0.mlp" in answer.inner_text()
    assert answer.locator("li span").all_inner_texts() == ["optimizer state", "activations", "parameters", "inputs"]
    assert answer.locator("li b").all_inner_texts() == ["64.0 MiB", "48.0 MiB", "32.0 MiB", "4.00 MiB"]
    browser.evaluate("picture.chart.point(0)")
    assert "start of the step" in answer.inner_text()
    assert "at the peak" not in answer.inner_text()
    draw(replace(NAMED, oom=OOM))
    assert "where memory ran out · forward of blocks.0" in answer.inner_text()  # as its sentence has it


def test_of_each_category_the_largest_tensor_is_told(draw, browser):
    storages = (*NAMED.storages, Storage("blocks.1.bias", (4,), "float32", Category.PARAMETER, 16))
    draw(replace(NAMED, storages=storages))
    rows = [row.locator("span, small").all_inner_texts() for row in browser.locator(".memlab-answer li").all()]
    told = {name: words.replace("\N{MULTIPLICATION SIGN}", "x") for name, words in rows}
    assert told["parameters"] == "blocks.0.mlp.weight · 2048 x 4096 float32 · 32.0 MiB, the largest of 2"
    assert told["optimizer state"] == "blocks.0.mlp.weight · 2 x 2048 x 4096 float32"


def test_a_tensor_is_called_what_the_loop_calls_it_and_by_what_made_it(draw, browser):
    draw(NAMED, by_time=True)
    browser.locator(".memlab-legend button", has_text="activations").click()
    browser.evaluate("picture.chart.point(picture.step.peakAt)")
    said = browser.locator(".memlab-answer li").inner_text()
    assert "logits (blocks.0.mlp mm)" in said
    assert "allocated now, freed in 30 ms in backward" in said


def test_alone_tensors_of_one_size_that_alike_modules_made_stand_together(draw, browser):
    made = [("blocks.0.mlp", 6), ("blocks.1.mlp", 6), ("head", 8), ("blocks.2.mlp", 2)]
    events = [
        Event(size * MIB, Category.ACTIVATION, Phase.FORWARD, module, "aten.mm", storage)
        for storage, (module, size) in enumerate(made)
    ]
    shapes = {6: (6, 1024, 256), 8: (8, 1024, 256), 2: (2, 1024, 256)}
    storages = [Storage("", shapes[size], "float32", Category.ACTIVATION, 0) for _, size in made]
    draw(replace(NAMED, events=tuple(events), storages=tuple(storages), start={}))
    browser.locator(".memlab-legend button", has_text="activations").click()
    rows = [row.locator("span, b, small").all_inner_texts() for row in browser.locator(".memlab-answer li").all()]
    told = [(name, size, words.replace("\N{MULTIPLICATION SIGN}", "x")) for name, size, words in rows]
    assert told == [
        ("blocks.*.mlp mm", "12.0 MiB", "2 x 6.00 MiB · 6 x 1024 x 256 float32"),
        ("head mm", "8.00 MiB", "8 x 1024 x 256 float32"),
        ("blocks.2.mlp mm", "2.00 MiB", "2 x 1024 x 256 float32"),
    ]


@pytest.mark.parametrize(("away", "is_peak"), [(5, True), (9, False)])
def test_near_the_peak_it_is_the_peak_that_is_asked(draw, browser, away, is_peak):
    draw(trace_of(300))
    found = browser.evaluate(
        """away => {
            const { chart } = picture, box = chart.box.getBoundingClientRect();
            return chart.at({ clientX: box.left + chart.x(chart.step.summit) - away });
        }""",
        away,
    )
    assert (found == 300) is is_peak


def test_differences_that_nobody_would_see_are_told_together(draw, browser):
    smaller = replace(
        NAMED, start={**NAMED.start, Category.PARAMETER: 32 * MIB - 100, Category.OPTIMIZER_STATE: 32 * MIB}
    )
    draw(NAMED, smaller)
    assert browser.locator(".memlab-difference tr").all_inner_texts() == [
        "optimizer state\t+32.0 MiB",
        "all else\t+100 B",
    ]


def test_where_no_question_was_shown_that_is_said(draw, browser):
    draw(NAMED)
    browser.evaluate("picture.showQuestions([]); picture.turned = 0; picture.nextQuestion()")
    assert "run their cells" in browser.locator(".memlab-question").text_content()
    browser.evaluate("picture.nextQuestion(); picture.nextQuestion()")
    assert browser.locator(".memlab-question").text_content() == ""


def test_what_is_allocated_where_somebody_points_stands_at_the_cursor(draw, browser):
    draw(NAMED)
    browser.evaluate("picture.chart.point(1)")
    assert browser.locator(".memlab-cursor text").inner_html() == format_bytes(NAMED.allocated[1])
    browser.evaluate("picture.chart.point(picture.step.peakAt)")  # which has its number
    assert browser.locator(".memlab-cursor text").count() == 0


@pytest.mark.parametrize(("width", "is_seen"), [(400, True), (1000, False)])
def test_beside_no_room_for_the_tensors_the_largest_is_told_above_the_chart(draw, browser, width, is_seen):
    draw(NAMED, width=width)
    head, brief, chart = map(browser.locator, (".memlab-head", ".memlab-brief", ".memlab-chart"))
    assert not brief.is_visible()
    before = chart.bounding_box()
    browser.evaluate("picture.chart.point(1)")
    assert brief.is_visible() is is_seen
    assert head.locator(".memlab-facts").is_visible() is not is_seen
    assert brief.text_content().endswith("the largest: blocks.0.mlp.weight, 64.0 MiB")
    assert chart.bounding_box() == before
    browser.evaluate("picture.chart.point(null)")
    assert not brief.is_visible()


def test_a_forward_that_no_backward_follows_has_a_name_of_its_own(draw):
    trained = trace_of(100)
    evaluated = replace(
        trained,
        events=(
            *trained.events,
            *trained.events[:100],
            *(event._replace(phase=Phase.FORWARD) for event in trained.events[100:]),
        ),
    )
    assert {"forward", "backward", "forward only"} <= set(texts(draw(evaluated)))
    assert "forward only" not in texts(draw(trained))
    assert "forward only" not in texts(draw(replace(trained, events=trained.events[:100])))  # there never is a backward


def test_the_line_of_the_peak_is_marked_as_soon_as_the_code_is_there(draw, browser):
    draw(NAMED)
    browser.evaluate(
        "picture.showCode({ lines: ['for x in data:', '    loss = model(x)', '    yield loss'], first: 5 })"
    )
    assert browser.locator(".memlab-code mark").inner_text() == "    loss = model(x)"


def test_the_line_of_the_peak_is_in_sight_also_where_the_panel_comes_into_sight_later(draw, browser):
    draw(NAMED)
    browser.evaluate("document.body.style.display = 'none'")
    lines = [f"line {number}" for number in range(40)]
    browser.evaluate("([lines]) => picture.showCode({ lines, first: 6 - 30 })", [lines])  # the peak is in line 6
    browser.evaluate("document.body.style.display = ''; picture.draw()")
    code, mark = (browser.locator(f".memlab-code{part}").bounding_box() for part in ("", " mark"))
    assert code["y"] < mark["y"] < code["y"] + code["height"] - mark["height"]


def test_a_measured_steps_axis_says_that_others_take_less_time(draw):
    drawn = draw(NAMED, by_time=True)
    assert "time in a tracked step: others take 63 ms" in texts(drawn)


def test_the_line_of_the_peak_stays_in_sight_when_a_is_pinned(draw, browser):
    draw(NAMED, width=1200)
    lines = [f"line {number}" for number in range(40)]
    browser.evaluate("([lines]) => picture.showCode({ lines, first: 6 - 30 })", [lines])
    browser.evaluate("picture.pin()")
    code, mark = (browser.locator(f".memlab-code{part}").bounding_box() for part in ("", " mark"))
    assert code["y"] <= mark["y"] <= code["y"] + code["height"] - mark["height"]


def test_while_a_step_is_replayed_the_place_beside_it_is_the_cursors(draw, browser):
    draw(NAMED)
    browser.evaluate("picture.replay(60, 50)")
    browser.wait_for_function("picture.chart.moment !== null")
    told, place, alive = browser.evaluate(
        "[picture.answer.innerText, picture.step.placeOf(picture.chart.moment),"
        " picture.step.allocated[picture.chart.moment]]"
    )
    assert told.split() == [*place.split(), "alive:", *format_bytes(alive).split()]
    browser.evaluate("clearInterval(picture.replaying); picture.chart.point(null)")
    assert "at the peak" in browser.locator(".memlab-answer").inner_text()


@pytest.mark.parametrize("width", [1200, 400])
def test_long_lines_of_code_are_wrapped_between_words_and_stay_what_they_were(draw, browser, width):
    draw(NAMED, width=width)
    lines = [
        "def train(device, *, batch_size=8, checkpoint_every=4, precision='bf16'):",
        "    for x in data:",
        "        yield loss",
    ]
    browser.evaluate("([lines]) => picture.showCode({ lines, first: 1 })", [lines])
    code = browser.locator(".memlab-code")
    assert code.evaluate("code => [code.scrollWidth - code.clientWidth, code.textContent]") == [0, "".join(lines)]
    heights = code.evaluate("code => [...code.children].map(line => line.getClientRects()[0].height)")
    assert heights[0] > 1.5 * heights[1]


# A run below it


def show_run(browser, steps, count=5, **options):
    browser.evaluate(DRAW, [View(MEASURED).to_plain(), None, 900, False])
    browser.evaluate("run => picture.showRun(run)", progress(steps, count, **{"name": "batch 8"} | options))
    return browser.locator(".memlab-run")


def points_of(browser, label, kind="now"):
    curve = browser.get_by_label(label).locator(f"polyline.memlab-{kind}").first
    return [tuple(map(float, pair.split(","))) for pair in curve.get_attribute("points").split()]


def test_a_run_shows_what_is_known_and_survives_what_is_not(browser):
    losses = (2.5, float("nan"), None, float("inf"), 1.5)
    run = show_run(browser, [Step(loss, 0.1, None, False) for loss in losses], 9)
    assert "The loss is nan since step 2." in run.inner_text()
    assert run.locator(".memlab-loss").inner_text() == "1.50"
    known = points_of(browser, "loss of each step")
    assert [x for x, _ in known] == pytest.approx([4, 100], abs=0.1)  # the fifth of nine is in the middle of 200
    assert "nan" not in run.inner_html().lower().replace("the loss is nan", "")
    assert run.locator("circle").count() == 1


@pytest.mark.parametrize("steps", [[], [Step(None, 0.1, None, False)], [Step(1.0, 0.1, 0, True)]])
def test_there_is_a_run_with_hardly_anything_to_show(browser, steps):
    assert "batch 8" in show_run(browser, steps, 1, earlier=[[], steps]).inner_text()


def test_earlier_losses_are_drawn_behind_to_the_same_scale(browser):
    show_run(browser, STEPS, 3, earlier=[[replace(step, loss=2 * step.loss) for step in STEPS]])
    now, earlier = (points_of(browser, "loss of each step", kind) for kind in ("now", "earlier"))
    assert len(now) == len(earlier) == 3
    assert [x for x, _ in now] == [x for x, _ in earlier]
    assert earlier[1][1] == now[0][1]  # twice 1.25 is 2.5


def test_the_line_of_the_peaks_reaches_the_last_step(browser):
    steps = [Step(1.0, 0.1, peak, True) for peak in (MIB, 2 * MIB, 3 * MIB)] + [Step(1.0, 0.1, None, False)] * 2
    assert "peaks up to 3.00 MiB" in show_run(browser, steps, 9).inner_text()
    assert len(points_of(browser, "peak of each step")) == 5


def test_a_peak_that_stays_is_said_and_not_drawn(browser):
    said = show_run(browser, [Step(1.0, 0.1, peak, True) for peak in (MIB, 2 * MIB, 2 * MIB)]).inner_text()
    assert "peak 2.00 MiB in every step but the first" in said
    assert browser.get_by_label("peak of each step").count() == 0


def test_each_rank_has_its_peak(browser):
    low, high = ([Step(1.0, 0.1, peak, True)] for peak in (2**20, 2**21))
    assert "rank 0: 1.00 MiB · rank 1: 2.00 MiB" in show_run(browser, high, ranks=[low, high]).inner_text()


# The table


ROWS = (
    (1, "batch 1", "predicted, T4", 100 * MIB, 0.5, 2.0, False, False),
    (2, "batch 8", "predicted, T4", 400 * MIB, 1.0, 8.0, False, True),
    (3, "batch 64", "predicted, T4", 300 * MIB, None, None, True, False),
)


@pytest.fixture
def table(browser):
    browser.evaluate(DRAW, [View(MEASURED).to_plain(), None, 900, False])
    names = ("number", "settings", "what", "peak", "seconds", "rate", "failed", "best")
    browser.evaluate("rows => picture.showRows(rows)", [dict(zip(names, row, strict=True)) for row in ROWS])
    return browser.locator(".memlab-table")


def numbers(table):
    return [int(text.split()[0]) for text in table.locator("tbody th").all_inner_texts()]


@pytest.mark.parametrize(
    ("heading", "order"),
    [
        ("a step", [1, 2, 3]),
        ("samples/s", [2, 1, 3]),
        ("peak", [1, 2, 3]),
        ("settings", [1, 2, 3]),
    ],
)
def test_the_table_is_sorted_by_what_is_pressed_and_a_second_time_by_age(table, heading, order):
    newest_first = [3, 2, 1]
    assert numbers(table) == newest_first
    table.get_by_role("button", name=heading, exact=True).click()
    assert numbers(table) == order
    table.get_by_role("button", name=heading, exact=True).click()
    assert numbers(table) == newest_first


def test_the_table_marks_the_best_and_what_ran_out_of_memory(table):
    failed = table.locator("tbody tr").filter(has_text="batch 64")
    assert "out of memory" in failed.inner_text()
    assert "300 MiB" not in failed.inner_text()
    assert table.locator(".memlab-best").inner_text().startswith("2 \N{BLACK STAR}")
    assert "the fastest that fits" in table.locator("caption").inner_text()


# Labels do not collide, in the narrowest picture and in wider ones.


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
    start = {Category.PARAMETER: 50 * size}
    trace = Trace("predicted", "A100-40GB", "2.13.0", {}, (), 1, 0, start, tuple(events), 0, oom)
    return replace(
        trace, reserved=((0, 50 * size), (len(events) // 3, round(chance.uniform(1, 2) * trace.peak_allocated)))
    )


def collisions(boxes):
    return [
        pair
        for pair in combinations(boxes, 2)
        for a, b in [(boxes[pair[0]], boxes[pair[1]])]
        if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
    ]


def boxes_of(drawn):
    return {f"{text} ({i})": box for i, (text, *box) in enumerate(drawn["texts"])}


def limits_of(chance, peak):
    """None, far away, just above the peak, or at the same height."""
    return chance.choice(
        (None, 5 * peak + 1, round(1.01 * peak) + 1, round(1.05 * peak) + 1, peak, 2 * peak, peak // 2 + 1)
    )


@pytest.mark.parametrize("seed", range(60))
def test_labels_never_collide(draw, seed):
    chance = random.Random(seed)
    trace, other = random_trace(chance), chance.choice((None, random_trace(chance)))
    peak = trace.peak_allocated
    for width in (250, 500, 900):
        limits = {"budget": limits_of(chance, peak), "room": limits_of(chance, peak)}
        drawn = draw(trace, other, width=width, reserved=chance.random() < 0.5, **limits)
        assert collisions(boxes_of(drawn)) == []
        assert all(left >= -1 and right <= drawn["whole"] + 1 for _, left, _, right, _ in drawn["texts"])


@pytest.mark.parametrize("budget", [None, 240 * MIB, 236 * MIB, 250 * MIB])
@pytest.mark.parametrize("trace", [MEASURED, FAILED, PREDICTED_TO_FAIL])
def test_the_golden_steps_have_their_labels_and_these_do_not_collide(draw, trace, budget):
    drawn = draw(trace, MEASURED, width=700, budget=budget, room=15 * GIB)
    assert collisions(boxes_of(drawn)) == []
    named = texts(drawn)
    assert any(text.startswith("B out of memory") if trace.oom else text == "B 236 MiB" for text in named)
    if budget is not None:
        assert f"budget {format_bytes(budget)}" in named


def test_the_test_of_collisions_finds_one():
    assert collisions({"a": (0, 0, 10, 10), "b": (9, 9, 20, 20), "c": (10, 0, 20, 9)}) == [("a", "b")]
