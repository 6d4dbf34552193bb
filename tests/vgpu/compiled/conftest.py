"""What pytest keeps of the compiler's logs would keep its tensors alive, and change what is predicted."""

import logging

import pytest


@pytest.fixture(autouse=True)
def _without_logs():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
