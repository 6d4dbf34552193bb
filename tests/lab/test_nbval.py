"""An error in a lab's worker thread fails the notebook that it stands in."""

import subprocess
import sys

import nbformat
import pytest

CELL = """
from memlab import Lab

def train(device, *, batch_size=8):
    yield 1.0
    {second_step}

Lab(train, batch_size=(1, 64), device="cpu", steps=2).run()
"""


@pytest.mark.parametrize(("second_step", "status"), [("yield 0.5", 0), ("raise RuntimeError('in the worker')", 1)])
def test_a_notebook_fails_if_and_only_if_its_lab_does(tmp_path, second_step, status):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL.format(second_step=second_step))])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, tmp_path / "lab.ipynb")
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "-p", "no:cacheprovider", "lab.ipynb"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == status, run.stdout
    assert ("in the worker" in run.stdout) is bool(status)
