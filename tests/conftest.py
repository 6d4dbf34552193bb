"""Settings that hold for every test."""

import gc
import os
import random
import shutil
import sys
import tempfile
from contextlib import ExitStack
from multiprocessing.util import Finalize
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from memlab.garbage import freeze_for_good
from memlab.kernels.shared import shared_processes

# The smallest sizes, for the tests and for the kernels that run the notebooks.
os.environ.setdefault("MEMLAB_SIZE", "ci")

# One thread: with one for every core, another busy process (a browser, say) makes small steps tens of times
# slower, because OpenMP's threads spin while they wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config):
    """Temporary files of the tests, and of the kernels that they kill, go with them; so do their panels' runs."""
    if hasattr(config, "workerinput"):
        return  # it has the settings of the process that started it
    folder = tempfile.mkdtemp(prefix="memlab-tests-")
    # After multiprocessing's own, which removes a folder in it.
    Finalize(None, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=-200)
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # where pytest keeps the last three tmp_path
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ.setdefault("MEMLAB_LOGBOOK", os.path.join(folder, "logbook.jsonl"))
    if getattr(config.option, "dist", "no") != "no":  # many tests: kernels and ranks begin as under `memlab lab`
        processes = ExitStack()
        processes.enter_context(shared_processes())
        config.add_cleanup(processes.close)


_imported = 0  # modules, when the collector was last kept from what there was

# The same examples on every machine, however slow it is.
hypothesis.settings.register_profile(
    "memlab", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("memlab")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Thousands of tests are some 800,000 objects that stay: Python's collector does not look at them while they are
    made, nor afterwards.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(autouse=True)
def _imports_frozen():
    """Keep the collector from the tests and from what they import, as a kernel does.

    Each run ends with a collection, which takes longer than the run where a test before has imported the compiler.
    """
    global _imported
    if len(sys.modules) > _imported:
        freeze_for_good()
        _imported = len(sys.modules)


# Another seed must be as good: MEMLAB_TEST_SEED=7 pytest tests
SEED = int(os.environ.get("MEMLAB_TEST_SEED", "0"))


@pytest.fixture(autouse=True)
def _seeded():
    """Every test draws the same random numbers, alone or after any other."""
    import torch  # here, so that it reads the settings above

    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)


@pytest.fixture(autouse=True)
def _own_search_path(monkeypatch):
    """Restore ``sys.path`` after a test, so that what loading a script puts there is gone for the next one.

    With ``tests/cluster`` on it, ``import deepspeed`` would find ``tests/cluster/deepspeed``.
    """
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture(autouse=True)
def _without_cudnn(monkeypatch):
    """Predictions are the same on every machine: what ships with memlab is known, and no cuDNN is asked."""
    from memlab.vgpu.cudnn import installed

    monkeypatch.setattr(installed, "library", lambda: None)


GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser):
    parser.addoption("--golden", action="store_true", help="write the texts and pictures in tests/golden/ again")


@pytest.fixture
def golden(request):
    """``golden(name, text)`` holds the text to the one that was kept under that name."""

    def check(name, text):
        file = GOLDEN / name
        if request.config.getoption("--golden"):
            file.write_text(text, encoding="utf-8", newline="\n")
        assert text == file.read_text(encoding="utf-8")

    return check


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A worker gets a file of tests, which may share what was costly to make; checks of notebooks one by one."""
    from xdist.scheduler.loadfile import LoadFileScheduling  # here, because it need not be installed

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return nodeid if nodeid.startswith("tests/notebooks/") else super()._split_scope(nodeid)

    return Scheduling(config, log)
