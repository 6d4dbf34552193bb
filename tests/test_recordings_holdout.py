"""Predictions against tests/recordings/: the cases that no rule was mended by, each on one card in turn.

A file of its own, so that another worker runs it. ``python -m tests.accuracy`` compares all cards.
"""

import pytest

from memlab.vgpu.cudnn.answers import answers
from tests.accuracy import of_this_torch, wrong_in_turn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not of_this_torch(), reason="no recordings of this PyTorch: make recordings, or python -m tests.record"
    ),
]


@pytest.fixture(autouse=True)
def _without_cudnn():
    """Not here: PyTorch's own cuDNN is asked where a CUDA build has brought it, for what ships is of one version."""
    answers.cache_clear()  # other tests of this process have asked none
    yield
    answers.cache_clear()


# Loops of the matrix may warn, as users' loops do.
@pytest.mark.filterwarnings("ignore")
def test_predictions_are_within_reach():
    assert wrong_in_turn(holdout=True) == []
