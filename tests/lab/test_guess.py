import pytest

from memlab import Guess
from memlab.errors import BadValue


def test_a_guess_is_kept_with_its_error():
    guess = Guess("How much does it take?", "150 MiB")
    assert guess.error is None
    assert str(guess) == "How much does it take? Your guess: 150 MiB. Now run the next cell."
    assert guess.reveal(100 * 2**20) is guess
    assert guess.error == pytest.approx(0.5)
    assert str(guess) == "How much does it take? Your guess: 150 MiB. It is 100 MiB: 50% too high."
    assert guess._repr_markdown_().endswith("It is 100 MiB: **50% too high**.")


@pytest.mark.parametrize(("answer", "how"), [(50, "50% too low"), (100, "right"), (110, "10% too high")])
def test_the_judgement_follows_from_the_numbers(answer, how):
    assert str(Guess("?", answer).reveal(100)).endswith(f": {how}.")


def test_a_guess_that_is_no_number_of_bytes_is_refused():
    with pytest.raises(BadValue, match="'much' is not a number of bytes"):
        Guess("How much?", "much")
