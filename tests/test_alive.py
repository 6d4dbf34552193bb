"""The tensors that are alive at a moment of a step, and the largest of them in words."""

from dataclasses import replace

from memlab.alive import alive, largest_kinds
from memlab.categories import Category, Phase
from memlab.oom import OutOfMemory
from memlab.trace import Event, Storage
from memlab.units import KIB, MIB
from tests.golden.traces import NAMED


def test_a_tensor_is_known_by_the_loops_variable_and_what_made_it():
    names = {one.storage.category: one.name for one in alive(NAMED, NAMED.peak_index)}
    assert names[Category.PARAMETER] == "blocks.0.mlp.weight"
    assert names[Category.ACTIVATION] == "logits (blocks.0.mlp mm)"


def test_the_largest_is_told_first_and_no_more_than_is_asked_for():
    first, second = largest_kinds(NAMED, 2)
    assert first == "   1 x 64.0 MiB  blocks.0.mlp.weight, 2 x 2048 x 4096 float32 (optimizer state)"
    assert "logits (blocks.0.mlp mm)" in second


def of_blocks(*sizes):
    """A step whose blocks keep an activation each, of so many bytes."""
    events = [
        Event(size, Category.ACTIVATION, Phase.FORWARD, f"blocks.{block}.mlp", "aten.gelu", storage=block)
        for block, size in enumerate(sizes)
    ]
    storages = [Storage("", (size,), "int8", Category.ACTIVATION, 0) for size in sizes]
    return replace(NAMED, start={}, events=tuple(events), storages=tuple(storages))


def test_tensors_of_alike_modules_and_one_size_are_told_together():
    kinds = [" ".join(kind.split()) for kind in largest_kinds(of_blocks(MIB, MIB, 3 * MIB, MIB, MIB), 5)]
    assert kinds == [
        "4 x 1.00 MiB blocks.*.mlp gelu, 1048576 int8 (activation)",
        "1 x 3.00 MiB blocks.2.mlp gelu, 3145728 int8 (activation)",
    ]


def test_where_memory_ran_out_it_is_what_was_alive_then():
    trace = of_blocks(MIB, KIB)
    freed = trace.events[0]._replace(bytes=-MIB, phase=Phase.BACKWARD)
    trace = replace(trace, events=(trace.events[0], freed, trace.events[1]))
    assert [kind.split()[2] for kind in largest_kinds(trace, 5)] == ["1.00"]
    failed = replace(trace, oom=OutOfMemory(MIB, KIB, MIB, Phase.FORWARD, "blocks.1.mlp", "aten.gelu"))
    assert [kind.split()[2:4] for kind in largest_kinds(failed, 5)] == [["1.00", "KiB"]]


def test_a_trace_without_names_has_nothing_to_tell():
    assert list(largest_kinds(replace(NAMED, storages=(), events=()), 5)) == []
