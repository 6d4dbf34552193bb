"""Waiting, in a test, for what another thread or process does."""

import time

SOON = 60  # seconds, on a busy machine


def wait_for(condition):
    """Until it is true; an error if that takes too long."""
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
