import base64
import json
import re
import zlib
from dataclasses import replace

import pytest

from memlab.lab.page import Axis, Grid, fragment, page
from memlab.lab.page.html import packed, script, unpacked
from memlab.lab.screen import View
from memlab.trace import Event
from tests.golden.traces import NAMED, PREDICTED, PREDICTED_TO_FAIL
from tests.lab.page.whole import whole

STILL = '<img alt="a step" src="data:image/png;base64,AA==">'
CODE = {"lines": ["def train(device):", "    yield '</script>'"], "first": 3}


RUN = {
    "settings": {"batch_size": 8, "rate": 1 / 3},
    "shown": View(NAMED, ("batch_size",), outline=PREDICTED, recorded=True).to_plain(),
    "run": {"losses": [None, *range(20)], "peaks": [2**20] * 21},
    "samples": [(0, ""), (10, "reads")],
    "xrayed": [True, *[False] * 20],
}


@pytest.fixture
def grid():
    axes = (Axis("batch_size", "batch size", "slider", (1, 8, 0.25), 1), Axis("gpu", "predict for", "menu", ("T4",)))
    shown = (View(NAMED, ("batch_size",)).to_plain(), View(PREDICTED, budget=2**28, room=2**34).to_plain(), None)
    sentences = ("first & one", "second", "Not possible.")
    return Grid("Start <here>", axes, shown, sentences, CODE, STILL, (RUN,))


def test_what_is_packed_comes_out(grid):
    data = unpacked(packed(grid))
    assert [whole(step, data["shared"]) for step in data["shown"]] == json.loads(json.dumps(grid.shown))
    assert data["sentences"] == list(grid.sentences)
    assert data["title"] == "Start <here>"
    assert data["code"] == CODE
    assert data["axes"][0] == {
        "name": "batch_size",
        "label": "batch size",
        "kind": "slider",
        "values": ["1", "8", "0.25"],
        "start": 1,
    }


def test_a_recorded_run_comes_out_with_its_outline_and_the_texts_of_its_controls(grid):
    data = unpacked(packed(grid))
    (run,) = (whole(run, data["shared"]) for run in data["runs"])
    assert run == json.loads(json.dumps(RUN)) | {"settings": {"batch_size": "8", "rate": "0.333"}}


def long_step(batch):
    """A step of 400 events: of a batch, twice the bytes in twice the time; all else is the same."""
    events = [
        Event(batch * (1000 + i), *PREDICTED.events[i % 11][1:5], storage=i, line=i % 7, seconds=batch * i * 1e-4)
        for i in range(400)
    ]
    return View(replace(PREDICTED, events=tuple(events), settings={"batch_size": batch}), ("batch_size",)).to_plain()


def test_what_steps_have_in_common_is_packed_once(grid):
    shown = tuple(long_step(batch) for batch in range(1, 101))
    many = replace(grid, shown=shown, runs=())
    data = unpacked(packed(many))
    for step, packed_step in zip(shown, data["shown"], strict=True):
        made = whole(packed_step, data["shared"])
        assert made["trace"]["events"].pop("seconds") == pytest.approx(step["trace"]["events"]["seconds"], abs=1e-6)
        assert made == {**step, "trace": {**step["trace"], "events": made["trace"]["events"]}}
        assert made["trace"]["events"] == {n: v for n, v in step["trace"]["events"].items() if n != "seconds"}
    assert len(data["shared"]) == len({json.dumps(values) for values in data["shared"]})
    alike = ("category", "phase", "module", "op", "age", "line", "texts")  # all but bytes and times
    assert len(data["shared"]) == len(alike) + 2 * len(shown)
    alone = base64.b64encode(zlib.compress(json.dumps(shown, separators=(",", ":")).encode(), 9))
    assert len(packed(many)) < 0.5 * len(alone)


def test_short_lists_stay_where_they_are(grid):
    data = unpacked(packed(grid))
    assert data["shown"][0]["trace"]["events"]["bytes"] == grid.shown[0]["trace"]["events"]["bytes"]
    assert data["shown"][1]["limits"] == grid.shown[1]["limits"]
    assert all(len(values) > 8 for values in data["shared"])


def test_a_step_that_ran_out_of_memory_is_packed_like_any_other(grid):
    failed = View(PREDICTED_TO_FAIL, room=2**30).to_plain()
    data = unpacked(packed(replace(grid, shown=(failed,))))
    assert whole(data["shown"][0], data["shared"]) == failed


def test_without_a_script_the_step_that_it_begins_with_is_shown(grid):
    text = fragment(grid, with_script=False)
    assert "<script" not in text
    assert f"{STILL}<p>second</p>" in text
    axes = (replace(grid.axes[0], start=0), grid.axes[1])
    assert f"{STILL}<p>first &amp; one</p>" in fragment(replace(grid, axes=axes), with_script=False)


def test_a_page_is_one_file_and_escapes_what_it_is_given(grid):
    text = page(grid)
    assert "<title>Start &lt;here&gt;</title>" in text
    assert "<here>" not in text
    assert text.count("</script>") == 1  # the loop's code, which has another, is packed
    for outside in ("http://", "https://"):
        assert outside not in text
    assert re.findall(r'(?:src|href)="([^"]{5})', text) == ["data:"]


def test_a_page_carries_the_script_and_the_style_and_a_fragment_may_leave_them_to_the_page(grid):
    assert script() in page(grid)
    assert ".memlab-chart" in page(grid)
    bare = fragment(grid, with_script=False)
    assert "<style" not in bare
    assert bare.startswith('<div class="memlab" id="lab-start--here-" data-grid="')


def test_the_script_is_a_classic_one_which_a_folder_may_load():
    assert not re.search(r"^\s*(export|import)\b", script(), flags=re.MULTILINE)
    for name in ("class Picture", "class Step", "function unpack"):
        assert script().count(name) == 1
    assert script().startswith('(() => {\n"use strict";\n')


def test_two_panels_of_a_page_have_their_own_addresses(grid):
    assert 'id="lab-start--here-"' in fragment(grid)
    assert 'id="lab-another"' in fragment(replace(grid, title="Another"))
