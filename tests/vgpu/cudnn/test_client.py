"""Whatever happens in cuDNN's process, this one goes on."""

import select
import sys

import pytest

from memlab.vgpu.cudnn import client as client_module
from memlab.vgpu.cudnn.client import Client
from memlab.vgpu.cudnn.convolution import FORWARD, Convolution

QUESTION = Convolution(FORWARD, (1, 3, 8, 8), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), "float32")
ANSWERS = "import sys\nfor line in sys.stdin: print('[300, 20, 0]', flush=True)"
REFUSES = "import sys\nfor line in sys.stdin: print('null', flush=True)"
CRASHES = "import os, sys\nsys.stdin.readline()\nos.kill(os.getpid(), 11)"
HANGS = "import sys, time\nsys.stdin.readline()\ntime.sleep(600)"
BABBLES = "import sys\nfor line in sys.stdin: print('no JSON', flush=True)"
ONCE = "import sys\nsys.stdin.readline()\nprint('[1]', flush=True)"


def client(tmp_path, code, patience=30.0):
    """A client of a process that runs this code, and notes in a file that it has begun."""
    note = f"open({str(tmp_path / 'begun')!r}, 'a').write('x')\n"
    return Client([sys.executable, "-c", note + code], patience=patience)


def begun(tmp_path):
    return len((tmp_path / "begun").read_text())


def test_an_answer_is_a_tuple_of_bytes_and_one_process_gives_all(tmp_path):
    asked = client(tmp_path, ANSWERS)
    assert [asked.ask(80, QUESTION) for _ in range(3)] == [(300, 20, 0)] * 3
    assert begun(tmp_path) == 1
    assert not asked.has_failed


def test_what_cudnn_does_not_take_is_no_failure(tmp_path):
    asked = client(tmp_path, REFUSES)
    assert asked.ask(80, QUESTION) is None
    assert not asked.has_failed


@pytest.mark.parametrize("code", [CRASHES, BABBLES, "raise SystemExit(3)"])
def test_after_a_failure_it_is_tried_once_more_and_then_no_more(tmp_path, code):
    asked = client(tmp_path, code)
    assert asked.ask(80, QUESTION) is None
    assert asked.has_failed
    assert asked.ask(80, QUESTION) is None
    assert begun(tmp_path) == 2


def test_a_process_that_hangs_is_ended(tmp_path):
    asked = client(tmp_path, HANGS, patience=0.2)
    assert asked.ask(80, QUESTION) is None
    assert asked.has_failed
    assert asked._process is None


def test_a_process_that_ends_between_two_questions_is_started_again(tmp_path):
    asked = client(tmp_path, ONCE)
    assert [asked.ask(80, QUESTION), asked.ask(80, QUESTION)] == [(1,), (1,)]
    assert begun(tmp_path) == 2


def test_a_command_that_is_not_there(tmp_path):
    asked = Client([str(tmp_path / "none")])
    assert asked.ask(80, QUESTION) is None
    assert asked.has_failed


def test_an_answer_that_nobody_read_is_not_taken_for_the_next_one(tmp_path, monkeypatch):
    asked = client(tmp_path, ANSWERS)
    asked.ask(80, QUESTION)
    with monkeypatch.context() as patched:
        patched.setattr(select, "select", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            asked.ask(80, QUESTION)
    assert asked.ask(80, QUESTION) == (300, 20, 0)
    assert begun(tmp_path) == 2


def test_in_a_forked_process_the_pipes_are_the_parents(tmp_path):
    asked = client(tmp_path, ANSWERS)
    asked.ask(80, QUESTION)
    parents = asked._process
    asked._forget()
    assert asked.ask(80, QUESTION) == (300, 20, 0)
    assert asked._process is not parents
    assert parents.poll() is None
    parents.kill()
    parents.communicate()


def test_the_process_knows_the_memlab_that_was_imported(tmp_path):
    code = "import sys\nimport memlab\nfor line in sys.stdin: print([len(memlab.__file__)], flush=True)"
    import memlab

    assert client(tmp_path, code).ask(80, QUESTION) == (len(memlab.__file__),)


def test_a_process_gives_some_hundred_answers_and_then_a_new_one_does(tmp_path, monkeypatch):
    monkeypatch.setattr(client_module, "MOST", 3)
    asked = client(tmp_path, ANSWERS)
    assert [asked.ask(80, QUESTION) for _ in range(7)] == [(300, 20, 0)] * 7
    assert begun(tmp_path) == 3
