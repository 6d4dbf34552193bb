"""A rule that is missing is found by the allocation that it would have made."""

import os

import pytest

from memlab.vgpu.scratch import table
from tests.cuda.first_difference import main

pytestmark = pytest.mark.skipif("STANDIN_CARD" not in os.environ, reason="needs the stand-in's card: make test-cuda")
CASE = "rows function=GroupNorm"


def test_equal_allocations_are_counted(capsys):
    main(CASE)
    assert capsys.readouterr().out.splitlines()[1].startswith("All ")


def test_the_operator_whose_rule_is_missing_is_named_with_the_line_of_its_rule(capsys, monkeypatch):
    rules = {op: rule for op, rule in table.RULES.items() if "group_norm" not in str(op)}
    monkeypatch.setattr(table, "RULES", rules)
    main(CASE)
    words = capsys.readouterr().out
    assert "allocation is the first that differs" in words
    assert "\nnative_group_norm_backward\n  memlab/vgpu/scratch/layers.py:" in words
