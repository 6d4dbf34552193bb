"""The panel in words."""

from dataclasses import replace

import pytest

from memlab.lab.words import summary
from memlab.trace import Category
from memlab.units import MIB
from tests.golden.traces import EMPTY, MEASURED


@pytest.mark.parametrize(
    ("peak", "words"),
    [
        (1270, "12.7 times"),
        (122_200, "1222 times"),
        (250, "2.50 times"),
        (199, "99% above"),
        (144, "44% above"),
        (100, "the same as"),
        (50, "50% below"),
        (23, "0.23 times"),
        (1, "0.01 times"),
    ],
)
def test_a_peak_is_compared_with_the_run_before_as_people_say_it(peak, words):
    before, now = (replace(EMPTY, start={Category.PARAMETER: count * MIB}) for count in (100, peak))
    assert f"That is {words} the run before." in summary(now, [before], None)


def test_a_run_that_hardly_takes_anything_is_no_0_times():
    tiny = replace(EMPTY, start={Category.PARAMETER: 1})
    assert "That is less than a hundredth of the run before" in summary(tiny, [MEASURED], None)
