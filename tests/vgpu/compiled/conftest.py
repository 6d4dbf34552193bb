"""What pytest keeps of the compiler's logs would keep its tensors alive, and change what is predicted."""

import logging

import pytest


@pytest.fixture(autouse=True)
def _without_the_compilers_trace():
    trace = logging.getLogger("torch.__trace")
    before, trace.disabled = trace.disabled, True
    yield
    trace.disabled = before
