from itertools import islice

import pytest
import torch

from memlab.data import batches
from memlab.errors import BadValue
from memlab.nets import GPT
from memlab.sizes import SIZES, size


@pytest.mark.parametrize("name", SIZES)
def test_the_environment_names_the_size(monkeypatch, name):
    monkeypatch.setenv("MEMLAB_SIZE", name)
    assert size() is SIZES[name]
    assert size().name == name


@pytest.mark.parametrize("unset", ["", None])
@pytest.mark.parametrize(("cuda", "name"), [(True, "gpu"), (False, "cpu")])
def test_without_one_the_size_fits_the_machine(monkeypatch, unset, cuda, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    if unset is None:
        monkeypatch.delenv("MEMLAB_SIZE", raising=False)
    else:
        monkeypatch.setenv("MEMLAB_SIZE", unset)
    assert size().name == name


def test_an_unknown_size_is_named_with_what_is_legal(monkeypatch):
    monkeypatch.setenv("MEMLAB_SIZE", "huge")
    with pytest.raises(BadValue) as caught:
        size()
    assert str(caught.value) == "MEMLAB_SIZE='huge' is not a size: set it to ci, cpu, gpu, or leave it unset."


@pytest.mark.parametrize("chosen", SIZES.values(), ids=SIZES)
def test_the_heads_share_the_width(chosen):
    assert chosen.width % chosen.heads == 0


@pytest.mark.parametrize("chosen", SIZES.values(), ids=SIZES)
def test_the_first_step_makes_the_loss_smaller(chosen):
    torch.manual_seed(0)
    model = GPT(depth=chosen.depth, width=chosen.width, heads=chosen.heads, context=32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=chosen.lr)
    losses = []
    for tokens, targets in islice(batches(4, 32), 2):  # the second loss is that of texts that it has not seen
        losses.append(model(tokens, targets))
        losses[-1].backward()
        optimizer.step()
    assert losses[1] < losses[0]
