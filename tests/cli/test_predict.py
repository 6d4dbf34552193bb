import pickle
from textwrap import dedent

import pytest

from memlab import cli
from memlab.trace import Trace
from memlab.units import format_bytes

LOOP = """
    import torch
    from memlab.nets import MLP

    def train(device, *, batch_size=8, width=64):
        model = MLP(2, width).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        while True:
            loss = model(torch.ones(batch_size, width, device=device)).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss

    def careless(device):
        yield torch.ones(3, device="cuda").sum()
"""


@pytest.fixture
def loop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "predicted_loop.py").write_text(dedent(LOOP))
    return "predicted_loop.py"


def test_the_table_and_the_sentence(loop, tmp_path, capsys):
    arguments = ["predict", f"{loop}:train", "batch_size=16", "--gpu", "a100 40gb", "--json", "trace.json"]
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    trace = Trace.from_json((tmp_path / "trace.json").read_text())
    assert trace.source == "predicted"
    assert trace.settings == {"batch_size": 16, "width": 64}
    assert "train(batch_size=16, width=64) predicted on A100-40GB\n" in text
    for category, count in trace.by_category.items():
        assert f"{category:<22}{format_bytes(count):>9}" in text
    assert f"{'reserved':<22}{format_bytes(trace.peak_reserved):>9}\n" in text
    assert trace.sentence[1:] in text
    assert "--gpu" not in text
    assert "seconds" not in text
    assert "loss" not in text


def test_out_of_memory_is_a_result_in_cudas_words(loop, capsys):
    assert cli.main(["predict", f"{loop}:train", "width=65536"]) == 0
    text = capsys.readouterr().out
    assert "Out of memory outside of forward, backward and optimizer at " in text
    assert "CUDA out of memory. Tried to allocate 16.00 GiB. GPU 0 has a total capacity of 14.56 GiB" in text
    # Weights, gradients, two states and a temporary of the optimizer's: 16 GiB each, for two layers.
    assert text.splitlines()[-2] == "With room enough it would take 160 GiB."


def test_a_card_can_be_described(loop, capsys):
    assert cli.main(["predict", f"{loop}:train", "--gpu", "24 GiB sm_86 84 SMs"]) == 0
    text = capsys.readouterr().out
    assert "predicted on 24 GiB sm_86 84 SMs\n" in text
    assert "is that of the RTX A6000, the nearest of sm_86 that memlab knows" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--gpu", "24 GiB"], "gpu '24 GiB' does not describe a card: give its memory"),
        (["--gpu", "K80"], "gpu 'K80' is not a card that memlab knows: similar names are"),
        (["--steps", "0"], "steps=0 is not a number of steps"),
        (["--budget", "lots"], "'lots' is not a number of bytes"),
        (["depth=3"], "train has no setting 'depth': its settings are batch_size, width"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(loop, arguments, words, capsys):
    assert cli.main(["predict", f"{loop}:train", *arguments]) == 2
    assert f"memlab: error: {words}" in capsys.readouterr().err


def test_a_loop_that_names_cuda_means_the_virtual_card(loop, capsys):
    assert cli.main(["predict", f"{loop}:careless"]) == 0
    text = capsys.readouterr().out
    assert "careless() predicted on T4\n" in text
    assert text.endswith("\nThis is for T4, since no --gpu is given.\n")


def test_a_snapshot_for_pytorchs_viewer(loop, tmp_path, capsys):
    assert cli.main(["predict", f"{loop}:train", "--snapshot", "run.pickle", "--json", "trace.json"]) == 0
    assert pickle.loads((tmp_path / "run.pickle").read_bytes())["device_traces"][0]
    assert "The snapshot is in run.pickle: " in capsys.readouterr().out


def test_a_snapshot_of_a_script(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.py").write_text(dedent(LOOP) + "for _ in train('cuda'):\n    pass\n")
    assert cli.main(["predict", "loop.py", "--snapshot", "run.pickle"]) == 0
    (events,) = pickle.loads((tmp_path / "run.pickle").read_bytes())["device_traces"]
    assert {event["frames"][-1]["filename"] for event in events} == {"loop.py"}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["loop.py", "run.pickle"]
