import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memlab.errors import BadValue
from memlab.units import GIB, KIB, MIB, format_bytes, format_seconds, parse_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("15 GB", 15 * 1000**3),
        ("15GB", 15 * 1000**3),
        ("15GiB", 15 * GIB),
        (" 15 gib ", 15 * GIB),
        (16106127360, 15 * GIB),
        ("16106127360", 15 * GIB),
        ("16_106_127_360 B", 15 * GIB),
        ("1.5 MiB", 3 * MIB // 2),
        (".5 KiB", 512),
        ("2 TB", 2 * 1000**4),
        ("1 TiB", 1024 * GIB),
        (1, 1),
    ],
)
def test_sizes_that_people_write(text, count):
    assert parse_bytes(text) == count
    assert isinstance(parse_bytes(text), int)


@pytest.mark.parametrize(
    "text",
    ["lots", "", "GiB", "15 GX", "1 2", "1e9", "-1 GiB", -1, 0, "0", "0.2 B", True, 1.5, math.nan, "nan", None],
)
def test_what_is_not_a_size_is_refused_by_name(text):
    with pytest.raises(BadValue) as caught:
        parse_bytes(text)
    assert str(caught.value).startswith(repr(text))
    assert "15 GiB" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("20", "'20' has no unit: write '20 GiB', or '20 B' for bytes."),
        (" 1.5 ", "' 1.5 ' has no unit: write '1.5 GiB', or '1.5 B' for bytes."),
        ("1,5 GiB", "'1,5 GiB' has a comma: write '1.5 GiB'."),
        ("1,5", "'1,5' has a comma: write '1.5 GiB'."),
        ("1,500 MiB", "'1,500 MiB' has a comma: write '1.500 MiB' or '1500 MiB'."),
    ],
)
def test_what_can_be_meant_in_two_ways_is_asked_about(text, question):
    with pytest.raises(BadValue) as caught:
        parse_bytes(text)
    assert str(caught.value) == question


def test_a_number_of_bytes_needs_no_unit():
    assert parse_bytes(20) == 20
    assert parse_bytes(str(MIB)) == MIB


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KiB"),
        (KIB, "1.00 KiB"),
        (412 * MIB, "412 MiB"),
        (1023 * MIB, "1.00 GiB"),
        (3 * GIB // 2, "1.50 GiB"),
        (15 * GIB, "15.0 GiB"),
        (-12, "-12 B"),
        (-3 * MIB, "-3.00 MiB"),
    ],
)
def test_text_has_three_digits(count, text):
    assert format_bytes(count) == text


@given(st.integers(min_value=1, max_value=999 * GIB))
@example(1111)  # 1.08 KiB is 1105.9 bytes
def test_text_reads_back_within_its_three_digits(count):
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.0052, abs=0.5)


@given(st.integers(min_value=1, max_value=2**63))
def test_a_whole_number_reads_back_exactly(count):
    assert parse_bytes(count) == count


@given(st.integers(min_value=-(2**63), max_value=2**63))
def test_a_minus_sign_is_all_that_differs(count):
    assert format_bytes(-count).removeprefix("-") == format_bytes(count).removeprefix("-")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 us"), (5.25e-6, "5.2 us"), (0.000996, "1.0 ms"), (0.0412, "41 ms"), (0.996, "1.0 s"), (341, "340 s")],
)
def test_seconds_are_said_with_two_digits(seconds, text):
    assert format_seconds(seconds) == text


@pytest.mark.parametrize("text", ["9" * 400, "9" * 309 + " GiB"])
def test_a_size_that_no_number_holds_is_refused(text):
    with pytest.raises(BadValue, match="is not a number of bytes"):
        parse_bytes(text)
