import os
import subprocess
import sys

import pytest

from memlab.errors import BadValue
from memlab.protocol import check_settings
from tests.environments import ROOT
from tests.loops.cases import all_cases, find_cases


def test_the_matrix_is_what_was_asked_for():
    names = [case.name for case in all_cases()]
    assert len(names) == len(set(names)) >= 80
    for word in ("gpt", "vit", "resnet", "mlp", "fp32", "tf32", "fp16", "bf16", "pure bf16", "checkpoint_every=4"):
        assert any(word in name for name in names)
    for word in (
        "SGD",
        "AdamW fused",
        "in backward",
        "batch_size=33",
        "math",
        "efficient",
        "flash",
        "chunked",
        "offload",
    ):
        assert any(word in name for name in names)
    assert 0.2 < sum(case.holdout for case in all_cases()) / len(names) < 0.45
    assert all(case.events for case in all_cases()[:7])


def test_every_case_gives_its_loop_settings_that_it_has():
    for case in all_cases():
        check_settings(case.made()[0], case.settings)


def test_cases_are_found_by_parts_of_their_names():
    assert find_cases([]) == all_cases()
    assert {case.loop.__name__ for case in find_cases(["mlp", "vit"])} >= {"mlp", "vit"}
    with pytest.raises(BadValue, match="no case is called 'recipes': give a part of a name"):
        find_cases(["mlp", "recipes"])


def test_holding_out_depends_on_the_name_alone():
    """And not on the process, as ``hash`` of a text would."""
    code = "from tests.loops.cases import all_cases\nfor case in all_cases():\n    if case.holdout: print(case.name)"
    environment = dict(os.environ, PYTHONHASHSEED="7")
    options = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True, "check": True}
    said = subprocess.run([sys.executable, "-c", code], **options)
    assert said.stdout.splitlines() == [case.name for case in all_cases() if case.holdout]
