"""Scripts in a process of their own: what comes back from there, and what is left behind."""

import tempfile
from textwrap import dedent

import pytest

from memlab import errors
from memlab.run import measure, predict, sweep
from memlab.script import Script

TRAINING = """
    import argparse, json, logging, os, tempfile
    import torch
    from torch import nn

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--out", default="out")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        torch.cuda.set_device(0)
        assert "memlab-" in tempfile.gettempdir()
        print("on", torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).multi_processor_count)
    os.makedirs(args.out, exist_ok=True)
    logging.basicConfig(filename=f"{args.out}/train.log", level=logging.INFO)
    model = torch.compile(nn.Linear(64, 64).to(device)) if device.type == "cuda" else nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1000):
        loss = model(torch.randn(args.batch_size, 64, device=device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        logging.info("step %d", step)
        with open(f"{args.out}/metrics.json", "w") as file:
            json.dump({"step": step}, file)
        torch.save(model.state_dict(), f"{args.out}/last.pt")
        assert os.path.exists(f"{args.out}/last.pt")
        assert json.load(open(f"{args.out}/metrics.json"))["step"] == step
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """``write(text)`` gives a script with this text, alone in the folder that is the current one."""
    folder, temporary = tmp_path / "here", tmp_path / "temporary"
    folder.mkdir()
    temporary.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    def write(text):
        (folder / "train.py").write_text(dedent(text))
        return "train.py"

    yield write
    assert list(temporary.iterdir()) == []


def test_of_a_prediction_nothing_is_left(write, tmp_path, capfd):
    traces = sweep(Script(write(TRAINING)), gpu="A100-40GB", steps=2, batch_size=[8, 4096])
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["train.py"]
    assert [trace.device for trace in traces] == ["A100-40GB"] * 2
    assert traces[1].settings == {"arguments": "--batch-size=4096"}
    assert traces[1].peak_allocated > traces[0].peak_allocated + 2**20
    assert len(traces[0].steps) == 2
    assert traces[0].notes == ()
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("on A100-40GB 108") == 2


def test_measured_it_does_what_it_does(write, tmp_path):
    trace = measure(Script(write(TRAINING), "--out", "mine"), device="cpu")
    assert (trace.source, len(trace.losses)) == ("measured", 3)
    assert (tmp_path / "here" / "mine" / "metrics.json").read_text() == '{"step": 1}'


def test_a_process_that_ends_itself_is_reported(write):
    with pytest.raises(errors.ScriptFailed) as caught:
        predict(Script(write("import os\nos._exit(3)")))
    assert str(caught.value) == "train.py ended its process (status 3) before its steps were made."


def test_bad_options_of_ours_are_refused_in_the_same_words(write):
    with pytest.raises(errors.BadValue, match="gpu 'K80' is not a card that memlab knows"):
        predict(Script(write("")), gpu="K80")
