"""The script for keyboards and screen readers; ``tests/browser`` sees what it does."""

from memlab.lab import Guess, Lab
from memlab.lab.accessibility import access
from memlab.lab.guess_box import GuessBox
from tests.lab.loops import train


def test_the_script_stays_in_its_attribute():
    script, _, rest = access("mine").removeprefix('<style onload="').partition('">')
    assert "this.closest('.mine')" in script
    assert '"' not in script
    assert rest == ".mine {}</style>"


def test_panels_and_guesses_have_it():
    panel = Lab(train, batch_size=(1, 64))._panel
    guess = GuessBox(Guess("How much?").question, None, answer=str)
    for box, name in ((panel, "memlab"), (guess, "memlab-guess")):
        assert name in box._dom_classes
        assert access(name) in box.children[0].value
