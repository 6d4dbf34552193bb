"""Updates that vanish in bfloat16: counted by rounding, and the line of half a gap."""

import pytest
import torch

from memlab import drawings
from memlab.drawings.updates import half_gap, vanished
from memlab.errors import BadValue


def test_half_a_gap_is_what_rounding_needs():
    numbers = torch.tensor([1.0, 1.9, 0.02, 5.2]).bfloat16().float()
    gaps = half_gap(numbers)
    assert gaps[0].item() == 2.0**-8
    assert torch.equal((numbers + 0.9 * gaps).bfloat16().float(), numbers)
    assert not ((numbers + 1.1 * gaps).bfloat16().float() == numbers).any()


def test_what_vanishes_is_counted_by_rounding():
    weights = torch.ones(4)
    change = torch.tensor([0.001, 0.003, 0.01, 0.0])  # half a gap is 0.0039; a zero is no update
    assert vanished(weights, change) == pytest.approx(2 / 3)


def test_the_title_names_the_first():
    weights = torch.randn(2000).bfloat16().float()
    changes = {"small": weights.abs() / 1000, "large": weights.abs() / 10}
    picture = drawings.updates(weights, changes)
    assert picture.sentence == "small: 100% of the updates vanish in bfloat16"
    (axes,) = picture.axes
    labels = axes.get_legend_handles_labels()[1]
    assert labels == ["small: 100% vanish", "large: 0% vanish", "half a gap of bfloat16"]
    assert picture.png().startswith(b"\x89PNG")


def test_a_step_that_moves_nothing_is_refused():
    with pytest.raises(BadValue, match="'still' changes no weight"):
        drawings.updates(torch.ones(4), {"still": torch.zeros(4)})
