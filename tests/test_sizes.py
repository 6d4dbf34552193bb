import pytest
import torch

from memlab.errors import BadValue
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
