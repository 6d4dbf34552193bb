"""The lines of a training loop, which stand beside its picture."""

import inspect
import textwrap
from typing import Any

from memlab.protocol import Train


def source(train: Train) -> dict[str, Any] | None:
    """The lines of ``train``, and the number of the first in its file or cell; None where they cannot be read."""
    try:
        lines, first = inspect.getsourcelines(inspect.unwrap(train))
    except (OSError, TypeError):
        return None
    return {"lines": textwrap.dedent("".join(lines)).splitlines(), "first": first}
