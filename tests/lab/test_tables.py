from fractions import Fraction

import pytest

from memlab import measure
from memlab.lab import categories, peaks, say, table
from memlab.lab.tables import Prose, text_of
from tests.lab.loops import train


@pytest.fixture(scope="module")
def runs():
    return {f"batch {size}": measure(train, batch_size=size, device="cpu") for size in (2, 8)}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (412 * 2**20, "412 MiB"),
        (1.0, "1.00"),
        (12.71, "12.7"),
        (333.3, "333"),
        (0.0000012, "1.2e-06"),
        (123456.0, "1.23e+05"),
        (float("nan"), "nan"),
        ("bf16", "bf16"),
        (True, "True"),
        (None, "None"),
        (Fraction(1, 2), "1/2"),
    ],
)
def test_a_value_is_written_as_what_it_is(value, text):
    assert text_of(value) == text


def test_a_sentence_keeps_its_template(runs):
    run = runs["batch 2"]
    sentence = say("**{run}**, {steps:d} steps, {share:.0%} in {name}.", run=run, steps=3, share=0.5, name="x")
    assert isinstance(sentence, Prose)
    assert sentence == f"**{text_of(run)}**, 3 steps, 50% in x."
    assert sentence._repr_markdown_() == sentence


def test_a_table_is_markdown():
    shown = table(["ranks", "kept", "times"], [[4, 1024, 1.0], ["a|b", 2048, ""]])
    assert str(shown).splitlines() == [
        "| ranks | kept | times |",
        "|---|--:|--:|",
        "| 4 | 1.00 KiB | 1.00 |",
        "| a&#124;b | 2.00 KiB |  |",
    ]


def test_a_column_of_text_is_aligned_to_the_left():
    rows = [["00", "what?", 3, "1,024", "2 threads", ""], ["01", "where?", "", "2,048", "none", ""]]
    shown = table(["notebook", "question", "cells", "bytes", "here", "more"], rows)
    assert str(shown).splitlines()[1] == "|---|---|--:|--:|---|--:|"


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="has 2 values: give 3"):
        table(["a", "b", "c"], [["x", 1]])


def test_categories_add_up_to_the_peak(runs):
    shown = categories(runs)
    assert shown.columns == ("at the peak", "batch 2", "batch 8", "times")
    assert shown.rows[-1][:3] == ("**peak**", *(text_of(run) for run in runs.values()))
    assert {row[0] for row in shown.rows[:-1]} >= {"parameters", "activations"}
    alone = categories({"only": runs["batch 2"]})
    assert alone.columns == ("at the peak", "only")


def test_peaks_are_compared_with_the_first(runs):
    shown = peaks(runs, "size", arithmetic_done=lambda run: run.flops / runs["batch 2"].flops)
    assert shown.columns == ("size", "peak", "of the first", "arithmetic done")
    assert shown.rows[0] == ("batch 2", text_of(runs["batch 2"]), "1.00", "1.00")
    assert float(shown.rows[1][2]) > 1


def test_a_run_out_of_memory_has_no_ratio(runs):
    broke = measure(train, batch_size=8, device="cpu", budget=runs["batch 8"].peak_allocated // 2)
    assert peaks({"fits": runs["batch 2"], "not": broke}).rows[1] == ("not", "out of memory", "")
