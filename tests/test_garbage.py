import gc

import pytest

from memlab import garbage
from memlab.garbage import freeze_for_good, frozen


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    monkeypatch.setattr(garbage, "_for_good", False)
    gc.unfreeze()
    yield
    gc.freeze()  # as tests/conftest.py has left it


def test_what_was_there_before_is_frozen_for_a_while():
    with frozen():
        assert gc.get_freeze_count() > 0
        with frozen():  # a run within a run leaves the outer one's as it is
            pass
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_what_somebody_else_has_frozen_stays_so():
    gc.freeze()
    with frozen():
        pass
    assert gc.get_freeze_count() > 0


def test_what_is_frozen_for_good_stays_so_and_is_not_counted(monkeypatch):
    freeze_for_good()
    with monkeypatch.context() as patches:
        patches.delattr(gc, "get_freeze_count")
        with frozen():
            pass
    assert gc.get_freeze_count() > 0
