"""The exports of a panel have what it shows."""

import base64
import csv
import io
import re
from dataclasses import replace

import pytest

import memlab
from memlab import cluster
from memlab.lab.export import code, links, still, timeline_csv
from memlab.lab.screen import View
from memlab.units import GIB, MIB
from memlab.vgpu import find_card
from tests.golden.traces import MEASURED, PREDICTED, PREDICTED_TO_FAIL
from tests.lab.loops import train

NAMES = ("batch_size",)


def test_the_code_is_the_call_that_gives_what_is_on_show():
    given = {}
    for view in (View(PREDICTED, NAMES), View(MEASURED, NAMES, budget=2 * GIB)):
        settings = {"batch_size": 24, "width": 16, "compiled": False, "optimizer": "AdamW"}
        text = code(replace(view, trace=replace(view.trace, settings=settings)), train, 40)
        head, call = text.split("\n\n")
        given[head] = eval(call, {call.partition("(")[0]: lambda *a, **k: (a, k), "train": train})
    assert given == {
        "from memlab import predict": ((train,), {"gpu": "T4", "batch_size": 24, "optimizer": "AdamW"}),
        "from memlab import measure": (
            (train,),
            {"steps": 40, "budget": 2 * GIB, "batch_size": 24, "optimizer": "AdamW"},
        ),
    }


@pytest.mark.parametrize(("trace", "module"), [(PREDICTED, memlab), (MEASURED, cluster)])
def test_the_code_of_ranks_names_them(trace, module):
    text = code(View(replace(trace, world_size=4), ("world_size",)), train, 3)
    assert "world_size=4" in text
    assert hasattr(module, text.split()[3])
    assert text.startswith(f"from {module.__name__} import")


def files(html):
    """The files that links save, by name."""
    found = re.findall(r'<a download="([^"]+)" href="data:([^;]+);base64,([^"]+)"', html)
    return {name: (kind, base64.b64decode(data)) for name, kind, data in found}


def test_the_links_carry_the_picture_and_the_tables():
    saved = files(links(View(PREDICTED, NAMES, "GPT-2 small"), "run,peak\n1,2\n"))
    assert list(saved) == ["batch-8-gpt-2-small.png", "batch-8-gpt-2-small.csv", "runs.csv"]
    assert saved["batch-8-gpt-2-small.png"][1].startswith(b"\x89PNG")
    assert saved["runs.csv"] == ("text/csv", b"run,peak\n1,2\n")
    assert list(files(links(View(PREDICTED), ""))) == ["memory-in-one-step.png", "memory-in-one-step.csv"]


def test_the_timeline_as_csv_is_the_step():
    rows = list(csv.DictReader(io.StringIO(timeline_csv(PREDICTED))))
    assert [int(row["allocated"]) for row in rows] == list(PREDICTED.allocated)
    assert [int(row["activation"]) for row in rows] == list(PREDICTED.timeline["activation"])
    assert (rows[5]["phase"], rows[5]["module"], rows[5]["operator"]) == ("backward", "blocks.1.mlp", "aten.mm")


def test_a_saved_notebook_shows_title_settings_and_sentence():
    html = still(View(PREDICTED, NAMES, "GPT-2 small"), "What the panel says.")
    assert "<b>batch 8 · GPT-2 small</b>, predicted for a T4: 236 MiB peak · at least 41 ms a step" in html
    assert f'<img alt="{PREDICTED.sentence}"' in html
    assert "<p>What the panel says.</p>" in html


@pytest.mark.parametrize(
    ("trace", "budget", "limit"),
    [
        (PREDICTED, None, None),  # far below what the card has
        (PREDICTED, 300 * MIB, 300 * MIB),
        (PREDICTED_TO_FAIL, None, find_card("T4").room),
    ],
)
def test_the_limit_of_a_still_picture_is_the_budget_or_the_card_where_it_is_near(trace, budget, limit):
    assert View(trace, budget=budget, room=find_card("T4").room).limit == limit
