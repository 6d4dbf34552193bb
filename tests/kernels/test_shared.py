"""Forked kernels are like others: they begin, run, are interrupted, restarted and killed, and leave nothing."""

import importlib
import os
import signal
import stat
import subprocess
import sys
from collections import deque
from contextlib import contextmanager
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager

from memlab import predict
from memlab.cluster import ClusterRun
from memlab.errors import RankFailed
from memlab.forked import ADDRESS
from memlab.kernels import shared
from memlab.kernels.nursery import changed_at
from memlab.kernels.shared import shared_processes
from tests.cluster import faulty
from tests.lab.loops import train
from tests.waiting import SOON, wait_for

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forked on Linux only")


@pytest.fixture(scope="module", autouse=True)
def _nursery():
    with shared_processes():
        yield


@contextmanager
def kernel():
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=SOON)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def run(client, code):
    """Return what the code prints or raises."""
    told = []
    client.execute_interactive(code, timeout=SOON, output_hook=lambda m: told.append(m["content"]))
    return "".join(content.get("text") or content.get("evalue") or "" for content in told)


def test_only_who_started_it_can_ask_for_a_kernel():
    socket = Path(os.environ[ADDRESS])
    assert socket.is_socket()
    folder = socket.parent.stat()
    assert (stat.S_IMODE(folder.st_mode), folder.st_uid) == (0o700, os.getuid())


def is_alive(process):
    return Path(f"/proc/{process}").exists()


def test_a_module_that_has_changed_since_it_was_loaded_is_noticed(tmp_path, monkeypatch):
    file = tmp_path / "of_this_test.py"
    file.write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("of_this_test")
    loaded = changed_at()
    assert changed_at(loaded) == loaded
    os.utime(file, ns=(0, 0))
    now = changed_at(loaded)
    assert [name for name in loaded if now[name] != loaded[name]] == [str(file)]
    file.unlink()
    assert changed_at(loaded) != loaded


LOOP = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.lab.loops import train
"""
PREDICTED = f"""{LOOP}
from memlab import predict
from memlab.cluster import ClusterRun
from memlab.errors import RankFailed
print(predict(train, batch_size=64).peak_allocated)
"""


def test_a_kernel_is_forked_with_all_that_memlab_needs_and_begins_in_its_own_place(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMLAB_SIZE", "cpu")
    with kernel() as (_, client):
        assert run(client, "import sys, gc; print('torch' in sys.modules, gc.get_freeze_count() > 0)") == "True True\n"
        place = "import os; print(os.getcwd(), os.environ['MEMLAB_SIZE'], __name__)"
        assert run(client, place) == f"{tmp_path} cpu __main__\n"
        assert run(client, "import subprocess; print(subprocess.run('exit 3', shell=True).returncode)") == "3\n"
        assert "inline" in run(client, "import matplotlib; print(matplotlib.get_backend())")
        assert int(run(client, PREDICTED)) == predict(train, batch_size=64).peak_allocated
    assert "Ctrl-C" not in capfd.readouterr().out


def test_two_kernels_draw_different_numbers():
    drawn = []
    for _ in range(2):
        with kernel() as (_, client):
            drawn.append(run(client, "import random, numpy; print(random.random(), numpy.random.random())").split())
    assert drawn[0][0] != drawn[1][0]
    assert drawn[0][1] != drawn[1][1]


def test_it_is_interrupted_restarted_and_killed_with_all_that_it_started():
    with kernel() as (manager, client):
        asked = client.execute("import time\nprint('begun', flush=True)\ntime.sleep(600)")
        while "begun" not in client.get_iopub_msg(timeout=SOON)["content"].get("text", ""):
            pass
        manager.interrupt_kernel()
        while (reply := client.get_shell_msg(timeout=SOON))["parent_header"]["msg_id"] != asked:
            pass  # an answer to whether it is ready
        assert reply["content"]["status"] == "error"
        code = "import os, subprocess; print(os.getpid(), subprocess.Popen(['sleep', '600']).pid)"
        first = list(map(int, run(client, code).split()))
        manager.restart_kernel(now=True)  # by SIGKILL
        client.wait_for_ready(timeout=SOON)
        second = int(run(client, "import os; print(os.getpid())"))
        assert second not in first
        wait_for(lambda: not any(map(is_alive, first)))
    wait_for(lambda: not is_alive(second))


PANEL = f"""{LOOP}
from memlab.lab import Lab
lab = Lab(train, batch_size=(1, 64), device="cpu", steps={{steps}})
lab._ipython_display_()
"""


def test_a_restart_under_a_panel_leaves_a_kernel_that_shows_it_anew():
    with kernel() as (manager, client):
        opened = []
        code = PANEL.format(steps=10**6) + "job = lab.session.start()"
        client.execute_interactive(code, timeout=SOON, output_hook=lambda m: opened.append(m["content"].get("comm_id")))
        manager.restart_kernel(now=True)  # in mid-run
        client.wait_for_ready(timeout=SOON)
        for panel in filter(None, opened):  # the page still has it, and its slider is moved
            data = {"method": "update", "state": {"value": 3}}
            client.shell_channel.send(client.session.msg("comm_msg", {"comm_id": panel, "data": data}))
        assert opened
        assert run(client, PANEL.format(steps=3) + "print(len(lab.run(batch_size=4).steps))").endswith("3\n")


def test_a_kernel_that_is_asked_to_end_does(capfd):
    with kernel() as (manager, client):
        process = int(run(client, "import os; print(os.getpid())"))
        client.shutdown()
        wait_for(lambda: not is_alive(process))
        wait_for(lambda: not manager.is_alive())
    assert "Traceback" not in capfd.readouterr().err


def test_ranks_of_a_run_are_forked_too_and_end_with_it(tmp_path):
    run = ClusterRun(faulty.train, {"folder": str(tmp_path)}, steps=10**6, device="cpu")
    with run:
        steps = iter(run)
        next(steps)
        ranks = {int(file.name.partition("-")[0]) for file in tmp_path.iterdir()}
        lines = [Path(f"/proc/{rank}/cmdline").read_bytes() for rank in ranks]
        assert ["memlab.kernels.nursery" in str(line) for line in lines] == [True, True]
        os.kill(min(ranks), signal.SIGKILL)
        with pytest.raises(RankFailed, match=r"^rank \d was killed by SIGKILL after \d+ steps?, "):
            deque(steps)
    wait_for(lambda: not any(map(is_alive, ranks)))


def test_a_forked_process_begins_with_the_settings_that_are_given_to_it(tmp_path, monkeypatch):
    (tmp_path / "told.py").write_text(
        "import sys, torch, beside\nprint(sys.argv[1:], torch.get_num_threads(), __name__)"
    )
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "beside.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'other'}{os.pathsep}{ROOT}")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.chdir(tmp_path)
    words = [sys.executable, "-m", "memlab.forked", "told", "a", "b"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert told == "['a', 'b'] 3 __main__\n"


def test_without_the_process_that_forks_it_is_a_kernel_of_the_usual_kind(monkeypatch, tmp_path):
    monkeypatch.setenv(ADDRESS, str(tmp_path / "gone"))
    with kernel() as (_, client):
        assert run(client, "import sys; print('torch' in sys.modules)") == "False\n"


def test_on_a_machine_with_a_gpu_nothing_is_forked(monkeypatch, tmp_path):
    monkeypatch.setattr(shared, "CARD", tmp_path)
    before = os.environ["JUPYTER_PATH"]
    with shared_processes():
        assert os.environ["JUPYTER_PATH"] == before
