"""Points are predicted once: what is kept is not predicted again, and an interrupted build goes on."""

import json
import re

import pytest

from memlab.lab.page import Point, combinations
from memlab.lab.page.grid import MOST_POINTS
from memlab.lab.page.html import unpacked
from tests.notebooks.apart import apart
from tests.notebooks.cells import NOTEBOOKS
from tests.site import grids
from tests.site.grids import Progress, begin, complete, panels, time_text
from tests.site.kept import Kept
from tests.site.panels import plan
from tests.site.points import GRID

SOURCE = """\
from memlab import Lab
from tests.lab.loops import train as loop

def train(device, *, batch_size=8, optimizer="SGD"):
    yield from loop(device, batch_size=batch_size, optimizer=optimizer)

lab = Lab(train, batch_size=(1, 64), optimizer=["SGD", "Adam"], steps=3, title="Kept")
lab
"""
ABOVE = "## Lab\n\n1. A batch of 20.\n2. **Run** a batch of 16."


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    monkeypatch.setattr(grids, "POINTS", tmp_path / "points")
    monkeypatch.setattr(grids, "SECONDS_PER_LINE", 0)
    cells = [
        {"cell_type": "markdown", "id": "a", "source": ABOVE},
        {"cell_type": "code", "id": "b", "source": SOURCE},
        {"cell_type": "markdown", "id": "c", "source": "`batch_size=24`, batch 99"},
    ]
    file = tmp_path / "99_kept.ipynb"
    file.write_text(json.dumps({"cells": cells}))
    return file


class Asked(list):
    """A substitute for predictions: it lists the points asked for, and raises KeyboardInterrupt after ``most``."""

    most = 10**9

    def point(self, session, chosen):
        if len(self) == self.most:
            raise KeyboardInterrupt
        self.append(chosen)
        return Point(None, f"of {chosen}")


@pytest.fixture
def asked(monkeypatch):
    asked = Asked()
    monkeypatch.setattr(grids, "point", asked.point)
    return asked


def test_a_panel_has_the_values_that_its_notebook_names(notebook):
    (panel,) = panels(notebook)
    assert set(panel.named) == {("batch_size", 20), ("batch_size", 16), ("batch_size", 24)}
    assert {1, 8, 16, 20, 24, 64} <= set(panel.axes[0].values)


def test_an_interrupted_build_goes_on_where_it_stopped(notebook, asked, capsys):
    asked.most = 40
    with pytest.raises(KeyboardInterrupt):
        complete(notebook)
    asked.most = 10**9
    made = complete(notebook)
    (panel,) = panels(notebook)
    assert asked == list(combinations(panel.axes))  # each once, in spite of the second build
    (packed,) = GRID.findall(made["b"]["html"])
    assert unpacked(packed)["sentences"] == [f"of {chosen}" for chosen in asked]
    assert [run["settings"]["batch_size"] for run in unpacked(packed)["runs"]] == ["8", "16"]
    assert made["b"]["has_runs"]
    lines = capsys.readouterr().out.splitlines()
    assert all(re.fullmatch(rf"99_kept: \d+ of {len(asked)} points, .* left", line) for line in lines[:-1])
    assert lines[-1] == f"99_kept: {len(asked)} of {len(asked)} points, done"
    assert complete(notebook) == made
    assert len(asked) == len(list(combinations(panel.axes)))


def test_its_loop_stands_beside_the_picture(notebook, asked):
    (packed,) = GRID.findall(complete(notebook)["b"]["html"])
    code = unpacked(packed)["code"]
    assert code["lines"][0].startswith("def train(device, *, batch_size=8")
    assert code["first"] == 4


def test_what_does_not_fit_is_said(notebook, asked, capsys, monkeypatch):
    monkeypatch.setattr(grids, "choose_axes", lambda *of, choose=grids.choose_axes, **named: choose(*of, 8, **named))
    complete(notebook)
    said = capsys.readouterr().out
    assert "99_kept: the text names batch size 16, for which there is no room\n" in said
    assert "batch size 20, for" not in said


def test_a_run_that_cannot_be_recorded_is_left_out_and_said(notebook, asked, capsys, monkeypatch):
    monkeypatch.setattr(grids, "record", lambda session, **settings: 1 / 0)
    assert not complete(notebook)["b"]["has_runs"]
    assert "99_kept: no recorded run with {'batch_size': 16}: ZeroDivisionError" in capsys.readouterr().out


def test_before_it_begins_it_says_how_much_there_is(notebook, asked):
    work = begin(notebook)
    (panel,) = panels(notebook)
    count = len(list(combinations(panel.axes)))
    assert len(asked) == grids.TRIED
    assert (work["points"], work["left"]) == (count, count - grids.TRIED)
    complete(notebook)
    assert begin(notebook)["left"] == 0
    assert len(asked) == count


def test_the_plan_has_the_points_and_the_time(monkeypatch):
    monkeypatch.setattr("tests.site.panels.AT_ONCE", 2)
    work = [{"points": 240, "left": 200, "seconds": 3.0}, {"points": 100, "left": 0, "seconds": 1.0}]
    assert plan(work).startswith("2 notebooks, 340 points, of which 200 are to be predicted: about 5 min, 2 notebooks")
    assert plan(work[1:]) == "1 notebooks, 100 points, all of them predicted."


def test_the_time_that_is_left_follows_from_the_points_so_far(monkeypatch, capsys):
    now = iter([100.0, 102.0, 104.0, 120.0, 122.0])
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    progress = Progress("name", 10, 5)
    for _ in range(5):
        progress.step()
    assert capsys.readouterr().out.splitlines() == [
        "name: 7 of 10 points, 6.0 s left",
        "name: 9 of 10 points, 6.7 s left",
        "name: 10 of 10 points, done",
    ]
    assert (time_text(119), time_text(600)) == ("120 s", "10 min")


def test_what_is_kept_is_read_again_and_half_a_line_costs_that_line_alone(tmp_path):
    file = tmp_path / "points.jsonl"
    kept = Kept(file)
    for number in range(3):
        assert kept.get({"batch_size": number}, lambda number=number: [number, "text", None]) == [number, "text", None]
    text = file.read_text()
    file.write_text(text[: text.rindex("]") - 20])
    again = Kept(file)
    assert [{"batch_size": number} in again for number in range(3)] == [True, True, False]
    assert again.get({"batch_size": 1}, lambda: 1 / 0) == [1, "text", None]
    again.get({"batch_size": 2}, lambda: 2)
    assert Kept(file).get({"batch_size": 2}, lambda: 1 / 0) == 2
    assert len(Kept(file).seconds) == 3


def places(notebook):
    return [len(list(combinations(panel.axes))) for panel in panels(notebook)]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_lab_has_a_page_of_its_own(notebook):
    counts = apart(places, notebook)
    assert counts
    assert max(counts) <= MOST_POINTS
