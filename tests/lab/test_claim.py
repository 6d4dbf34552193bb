import re

import pytest

from memlab import Claim
from memlab.errors import BadValue
from memlab.lab.claim import VERDICTS, VOTE, verdict


@pytest.mark.parametrize(
    ("cases", "expected"),
    [([True, True], "true"), ([True, False], "true when"), ([False], "false"), ((x > 1 for x in (1, 2)), "true when")],
)
def test_the_verdict_follows_from_the_cases(cases, expected):
    assert verdict(cases) == expected


def test_no_case_gives_no_verdict():
    with pytest.raises(BadValue, match="at least one measurement"):
        verdict([])


JUDGED = {
    "true": "**True.** Drops fell.",
    "true when": "**True when** drops fell.",
    "not proven": "**Not proven.** Drops fell.",
    "false": "**False.** Drops fell.",
}


def opened(shown):
    """Return the text below the summary, once it is opened."""
    before, summary, after = re.split(r"<summary>(.*?)</summary>", shown)
    assert before == "“It rains”\n\n<details>"
    assert summary.endswith("Decide, then open.")
    inside, end, rest = after.partition("\n\n</details>")
    assert (inside[:2], bool(end), rest) == ("\n\n", True, "")  # Markdown again, after an empty line
    return inside.strip()


def test_each_verdict_has_its_words():
    assert set(JUDGED) == set(VERDICTS)


@pytest.mark.parametrize(("given", "judged"), JUDGED.items())
def test_a_claim_reads_as_a_sentence_and_shows_its_verdict_when_it_is_opened(given, judged):
    claim = Claim("It rains", given, "drops fell.")
    assert str(claim) == f"“It rains” {judged.replace('*', '')}"
    assert opened(claim._repr_markdown_()) == judged


def test_the_vote_is_among_all_verdicts():
    words = VOTE.lower()
    assert all(verdict in words for verdict in VERDICTS)


@pytest.mark.parametrize(
    ("source", "plain", "link"),
    [
        ("https://a.b/c", "source, https://a.b/c", "[source](https://a.b/c)"),
        (("a paper", "https://a.b/c"), "a paper, https://a.b/c", "[a paper](https://a.b/c)"),
    ],
)
def test_a_claim_says_where_it_is_made(source, plain, link):
    claim = Claim("It rains", "false", "drops fell.", source=source)
    assert str(claim) == f"“It rains” False. Drops fell. ({plain})"
    assert opened(claim._repr_markdown_()) == f"**False.** Drops fell. ({link})"


def test_another_verdict_is_refused():
    words = "'maybe' is not a verdict: give one of 'true', 'true when', 'not proven', 'false'"
    with pytest.raises(BadValue, match=words):
        Claim("It rains", "maybe", "drops fell.")
