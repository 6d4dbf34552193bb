"""The progress of a run: every loss and peak, as JSON has them, and the time that is left."""

import json
from dataclasses import replace

import pytest

from memlab.lab.progress import progress, seconds_left, stop_text
from memlab.trace import Step
from tests.golden.traces import STEPS

PLAIN = [
    Step(2.5, 0.1, 2**20, True),
    Step(float("nan"), 0.1, None, False),
    Step(None, 0.1, None, False),
    Step(float("inf"), 0.1, None, False),
    Step(1.5, 0.1, 2**21, True),
]


def test_it_has_every_loss_and_every_peak_that_is_known():
    run = progress(PLAIN, 40, name="batch 8", going=True)
    assert run == {
        "name": "batch 8",
        "count": 40,
        "going": True,
        "losses": [2.5, "nan", None, "inf", 1.5],
        "peaks": [2**20, None, None, None, 2**21],
        "earlier": [],
        "ranks": [],
        "xrays": 2,
        "sample": "",
    }
    assert json.loads(json.dumps(run, allow_nan=False)) == run


def test_earlier_runs_have_their_losses_and_ranks_their_highest_peak():
    low, high, silent = ([Step(1.0, 0.1, peak, True)] * 4 for peak in (2**20, 2**21, None))
    run = progress(high, 4, name="", earlier=[PLAIN, STEPS], ranks=[[*low, *high], silent, []], sample="reads: x")
    assert run["earlier"] == [[2.5, "nan", None, "inf", 1.5], [2.5, 1.25, 0.625]]
    assert run["ranks"] == [2**21, 0, 0]
    assert (run["sample"], run["going"]) == ("reads: x", False)


def test_before_the_first_step_there_is_nothing():
    run = progress([], 40, name="", earlier=[[]])
    assert (run["losses"], run["peaks"], run["earlier"], run["xrays"]) == ([], [], [[]], 0)


def steps(*seconds):
    return [Step(1.0, count, None, False) for count in seconds]


def test_what_is_left_takes_as_long_as_the_newest_steps():
    assert seconds_left(steps(90.0, *[0.5] * 5), 10) == 4 * 0.5  # the first one compiled, say
    assert seconds_left(steps(*[9.0] * 20, *[1.0] * 10), 35) == 5.0
    assert seconds_left(steps(1.0, 2.0, 9.0), 3) == 0.0


def test_what_is_not_known_is_not_said():
    assert seconds_left([], 10) is None
    assert seconds_left([replace(STEPS[0], seconds=None)], 10) is None
    assert stop_text([], 60) == "Stop · 0 of 60"
    assert stop_text([replace(STEPS[0], seconds=None)], 60) == "Stop · 1 of 60"


@pytest.mark.parametrize(
    ("count", "words"),
    [(70, "Stop · 35 of 70 · 3.5 s"), (35, "Stop · 35 of 35"), (1235, "Stop · 35 of 1235 · 120 s")],
)
def test_the_button_counts_the_steps_and_the_time_that_is_left(count, words):
    assert stop_text(steps(*[0.1] * 35), count) == words
