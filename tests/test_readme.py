"""The README's examples are run as they stand."""

import re
from pathlib import Path

from memlab.vgpu import CARDS

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_examples_run_and_checkpointing_saves_memory(capsys):
    examples = re.findall(r"(?ms)^```python\n(.*?)^```", README)
    names = {}
    exec("\n".join(examples), names)
    assert names["checkpointed"].peak_allocated < names["plain"].peak_allocated
    words = capsys.readouterr().out
    assert "peak " in words
    assert "CUDA out of memory. Tried to allocate " in words


def test_every_card_is_named():
    for card in CARDS:
        assert card in README
