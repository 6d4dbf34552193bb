"""The moments of a call that is written down, so that it can be played again (``repeats.py``)."""

from typing import Any

# The kind of the moment, and to which storage or block it happens, or of which operator.
Moment = tuple[Any, ...]
BEGIN, WORK, RESULTS, EXPLAIN = "an operator begins", "is counted", "gives its results", "is over"
BORN, FREED, TAKE, GIVE, LEAVE = "born", "freed", "a block is taken", "given back", "backward has done with an argument"
