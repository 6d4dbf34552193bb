"""The README's example is run as it stands."""

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_example_runs_and_checkpointing_saves_memory():
    (example,) = re.findall(r"(?ms)^```python\n(.*?)^```", README)
    names = {}
    exec(example, names)
    assert names["checkpointed"].peak_allocated < names["plain"].peak_allocated
