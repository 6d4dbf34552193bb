"""Errors in a notebook: what IPython shows of them."""

import subprocess
import sys

import pytest

LOOP = """
import torch
from memlab import Lab, measure, predict

def train(device, *, batch_size=4, width=32):
    model = torch.nn.Linear(32, 8).to(device)
    while True:
        loss = model(torch.ones(batch_size, width, device=device)).sum()
        loss.backward()
        yield loss

"""


def shown(call: str) -> str:
    """Return the output of a cell that ends with this call."""
    ipython = ["memlab.forked", "IPython"]  # with PyTorch loaded, where many tests run
    command = [sys.executable, "-m", *ipython, "--no-banner", "--colors=nocolor", "-c", LOOP + call]
    return subprocess.run(command, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ("measure(train, widht=3)", "BadValue: train has no setting 'widht': its settings are batch_size, width."),
        ("Lab(train, widht=(1, 3))", "BadValue: widht=(1, 3) controls nothing: the settings of train are "),
        ("predict(train, gpu='K80')", "BadValue: gpu 'K80' is not a card that memlab knows: similar names are "),
    ],
)
def test_an_error_of_memlabs_is_one_sentence_and_the_readers_line(call, sentence):
    first, second = shown(call).splitlines()
    assert first.startswith(sentence)
    assert second == f"line 11: `{call}`"


@pytest.mark.parametrize("how", ["measure", "predict"])
def test_an_error_of_the_readers_is_shown_with_the_readers_frames_alone(how):
    told = shown(f"{how}(train, width=3)")
    assert f"---> 11 {how}(train, width=3)" in told
    assert "----> 7     loss = model(" in told
    assert "RuntimeError: " in told
    assert "memlab/" not in told
    assert "torch/nn" not in told


def test_an_error_within_memlab_itself_keeps_its_frames():
    told = shown("import memlab.run; memlab.run.Run.complete(3)")
    assert "memlab/run.py" in told


def test_a_debugger_sees_all_frames_of_an_error():
    told = shown("""
import traceback
try:
    measure(train, width=3)
except RuntimeError as error:
    print(len(traceback.extract_tb(error.__traceback__)) > 5)
""")
    assert told == "True\n"
