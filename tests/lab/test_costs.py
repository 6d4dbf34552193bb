"""Time and rate of a step: bounds are called bounds."""

from dataclasses import replace

import pytest

from memlab.lab.costs import cost, facts, rate_text
from tests.golden.traces import MEASURED, PREDICTED, PREDICTED_TO_FAIL


def test_a_prediction_gives_a_bound_and_an_estimate():
    assert facts(PREDICTED) == (
        "236 MiB peak · at least 41 ms a step, probably 62 ms · at most 194 samples/s, probably 129"
    )


def test_a_measurement_gives_what_it_took():
    assert facts(MEASURED) == "236 MiB peak · 62 ms a step · 128 samples/s"


def test_nothing_is_said_that_is_not_known():
    assert facts(PREDICTED_TO_FAIL) == ""
    assert facts(replace(PREDICTED, least_seconds=None, likely_seconds=None)) == "236 MiB peak"
    assert "samples" not in facts(replace(PREDICTED, settings={"depth": 3}))


def test_ranks_add_up():
    assert cost(replace(PREDICTED, settings={"batch_per_rank": 4}, world_size=8)).samples == 32
    assert cost(replace(PREDICTED, settings={"batch_size": "all"})).samples is None


@pytest.mark.parametrize(("rate", "text"), [(0.4216, "0.422"), (22.5, "22.5"), (131.4, "131"), (12345, "12,300")])
def test_rates_have_three_digits(rate, text):
    assert rate_text(rate) == text
