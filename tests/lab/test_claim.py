import pytest

from memlab import Claim
from memlab.errors import BadValue
from memlab.lab.claim import verdict


@pytest.mark.parametrize(
    ("cases", "expected"),
    [([True, True], "true"), ([True, False], "true when"), ([False], "false"), ((x > 1 for x in (1, 2)), "true when")],
)
def test_the_verdict_follows_from_the_cases(cases, expected):
    assert verdict(cases) == expected


def test_no_case_gives_no_verdict():
    with pytest.raises(BadValue, match="at least one measurement"):
        verdict([])


@pytest.mark.parametrize(
    ("given", "plain", "marked"),
    [
        ("true", "“It rains” True. Drops fell.", "“It rains”\n\n**True.** Drops fell."),
        ("false", "“It rains” False. Drops fell.", "“It rains”\n\n**False.** Drops fell."),
        ("true when", "“It rains” True when drops fell.", "“It rains”\n\n**True when** drops fell."),
    ],
)
def test_a_claim_reads_as_a_sentence(given, plain, marked):
    claim = Claim("It rains", given, "drops fell.")
    assert str(claim) == plain
    assert claim._repr_markdown_() == marked


def test_another_verdict_is_refused():
    with pytest.raises(BadValue, match="'maybe' is not a verdict: give one of 'true', 'true when', 'false'"):
        Claim("It rains", "maybe", "drops fell.")
