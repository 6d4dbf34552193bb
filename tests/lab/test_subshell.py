"""A real kernel that is busy with a cell, and widgets that are used meanwhile."""

import json

import pytest
from jupyter_client.manager import start_new_kernel

from tests.notebooks.cells import ROOT

PANEL = """
import threading
from memlab import Guess, Lab
from tests.lab.loops import train
panel = Lab(train, batch_size=(1, 64))
display(panel)
heard = threading.Event()
slider = panel._controls["batch_size"].widget.children[0]
slider.observe(lambda change: heard.set(), "value")
"""
GUESS = """
import threading
import ipywidgets
from memlab.lab import Guess
guess = Guess("How much?")
guess._ipython_display_()
heard = threading.Event()
slider = next(w for w in ipywidgets.Widget.widgets.values() if isinstance(w, ipywidgets.Text))
slider.observe(lambda change: heard.set(), "value")
"""


@pytest.fixture
def kernel():
    manager, client = start_new_kernel(cwd=str(ROOT))
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def evaluate(client, code, name):
    """Run a cell, and give what an expression then is."""
    reply = client.execute_interactive(code, user_expressions={name: name}, output_hook=lambda message: None)
    return reply["content"]["user_expressions"][name]["data"]["text/plain"]


def begin_subshell(client):
    message = client.session.msg("create_subshell_request")
    client.control_channel.send(message)
    while (reply := client.get_control_msg(timeout=60))["parent_header"].get("msg_id") != message["header"]["msg_id"]:
        pass
    return reply["content"]["subshell_id"]


@pytest.mark.parametrize(("cell", "value"), [(PANEL, 9), (GUESS, "5 GiB")], ids=["panel", "guess"])
def test_a_widget_hears_while_a_cell_runs(kernel, cell, value):
    features = kernel.kernel_info(reply=True, timeout=60)["content"].get("supported_features", [])
    if "kernel subshells" not in features:
        pytest.skip("this kernel has one thread for cells and widgets")
    subshell = begin_subshell(kernel)
    comm = json.loads(evaluate(kernel, cell, "slider.model_id").replace("'", '"'))
    data = {"method": "update", "state": {"value": value}, "buffer_paths": []}
    message = kernel.session.msg("comm_msg", {"comm_id": comm, "data": data})
    message["header"]["subshell_id"] = subshell
    cell = kernel.execute("was_heard = heard.wait(10)", user_expressions={"it": "was_heard"})
    kernel.shell_channel.send(message)
    while (reply := kernel.get_shell_msg(timeout=60))["parent_header"].get("msg_id") != cell:
        pass
    assert reply["content"]["user_expressions"]["it"]["data"]["text/plain"] == "True"
