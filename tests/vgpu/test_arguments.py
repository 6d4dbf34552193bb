"""Arguments by the names of PyTorch's schemas."""

import pytest
import torch

from memlab.vgpu.arguments import Arguments

aten = torch.ops.aten


def test_arguments_have_the_names_of_the_schema_however_they_are_given():
    tensor = torch.zeros(3)
    given = Arguments(aten.topk.default, (tensor, 2), {"largest": False})
    assert given.self is tensor
    assert (given.k, given.largest) == (2, False)


def test_what_is_not_given_has_the_default_of_the_schema():
    given = Arguments(aten.topk.default, (torch.zeros(3), 2))
    assert (given.dim, given.sorted) == (-1, True)
    assert Arguments(aten.segment_reduce.default, (torch.zeros(3), "sum"), {}).lengths is None


def test_each_overload_has_names_of_its_own():
    assert Arguments(aten.sort.stable, (torch.zeros(3),), {"stable": True, "dim": 0}).dim == 0
    assert Arguments(aten.sort.default, (torch.zeros(3), 0)).dim == 0
    of_all, of_one = aten.sum.default, aten.sum.dim_IntList
    assert Arguments(of_all, (torch.zeros(3),)).get("dim") is None
    assert Arguments(of_one, (torch.zeros(3), [0])).get("dim") == [0]


def test_a_name_that_the_schema_lacks_is_an_error():
    with pytest.raises(AttributeError, match=r"^aten\.topk\.default has no argument dims$"):
        Arguments(aten.topk.default, (torch.zeros(3), 2)).dims  # noqa: B018
