"""A rule that is missing is found by the allocation that it would have made."""

import os

import pytest

from memlab.vgpu.scratch import table
from tests.cuda.first_difference import main, rules

on_the_standin = pytest.mark.skipif(
    "STANDIN_CARD" not in os.environ, reason="needs the stand-in's card: make test-cuda"
)
CASE = "rows function=GroupNorm"


@on_the_standin
def test_equal_allocations_are_counted(capsys):
    main(CASE)
    assert capsys.readouterr().out.splitlines()[1].startswith("All ")


@on_the_standin
def test_the_operator_whose_rule_is_missing_is_named_with_the_line_of_its_rule(capsys, monkeypatch):
    rules = {op: rule for op, rule in table.RULES.items() if "group_norm" not in str(op)}
    monkeypatch.setattr(table, "RULES", rules)
    main(CASE)
    words = capsys.readouterr().out
    assert "allocation is the first that differs" in words
    assert "\nnative_group_norm_backward\n  memlab/vgpu/scratch/layers.py:" in words


@pytest.mark.parametrize(
    ("operator", "place"),
    [
        ("var_correction", "memlab/vgpu/scratch/reductions.py:"),
        ("index_Tensor", "memlab/vgpu/scratch/indexing.py:"),
        ("_euclidean_dist", "memlab/vgpu/scratch/layers.py:"),
    ],
)
def test_a_rule_is_found_by_the_name_with_its_overload_that_a_stack_has(operator, place):
    found = list(rules(operator))
    assert found
    assert all(line.startswith(place) for line in found)


def test_an_operator_without_a_rule_has_none():
    assert list(rules("cat")) == []
