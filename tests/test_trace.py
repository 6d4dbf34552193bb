"""A trace answers from its events, and survives JSON."""

import json
import math
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memlab.trace
from memlab.errors import NotATrace
from memlab.trace import Category, Event, OutOfMemory, Phase, Step, Storage, Trace
from memlab.units import GIB
from tests.golden.traces import MEASURED, NAMED, PLACED

TEXTS = st.text(max_size=12)
COUNTS = st.integers(0, 2**50)
EVENTS = st.builds(
    Event,
    st.integers(-(2**50), 2**50),
    st.sampled_from(Category),
    st.sampled_from(Phase),
    TEXTS,
    TEXTS,
    st.integers(-1, 9),
    st.integers(0, 999),
    st.floats(0, 1e6),
)
SHAPES = st.lists(st.integers(0, 2**40), max_size=4).map(tuple)
STORAGES = st.builds(Storage, TEXTS, SHAPES, TEXTS, st.sampled_from(Category), COUNTS)
LOSSES = st.none() | st.floats(allow_nan=False)
STEPS = st.builds(Step, LOSSES, st.floats(0, 1e6), st.none() | COUNTS, st.booleans())
FAILURES = st.builds(OutOfMemory, st.none() | COUNTS, COUNTS, st.none() | COUNTS, st.sampled_from(Phase), TEXTS, TEXTS)
TRACES = st.builds(
    Trace,
    source=st.sampled_from(["measured", "predicted"]),
    device=TEXTS,
    torch_version=TEXTS,
    settings=st.dictionaries(TEXTS, st.none() | st.booleans() | st.integers() | TEXTS, max_size=3),
    steps=st.lists(STEPS, min_size=1, max_size=4).map(tuple),
    peak_reserved=st.none() | COUNTS,
    xray_step=st.integers(0, 3),
    start=st.dictionaries(st.sampled_from(Category), COUNTS, max_size=4),
    events=st.lists(EVENTS, max_size=8).map(tuple),
    flops=COUNTS,
    oom=st.none() | FAILURES,
    notes=st.lists(TEXTS, max_size=2).map(tuple),
    least_seconds=st.none() | st.floats(0, 1e6),
    likely_seconds=st.none() | st.floats(0, 1e6),
    storages=st.lists(STORAGES, max_size=4).map(tuple),
    waits=st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=3).map(tuple),
)


def make(events=(), start=None, oom=None, steps=()):
    """A trace of ``(bytes, category, phase, module)``."""
    return Trace(
        source="measured",
        device="a device",
        torch_version="2.13.0",
        settings={"batch_size": 8},
        steps=tuple(steps),
        peak_reserved=None,
        xray_step=0,
        start=start or {},
        events=tuple(Event(*event, "aten.mm") for event in events),
        flops=0,
        oom=oom,
    )


SMALL = make(
    start={Category.PARAMETER: 100},
    events=[
        (300, Category.ACTIVATION, Phase.FORWARD, "blocks.0"),
        (200, Category.TEMPORARY, Phase.BACKWARD, "blocks.3.mlp"),
        (-200, Category.TEMPORARY, Phase.BACKWARD, "blocks.3.mlp"),
        (-300, Category.ACTIVATION, Phase.BACKWARD, ""),
    ],
)


@given(TRACES)
def test_json_is_lossless(trace):
    assert Trace.from_json(trace.to_json()) == trace


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_diverged_survives_strict_json(loss):
    trace = make(steps=[Step(loss, 0.1, None, False)])
    text = trace.to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert repr(Trace.from_json(text).losses) == repr((loss,))


@given(TRACES)
def test_categories_sum_to_the_peak(trace):
    assert sum(trace.by_category.values()) == trace.peak_allocated == max(trace.allocated)


def test_the_peak_is_found_and_put_in_words():
    assert SMALL.allocated == (100, 400, 600, 400, 100)
    assert (SMALL.peak_allocated, SMALL.peak_phase, SMALL.peak_module) == (600, Phase.BACKWARD, "blocks.3.mlp")
    assert SMALL.by_category == {Category.PARAMETER: 100, Category.ACTIVATION: 300, Category.TEMPORARY: 200}
    assert SMALL.sentence == "peak 600 B in backward at blocks.3.mlp: 50% activations"


def test_what_is_reserved_is_known_at_the_moments_at_which_what_is_allocated_is():
    trace = replace(SMALL, reserved=((0, 100), (2, 700), (4, 300)))
    assert trace.reserved_at == (100, 100, 700, 700, 300)
    assert len(trace.reserved_at) == len(trace.allocated)
    assert SMALL.reserved_at == ()


@pytest.mark.parametrize(("peak", "reserved", "much"), [(4, 5, True), (10, 11.4, False), (0.5, 1, False)])
def test_much_is_idle_from_a_gib_and_a_part_of_the_peak_on(peak, reserved, much):
    trace = make([(int(peak * GIB), Category.INPUT, Phase.FORWARD, "m")])
    assert replace(trace, peak_reserved=int(reserved * GIB)).holds_much_idle is much
    assert not trace.holds_much_idle  # on a CPU


def test_phases_are_stretches_of_events():
    assert SMALL.phases == [(Phase.FORWARD, 0, 1), (Phase.BACKWARD, 1, 4)]
    assert make().phases == []


def test_as_text_a_trace_is_its_sentence_and_no_clock():
    assert repr(SMALL) == f"<Trace: {SMALL.sentence}, measured on a device>"


def test_out_of_memory_is_put_in_words():
    oom = OutOfMemory(2**20, 3 * 2**20 + 512, 2**22, Phase.FORWARD, "blocks.1", "aten.mm")
    assert make(start={Category.PARAMETER: 10}, oom=oom).sentence == (
        "out of memory in forward at blocks.1: asked for 1.00 MiB with 3.00 MiB of 4.00 MiB in use, 100% parameters"
    )


def test_a_trace_without_events_has_a_peak_too():
    place = "outside of forward, backward and optimizer"
    assert make(start={Category.BUFFER: 7}).sentence == f"peak 7 B {place}: 100% buffers"
    assert make().sentence == f"peak 0 B {place}: nothing allocated"


def test_seconds_per_step_leaves_out_the_first_and_the_xrayed():
    steps = [Step(1.0, seconds, None, xrayed) for seconds, xrayed in ((9, False), (5, True), (2, False), (3, False))]
    assert make(steps=steps).seconds_per_step == 2.5
    assert make(steps=steps[:2]).seconds_per_step is None


@pytest.mark.parametrize(
    "text", ["", "lots", "[]", "3", "{}", '{"memlab_trace": 0}', '{"memlab_trace": 1}', SMALL.to_json()[:-40]]
)
def test_other_text_is_refused_in_one_sentence(text):
    with pytest.raises(NotATrace, match=r"trace.*: (give|record)") as refusal:
        Trace.from_json(text)
    assert "\n" not in str(refusal.value)


def test_broken_columns_are_refused():
    fields = json.loads(SMALL.to_json())
    fields["events"]["phase"].pop()
    with pytest.raises(NotATrace):
        Trace.from_json(json.dumps(fields))


def test_a_trace_from_before_there_were_notes_is_read():
    fields = json.loads(SMALL.to_json())
    del fields["notes"]
    assert Trace.from_json(json.dumps(fields)) == SMALL


SCHEMA = json.loads(Path(memlab.trace.__file__).with_name("trace.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


@given(TRACES)
def test_the_schema_describes_every_trace(trace):
    VALIDATOR.validate(json.loads(trace.to_json()))


def test_the_schema_describes_nothing_else():
    written = json.loads(make([(8, Category.INPUT, Phase.FORWARD, "m")]).to_json())
    assert written.keys() == SCHEMA["properties"].keys()
    assert written["summary"] == {
        "peak_allocated": 8,
        "by_category": {"input": 8},
        "fits": True,
        "sentence": "peak 8 B in forward at m: 100% inputs",
    }
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(written | {"more": 1})


def test_the_line_at_work_is_that_of_the_peak_or_of_what_was_allocated_last_before_memory_ran_out():
    assert NAMED.peak_line == 6
    assert MEASURED.peak_line == 0
    freed = NAMED.events[1]._replace(bytes=-1, line=9)
    failed = replace(NAMED, events=(*NAMED.events[:2], freed), oom=PLACED)
    assert failed.peak_line == 6
