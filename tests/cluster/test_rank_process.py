"""A rank that torchrun starts by hand: its lines are printed."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from memlab.trace import Trace

ROOT = Path(__file__).parents[2]
GROUP = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}


def lines(port, *arguments):
    """Return the messages of a group with one rank that meets at a port."""
    command = [sys.executable, "-m", "memlab.cluster.rank_process", "tests/cluster/faulty.py:train", *arguments]
    environment = os.environ | GROUP | {"MASTER_PORT": str(port)}
    done = subprocess.run([*command, "--device=cpu"], env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_step_and_the_trace_are_printed_where_nobody_listens():
    said = lines(0, '{"at": 9}', "--steps=2")
    assert [line["kind"] for line in said if line["kind"] != "trace"] == ["hello", "start", "step", "step", "end"]
    trace = Trace.from_json(next(line["trace"] for line in reversed(said) if line["kind"] == "trace"))
    assert (trace.rank, trace.world_size, len(trace.steps), trace.settings["at"]) == (0, 1, 2, 9)


def test_a_port_that_is_in_use_is_said_with_the_remedy():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        error = lines(port)[-1]
    assert (error["type"], error["text"]) == (
        "BadValue",
        f"Port {port} is in use: give torchrun another --master-port, or --standalone.",
    )
