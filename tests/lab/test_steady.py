"""When a prediction has seen enough steps, and what it says where that never comes."""

import pytest

from memlab.lab.steady import MOST_STEPS, Footprint, is_steady, unsteadiness
from memlab.units import KIB, MIB


def footprints(starts, peaks):
    return [Footprint(start, peak) for start, peak in zip(starts, peaks, strict=True)]


@pytest.mark.parametrize(
    ("starts", "peaks", "steady"),
    [
        ([], [], False),
        ([0], [9], False),
        ([0, 4], [9, 12], False),  # the first set the optimizer's state up
        ([0, 4, 4], [9, 12, 12], True),
        ([0, 4, 4], [9, 12, 13], False),  # more is needed within the step
        ([0, 4, 5], [9, 12, 12], False),  # something stays, under a peak due to something else
        ([0, 0], [9, 9], True),
    ],
)
def test_a_step_like_the_one_before_is_steady(starts, peaks, steady):
    assert is_steady(footprints(starts, peaks)) is steady


STEPS = range(MOST_STEPS)


@pytest.mark.parametrize(
    ("starts", "peaks", "words"),
    [
        pytest.param(
            [12 * MIB * step for step in STEPS],
            [12 * MIB * (step + 3) for step in STEPS],
            "It never is steady: it grows by 12.0 MiB every step",
            id="a list of outputs",
        ),
        pytest.param(
            [5 * KIB for _ in STEPS],
            [KIB * (step + 9) for step in STEPS],
            "It never is steady: it grows by 1.00 KiB every step",
            id="longer sequences",
        ),
        pytest.param(
            [KIB * step for step in STEPS],
            [MIB * (step % 2 + 1) for step in STEPS],
            "It never is steady: it grows by 1.00 KiB every step",
            id="two batch sizes and a leak",
        ),
        pytest.param(
            [MIB * (step % 2) for step in STEPS],
            [MIB * (step % 2 + 1) for step in STEPS],
            "It is not steady: of its first 8 steps no two in a row are alike",
            id="two batch sizes",
        ),
        pytest.param([*STEPS[:-1], STEPS[-2]], [9] * MOST_STEPS, "", id="steady at last"),
        pytest.param([0, 1, 2], [3, 4, 5], "", id="a loop that ended early"),
    ],
)
def test_growth_is_told_in_bytes_a_step(starts, peaks, words):
    assert unsteadiness(footprints(starts, peaks)) == words
