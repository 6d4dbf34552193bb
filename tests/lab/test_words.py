"""The panel in words."""

from dataclasses import replace

import pytest

from memlab.lab.words import origin, prediction_summary, summary
from memlab.oom import IS_EXPANDABLE, TRY_EXPANDABLE, OutOfMemory, cuda_message
from memlab.trace import Category, Event, Phase, Storage
from memlab.tracking.tracker import COMPILED
from memlab.units import GIB, MIB
from tests.golden.traces import EMPTY, MEASURED, NO_MODULE, ON_THE_CARD, PREDICTED


@pytest.mark.parametrize(
    ("peak", "words"),
    [
        (1270, "12.7 times"),
        (122_200, "1222 times"),
        (250, "2.50 times"),
        (199, "99% above"),
        (144, "44% above"),
        (100, "the same as"),
        (50, "50% below"),
        (23, "0.23 times"),
        (1, "0.01 times"),
    ],
)
def test_a_peak_is_compared_with_the_run_before_as_people_say_it(peak, words):
    before, now = (replace(EMPTY, start={Category.PARAMETER: count * MIB}) for count in (100, peak))
    assert f"That is {words} the run before." in summary(now, [before], None)


def test_a_run_that_hardly_takes_anything_is_no_0_times():
    tiny = replace(EMPTY, start={Category.PARAMETER: 1})
    assert "That is less than a hundredth of the run before" in summary(tiny, [MEASURED], None)


def test_beside_a_prediction_stands_what_of_it_a_cpu_can_count():
    with_workspace = replace(PREDICTED, events=(*PREDICTED.events, *NO_MODULE.events))
    assert "Predicted for a T4: 896 MiB, without workspace 236 MiB." in summary(MEASURED, [], with_workspace)
    assert "Predicted for a T4: 236 MiB. " in summary(MEASURED, [], PREDICTED) + " "
    on_a_card = replace(MEASURED, peak_reserved=GIB)
    assert "Predicted for a T4: 896 MiB." in summary(on_a_card, [], with_workspace)


def test_why_a_card_takes_other_bytes_than_the_cpu_is_said():
    update = Event(200 * MIB, Category.TEMPORARY, Phase.OPTIMIZER, "", "aten._foreach_sqrt")
    foreach = replace(PREDICTED, events=(*PREDICTED.events, update))
    said = "A card's optimizer updates all weights at once (foreach), the CPU's one after the other."
    assert said in summary(MEASURED, [], foreach)
    assert said not in summary(replace(MEASURED, peak_reserved=GIB), [], foreach)  # it was measured on a card
    assert said not in summary(MEASURED, [], PREDICTED)  # they are alike
    half = replace(foreach, storages=(*foreach.storages, Storage("", (2,), "bfloat16", Category.ACTIVATION, 0)))
    assert f"{said[:-1]}; on the card it computes in bfloat16." in summary(MEASURED, [], half)


def test_where_no_reason_is_known_the_category_of_the_difference_is_said_or_the_step_that_is_missing():
    more = replace(PREDICTED, start=PREDICTED.start | {Category.COMMUNICATION: 100 * MIB}, xray_step=0)
    assert "Most of the difference is communication." in summary(MEASURED, [], more)
    later = replace(more, xray_step=len(MEASURED.steps))
    said = f"The prediction is of step {later.xray_step + 1}, which the run has not made."
    assert said in summary(MEASURED, [], later)


def test_of_the_message_of_a_card_a_panel_says_what_did_not_fit_and_leaves_out_the_rest():
    sizes = {"capacity": 15 * GIB, "context": MIB, "reserved": 13 * GIB, "allocated": 13 * GIB, "allowed": None}
    told = cuda_message(2 * GIB, **sizes, advice=TRY_EXPANDABLE)
    said = prediction_summary(replace(PREDICTED, oom=replace(ON_THE_CARD, message=told)))
    assert said.endswith(
        "GPU 0 has a total capacity of 15.00 GiB of which 2.00 GiB is free. "
        "CUDA's context takes 123 MiB, which leaves PyTorch 14.4 GiB."
    )


@pytest.mark.parametrize(
    ("advice", "remedy"),
    [(TRY_EXPANDABLE, ": expandable segments may help (notebook 15)."), (IS_EXPANDABLE, ".")],
)
def test_where_only_pieces_are_free_a_panel_says_what_joins_them_unless_that_is_on(advice, remedy):
    sizes = {"capacity": 15 * GIB, "context": MIB, "reserved": 14 * GIB, "allocated": 12 * GIB, "allowed": None}
    oom = OutOfMemory(GIB, 12 * GIB, 14 * GIB, Phase.FORWARD, "head", "mm", cuda_message(GIB, **sizes, advice=advice))
    said = prediction_summary(replace(EMPTY, oom=oom))
    assert said.endswith(f"Enough bytes are free, but not in one piece{remedy}")
    said = prediction_summary(replace(EMPTY, oom=oom), needed=PREDICTED)
    assert said.endswith(f"{remedy} With room enough it would take 236 MiB.")
    said = prediction_summary(replace(EMPTY, oom=oom), needed=replace(PREDICTED, peak_reserved=15 * GIB))
    assert said.endswith("With room enough it would take 236 MiB, and 15.0 GiB reserved.")


def test_a_step_that_was_measured_uncompiled_says_so_where_it_says_its_origin():
    assert origin(MEASURED) == "measured on CPU, 2 threads"
    assert origin(replace(MEASURED, notes=(COMPILED,))) == "measured, not compiled, on CPU, 2 threads"


@pytest.mark.parametrize(("idle", "is_told"), [(0.1, False), (0.3, True)])
def test_much_reserved_memory_that_tensors_never_fill_is_explained(idle, is_told):
    event = Event(8 * GIB, Category.ACTIVATION, Phase.FORWARD, "", "aten.mm")
    trace = replace(PREDICTED, start={}, events=(event,), peak_reserved=int((1 + idle) * 8 * GIB))
    said = prediction_summary(trace)
    assert ("2.40 GiB more than tensors take at once: free blocks of other sizes or streams." in said) is is_told
    assert "PyTorch would reserve" in said


@pytest.mark.parametrize(
    "name", ["A100-40GB", "H100", "L4", "RTX 4090", "80 GiB sm_90", "11 GiB sm_75", "18 GiB sm_86"]
)
def test_a_name_that_begins_with_a_vowels_sound_gets_an(name):
    on_a_card = replace(MEASURED, source="predicted", device=name)
    assert f"Predicted for an {name}" in prediction_summary(on_a_card)


@pytest.mark.parametrize("name", ["T4", "V100", "B200", "15 GiB sm_75", "24 GiB sm_86"])
def test_others_get_a(name):
    assert f"Predicted for a {name}" in prediction_summary(replace(MEASURED, source="predicted", device=name))
