"""The table of runs: what is in it, and which is the best; the browser puts it in order."""

import csv
import io
import json
from dataclasses import replace

import pytest

from memlab.lab.rows import MOST_ROWS, add, best, table, to_csv
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
    failed = replace(PREDICTED_TO_FAIL, settings={"batch_size": 64, "precision": "bf16"})
    return add(found, failed, NAMES, needed=800 * MIB)


def test_a_row_says_what_a_run_costs_and_gives(rows):
    made = table(rows, None)
    assert json.loads(json.dumps(made)) == made
    names = ("number", "settings", "what", "peak", "seconds", "rate", "failed", "needed", "best")
    assert [tuple(row) for row in made] == [names] * 3
    failed = PREDICTED_TO_FAIL.peak_allocated
    assert [tuple(row.values()) for row in made] == [
        (1, "batch 1", "predicted, T4", 100 * MIB, 0.5, 2.0, False, None, False),
        (2, "batch 8", "predicted, T4", 400 * MIB, 1.0, 8.0, False, None, True),
        (3, "batch 64", "predicted, T4", failed, None, None, True, 800 * MIB, False),
    ]


def test_a_row_says_where_it_ran_and_which_model(rows):
    rows = add(add(rows, MEASURED, NAMES), run(8, 400, 1.0), NAMES, "GPT-2 small")
    assert [row["what"] for row in table(rows, None)[3:]] == ["measured", "GPT-2 small, predicted, T4"]


def test_of_no_runs_there_is_no_table_and_one_run_has_a_row_with_all_its_settings(rows):
    assert table((), None) == []
    assert [row["settings"] for row in table(rows[:1], None)] == ["batch 1, precision bf16"]


def test_a_row_names_the_settings_that_differ(rows):
    other = replace(run(8, 400, 1.0), settings={"batch_size": 8, "precision": "fp32"})
    assert table(add(rows, other, NAMES), None)[-1]["settings"] == "batch 8, precision fp32"
    without = replace(run(8, 400, 1.0), settings={"batch_size": 8})  # as the loop was before it had the other one
    assert [row["settings"] for row in table(add(rows, without, NAMES), None)][-2:] == ["batch 64", "batch 8"]


def test_the_best_is_the_fastest_that_fits_the_budget(rows):
    assert best(rows, None) == {2}
    assert best(add(rows, run(2, 200, 0.5), NAMES), 300 * MIB) == {4}
    assert best(rows, 300 * MIB) == set()  # no choice
    assert [row["best"] for row in table(rows, 400 * MIB)] == [False, True, False]
    assert not any(row["best"] for row in table(rows, 300 * MIB))


def test_where_no_step_was_timed_none_is_said_to_be_the_fastest():
    untimed = replace(MEASURED, steps=MEASURED.steps[:1])  # the first warms up
    rows = add(add((), untimed, NAMES), replace(untimed, settings={"batch_size": 1}), NAMES)
    assert best(rows, None) == set()
    assert not any(row["best"] for row in table(rows, None))
    assert [row["seconds"] for row in table(rows, None)] == [None, None]


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
    assert {row["settings"] for row in table(rows, None)} == {"batch 8, precision bf16"}


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
        "needed_bytes": "",
    }
    assert read[2]["seconds"] == ""
