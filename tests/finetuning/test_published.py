"""The peak of all weights fine-tuned on a real card: tests/published/finetuning.py has its source, and many more."""

import pytest

from tests.published.finetuning import PUBLISHED, predicted


def test_all_weights_take_what_was_published():
    (published,) = [one for one in PUBLISHED if one.name == "Llama 3 8B full, 4, Liger"]
    # The optimizer's step is the peak, so the batch does not matter: of eight sequences the same was published.
    run = predicted(published._replace(settings=published.settings | {"batch_size": 1, "context": 128}))
    assert run.peak_phase == "optimizer"
    assert run.peak_allocated == pytest.approx(published.published, rel=1e-4)
