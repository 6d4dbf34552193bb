"""The plan for a script that runs out of memory, with answers in the place of predictions."""

from contextlib import suppress
from types import MethodType, SimpleNamespace

import pytest

from memlab.categories import Category
from memlab.errors import BadValue
from memlab.script.child import Answer
from memlab.script.command import Command
from memlab.script.options import Option
from memlab.script.plan import ACCUMULATE, EDITS, EXPANDABLE, MEND_FIRST, NO_GRAD, WHAT_IS_LEFT, Plan
from memlab.trace import Trace
from memlab.units import GIB

BATCH = Option("--batch-size", 32)
LENGTH = Option("--block", 1024)


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """``plan(needs, *options)``: the lines of a plan for 15 GiB.

    ``needs`` has GiB, or GiB and seconds, for words and edits; what it lacks fails to run.
    """
    path = tmp_path / "train.py"
    path.write_text("")
    tried = []
    monkeypatch.setattr("memlab.script.plan.NEEDS", {})  # as if all of them were installed

    def plan(needs, *options):
        def predicted(command, edits, steps):
            expands = [EXPANDABLE] * ("PYTORCH_CUDA_ALLOC_CONF" in command.environment)
            values = (f"{key.split()[-1]}:{value}" for key, value in command.values.items())
            tried.append(" ".join((*command.arguments, *values, *edits, *expands)))
            if tried[-1] == plan.interrupted_at:
                raise KeyboardInterrupt
            if tried[-1] not in needs:
                raise BadValue("it does not run so")
            need = needs[tried[-1]]
            peak, seconds = need if isinstance(need, tuple) else (need, 1.0)
            idle = 0 if expands else plan.idle
            reserved = (peak + idle) * GIB
            trace = SimpleNamespace(peak_allocated=peak * GIB, peak_reserved=reserved, likely_seconds=seconds)
            trace.by_category, trace.is_lower_bound = plan.by_category, tried[-1] in plan.of_lower_bounds
            trace.text_of = MethodType(Trace.text_of, trace)
            trace.peak_text = trace.text_of(trace.peak_allocated)
            trace.with_room_enough = MethodType(Trace.with_room_enough, trace)
            plan.steps.append(steps)
            lines = tuple(f"line 7: {edit}" for edit in edits if edit != ACCUMULATE)
            return Answer(trace, (), lines, plan.fault, plan.lacks_no_grad, varies=plan.varies)

        lines = []
        with suppress(KeyboardInterrupt):
            for line in Plan(predicted, Command(path), options, 15 * GIB, plan.said.append, plan.evaluates).lines():
                lines.append(line)
        return lines

    plan.tried, plan.said, plan.idle, plan.fault, plan.evaluates = tried, [], 0, "", False
    plan.lacks_no_grad, plan.interrupted_at, plan.varies, plan.steps = False, None, False, []
    plan.by_category, plan.of_lower_bounds = {Category.OPTIMIZER_STATE: 1}, ()
    return plan


def test_what_fits_alone_is_told_the_fastest_first(plan):
    lines = plan({"": 40, "autocast": (14, 0.4), "checkpointing": (12, 1.3), "offload": (30, 2.0), "fused": 40})
    assert lines == [
        "With room enough it would take 40.0 GiB.",
        "It fits with one of these, the fastest first (by estimates, for the same number of samples):",
        "- autocast: 14.0 GiB, 14.0 GiB reserved, about 0.4 times as long",
        "    line 7: autocast",
        "- checkpointing: 12.0 GiB, 12.0 GiB reserved, about 1.3 times as long",
        "    line 7: checkpointing",
        "What helps, too, and does not suffice alone: offload (30.0 GiB reserved).",
        "Tried, and of no use here: compile, fused and adam8bit.",
    ]
    assert sorted(plan.tried) == sorted(["", *EDITS])


def test_what_may_need_more_comes_behind_and_says_so(plan):
    plan.of_lower_bounds = ("", "autocast")
    lines = plan({"": 40, "autocast": (14, 0.4), "checkpointing": (12, 1.3)})
    assert lines[0] == "With room enough it would take at least 40.0 GiB."
    assert lines[1].startswith("It probably fits with one of these, ")
    assert [line for line in lines if line.startswith("-")] == [
        "- checkpointing: 12.0 GiB, 12.0 GiB reserved, about 1.3 times as long",
        "- autocast: at least 14.0 GiB, 14.0 GiB reserved, about 0.4 times as long",
    ]


def test_where_only_the_blocks_have_no_room_segments_that_expand_are_tried(plan):
    plan.idle = 4
    lines = plan({"": 12, EXPANDABLE: 12, "checkpointing": (8, 1.3), "fused": 12})
    assert lines[2:6] == [
        "- expandable segments: 12.0 GiB, 12.0 GiB reserved, about 1 times as long",
        "    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before it starts",
        "- checkpointing: 8.00 GiB, 12.0 GiB reserved, about 1.3 times as long",
        "    line 7: checkpointing",
    ]


def test_a_batch_is_halved_until_it_fits_and_its_gradients_are_accumulated(plan):
    needs = {"": 40, **{f"--batch-size={n} {ACCUMULATE}": (n + 2, n / 16) for n in (16, 8, 4)}}
    lines = plan(needs, BATCH)
    assert lines[2:4] == [
        "- --batch-size 32 -> 8: 10.0 GiB, 10.0 GiB reserved, about 1 times as long",
        "    loss / 4, and optimizer.step() and zero_grad() each 4 batches, for the same result",
    ]
    # Of the four batches two were predicted.
    assert f"--batch-size=4 {ACCUMULATE}" not in plan.tried


@pytest.mark.parametrize(("accumulated", "words"), [(1, f" {ACCUMULATE}"), (2, "")])
def test_an_option_that_accumulates_is_named(plan, accumulated, words):
    option = Option("--grad-accum", accumulated)
    lines = plan({"": 40, f"--batch-size=16{words}": 10}, BATCH, option)
    assert lines[3] == f"    --grad-accum {accumulated * 2}, for the same result"


def test_what_changes_the_training_comes_last(plan):
    lines = plan({"": 40, "--block=512": (13, 0.4), "checkpointing": (12, 1.3)}, LENGTH)
    assert [line for line in lines if line.startswith("-")] == [
        "- checkpointing: 12.0 GiB, 12.0 GiB reserved, about 1.3 times as long",
        "- --block 1024 -> 512: 13.0 GiB, 13.0 GiB reserved, about 0.4 times as long; this changes what is trained",
    ]


def test_as_few_as_fit_together(plan):
    needs = {"": 40, "autocast": 30, "checkpointing": 25, "offload": 20, "--block=512": 22}
    needs |= {"offload checkpointing": 18, "offload checkpointing autocast": 14, "checkpointing autocast": 15}
    lines = plan(needs, LENGTH)
    assert lines[2:5] == [
        "- checkpointing and autocast: 15.0 GiB, 15.0 GiB reserved, about 1 times as long",
        "    line 7: checkpointing",
        "    line 7: autocast",
    ]


def test_where_nothing_fits_it_says_what_saves_the_most(plan):
    needs = {"": 40, "autocast": 30, "checkpointing": 25, "offload": 20, "fused": 39, "--block=512": 22}
    lines = plan(needs, LENGTH)
    assert lines[1] == "Nothing that was tried makes it fit. What saves the most:"
    assert [line.split(":")[0] for line in lines if line.startswith("-")] == [
        "- offload",
        "- --block 1024 -> 512",
        "- checkpointing",
    ]
    assert lines[-4:] == [
        "What helps, too, and does not suffice alone: autocast (30.0 GiB reserved) and fused (39.0 GiB reserved).",
        WHAT_IS_LEFT,
        "Not tried: a smaller batch. No option, constant or DataLoader of the script names one: give it an option, and "
        "predict again.",
        "Tried, and of no use here: compile and adam8bit.",
    ]


def test_a_change_whose_package_is_missing_is_not_called_useless(plan, monkeypatch):
    monkeypatch.setattr("memlab.script.plan.NEEDS", {"adam8bit": "a_package_that_nobody_has"})
    lines = plan({"": 40, "checkpointing": 12, "fused": 40})
    assert lines[-2:] == [
        "Not tried: adam8bit, which needs a_package_that_nobody_has: install it, and predict again.",
        "Tried, and of no use here: autocast, compile, fused and offload.",
    ]
    assert "adam8bit" not in plan.tried


def test_beside_a_smaller_batch_changes_are_tried_together_since_they_may_be_faster(plan):
    needs = {"": 40, "autocast": (20, 0.5), "checkpointing": 25, "offload": 20, "autocast checkpointing": (14, 0.7)}
    needs |= {f"--batch-size={n} {ACCUMULATE}": (n + 9, n / 16) for n in (16, 8, 4)}
    lines = plan(needs, BATCH)
    assert [line for line in lines if line.startswith("-")] == [
        "- autocast and checkpointing: 14.0 GiB, 14.0 GiB reserved, about 0.7 times as long",
        "- --batch-size 32 -> 4: 13.0 GiB, 13.0 GiB reserved, about 1 times as long",
    ]
    assert lines[-2] == (
        "What helps, too, and does not suffice alone: autocast (20.0 GiB reserved), checkpointing (25.0 GiB reserved) "
        "and offload (20.0 GiB reserved)."
    )


def test_with_other_changes_a_larger_batch_fits_than_alone_and_offloading_comes_last(plan):
    needs = {"": 40, "checkpointing": 30, "offload": 20, f"--batch-size=1 {ACCUMULATE}": 16}
    needs |= {f"--batch-size={n} {ACCUMULATE}": n + 15 for n in (16, 8, 4, 2)}
    needs |= {f"--batch-size={n} checkpointing {ACCUMULATE}": n + 7 for n in (16, 8, 4)}
    lines = plan(needs, BATCH)
    assert [line.split(":")[0] for line in lines if line.startswith("-")] == [
        "- checkpointing and --batch-size 32 -> 8"
    ]
    assert not [tried for tried in plan.tried if "offload" in tried and tried != "offload"]


def test_of_a_script_whose_steps_leave_something_behind_only_that_is_told(plan):
    plan.fault = "Each step leaves 1 GiB behind."
    assert plan({"": 40, "autocast": 10}) == [plan.fault, MEND_FIRST]
    assert plan.tried == [""]


def test_what_an_evaluation_without_gradients_takes_is_predicted(plan):
    plan.fault, plan.lacks_no_grad = "torch.no_grad() is missing.", True
    assert plan({"": 40, NO_GRAD: 10}) == [plan.fault, "With it: 10.0 GiB, 10.0 GiB reserved."]
    assert plan.tried == ["", NO_GRAD]


def test_where_that_does_not_suffice_all_else_is_tried_with_it(plan):
    plan.fault, plan.lacks_no_grad = "torch.no_grad() is missing.", True
    lines = plan({"": 40, NO_GRAD: 20, f"{NO_GRAD} checkpointing": 9})
    assert lines[2] == "That does not fit yet, so what follows is tried with it."
    assert lines[4].startswith("- checkpointing: 9.00 GiB")


def test_where_batches_differ_more_of_them_are_tried_and_it_is_said(plan):
    plan.varies = True
    lines = plan({"": 40, "checkpointing": 12})
    assert "That is with the batches of the first 3 steps, which differ: the largest decides." in lines
    assert set(plan.steps) == {3}
    plan.varies, plan.steps = False, []
    assert not [line for line in plan({"": 40, "checkpointing": 12}) if "which differ" in line]
    assert sorted(plan.steps) == [2, 3]


def test_no_8_bit_optimizer_is_missed_where_the_optimizer_has_no_state(plan, monkeypatch):
    monkeypatch.setattr("memlab.script.plan.NEEDS", {"adam8bit": "a_package_that_nobody_has"})
    plan.by_category = {Category.PARAMETER: 1}
    assert not [line for line in plan({"": 40, "checkpointing": 12}) if "adam8bit" in line]


def test_where_an_evaluation_runs_out_its_own_batch_is_tried_and_nothing_that_only_a_backward_needs(plan):
    plan.evaluates = True
    lines = plan({"": 40, "--eval-batch-size=16": 12, "autocast": 39.9}, BATCH, Option("--eval-batch-size", 32))
    assert lines[2].startswith("- --eval-batch-size 32 -> 16: 12.0 GiB")
    assert sorted(plan.tried) == ["", "--batch-size=16 accumulate", "--eval-batch-size=16", "autocast"]


def test_of_changes_that_fit_together_one_that_makes_it_faster_is_kept(plan):
    needs = {"": 40, "autocast": (35, 0.5), "checkpointing": 20, "checkpointing autocast": (18, 0.7)}
    needs |= {f"--batch-size=16 checkpointing autocast {ACCUMULATE}": (10, 0.7)}
    needs |= {f"--batch-size=16 checkpointing {ACCUMULATE}": (12, 1.4)}
    needs |= {f"--batch-size={n} {ACCUMULATE}": n + 15 for n in (16, 8, 4, 2, 1)}
    (line,) = (line for line in plan(needs, BATCH) if line.startswith("-"))
    assert line.startswith("- checkpointing, autocast and --batch-size 32 -> 16: 10.0 GiB")


def test_a_batch_in_the_source_is_told_as_its_line(plan):
    batch = Option("batch_size", 32, place="train.py:3", written="DataLoader(..., batch_size={})")
    steps = Option("gradient_accumulation_steps", 2, place="train.py:9", written="gradient_accumulation_steps = {}")
    lines = plan({"": 40, "batch_size:16": 10}, batch, steps)
    assert lines[2:5] == [
        "- batch_size 32 -> 16: 10.0 GiB, 10.0 GiB reserved, about 2 times as long",
        "    train.py:3: DataLoader(..., batch_size=16)",
        "    train.py:9: gradient_accumulation_steps = 4, for the same result",
    ]


def test_each_change_is_told_when_it_was_tried(plan):
    plan({"": 40, "checkpointing": 12, "fused": 41})
    counts, told = zip(*(s.split(" tried: ") for s in plan.said if " tried: " in s), strict=True)
    assert counts == tuple(f"{n} of 6" for n in range(1, 7))
    assert "checkpointing, 12.0 GiB reserved, fits" in told
    assert "fused, 41.0 GiB reserved, does not fit" in told
    assert "with compile it does not run (it does not run so)" in told


def test_ctrl_c_keeps_what_was_found(plan, monkeypatch):
    monkeypatch.setattr("memlab.script.plan.os.cpu_count", lambda: 1)
    plan.interrupted_at = "compile"
    lines = plan({"": 40, "autocast": 30, "checkpointing": 12})
    assert lines[2] == "- checkpointing: 12.0 GiB, 12.0 GiB reserved, about 1 times as long"
    assert lines[-1] == "Interrupted, so not tried: compile, fused, adam8bit, offload and several changes together."


def test_interrupted_at_the_first_change_it_says_nothing_of_what_fits(plan, monkeypatch):
    monkeypatch.setattr("memlab.script.plan.os.cpu_count", lambda: 1)
    plan.interrupted_at = "autocast"
    lines = plan({"": 40, "checkpointing": 12})
    assert lines[1:] == ["Interrupted before a change was tried to its end."]


def test_changes_together_that_are_faster_than_offloading_are_tried_beside_it(plan):
    needs = {"": 40, "autocast": (20, 0.5), "checkpointing": (25, 1.3), "offload": (10, 3.0)}
    needs |= {"autocast checkpointing": (14, 0.7)}
    lines = plan(needs)
    assert [line.split(":")[0] for line in lines if line.startswith("-")] == [
        "- autocast and checkpointing",
        "- offload",
    ]


def test_autocast_is_not_tried_where_the_script_has_it(plan):
    plan({"": 40, "checkpointing": 12}, Option("--amp", True, is_switch=True))
    assert "checkpointing" in plan.tried
    assert "autocast" not in plan.tried
