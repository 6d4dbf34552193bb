"""The table of runs: what is in it, in which order, and which is the best."""

import csv
import io
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from memlab.lab.rows import MOST_ROWS, ORDERS, STAR, add, best, table, to_csv
from memlab.trace import Category
from memlab.units import MIB
from tests.golden.traces import MEASURED, PREDICTED, PREDICTED_TO_FAIL

NAMES = ("batch_size", "precision")


def run(batch, peak, seconds, source=PREDICTED):
    return replace(
        source,
        settings={"batch_size": batch, "precision": "bf16"},
        start={Category.PARAMETER: peak * MIB},
        events=(),
        least_seconds=seconds / 2,
        likely_seconds=seconds,
    )


@pytest.fixture
def rows():
    """Three predictions: small and slow, large and fast, and one that fails."""
    found = add((), run(1, 100, 0.5), NAMES)
    found = add(found, run(8, 400, 1.0), NAMES)
    return add(found, replace(PREDICTED_TO_FAIL, settings={"batch_size": 64, "precision": "bf16"}), NAMES)


def lines(html):
    """The text of each row of the table's body."""
    body = ElementTree.fromstring(html).find(".//tbody")
    return [[" ".join(cell.itertext()) for cell in row] for row in body]


def test_a_row_says_what_a_run_costs_and_gives(rows):
    assert lines(table(rows, "settings", None)) == [
        ["1", "batch 1 predicted, T4", "100 MiB", "500 ms", "2"],
        [f"2 {STAR}", "batch 8 predicted, T4", "400 MiB", "1.0 s", "8"],
        ["3", "batch 64 predicted, T4", "out of memory", "", ""],
    ]


def test_there_is_no_table_of_one_run(rows):
    assert table(rows[:1], "newest first", None) == ""


@pytest.mark.parametrize(
    ("order", "numbers"),
    [
        ("newest first", [3, 2, 1]),
        ("lowest peak", [1, 2, 3]),
        ("shortest step", [1, 2, 3]),
        ("most samples/s", [2, 1, 3]),
        ("settings", [1, 2, 3]),
    ],
)
def test_rows_stand_in_the_order_that_is_chosen(rows, order, numbers):
    assert list(ORDERS) == ["newest first", "lowest peak", "shortest step", "most samples/s", "settings"]
    assert [int(cells[0].split()[0]) for cells in lines(table(rows, order, None))] == numbers


def test_the_best_is_the_fastest_that_fits_the_budget(rows):
    assert best(rows, None) == {2}
    assert best(add(rows, run(2, 200, 0.5), NAMES), 300 * MIB) == {4}
    assert best(rows, 300 * MIB) == set()  # no choice
    assert f"{STAR} the fastest within the budget" in table(rows, "settings", 400 * MIB)


def test_where_no_step_was_timed_none_is_said_to_be_the_fastest():
    untimed = replace(MEASURED, steps=MEASURED.steps[:1])  # the first warms up
    rows = add(add((), untimed, NAMES), replace(untimed, settings={"batch_size": 1}), NAMES)
    assert best(rows, None) == set()
    assert STAR not in table(rows, "settings", None)


def test_what_ran_here_is_not_compared_with_what_is_predicted_for_a_card(rows):
    measured = run(64, 1, 0.1, MEASURED)
    both = add(add(rows, measured, NAMES), measured, NAMES)
    assert best(both, None) == {2, 4}
    assert best(add(rows, run(64, 1, 0.1), NAMES, "GPT-2 small"), None) == {2}


def test_the_same_prediction_is_kept_once_and_every_run():
    once = add(add((), run(1, 100, 0.5), NAMES), run(1, 100, 0.5), NAMES)
    assert [row.number for row in once] == [2]
    assert len(add(add((), MEASURED, NAMES), MEASURED, NAMES)) == 2


def test_the_oldest_rows_go():
    rows = ()
    for _ in range(MOST_ROWS + 5):
        rows = add(rows, MEASURED, NAMES)
    assert [row.number for row in rows] == list(range(6, MOST_ROWS + 6))


def test_rows_of_one_setting_are_named_all_the_same():
    rows = add(add((), MEASURED, NAMES), MEASURED, NAMES)
    assert {cells[1] for cells in lines(table(rows, "newest first", None))} == {"the same measured"}


def test_the_rows_as_csv(rows):
    read = list(csv.DictReader(io.StringIO(to_csv(rows))))
    assert read[1] == {
        "run": "2",
        "source": "predicted",
        "device": "T4",
        "model": "",
        "batch_size": "8",
        "precision": "bf16",
        "peak_bytes": str(400 * MIB),
        "seconds": "1.0",
        "samples_per_second": "8.0",
        "failed": "False",
    }
    assert read[2]["seconds"] == ""
