from textwrap import dedent

import pytest

from memlab import cli
from memlab.cli.fit import OLDER_CARD, read_choices

pytestmark = pytest.mark.slow

LOOP = """
    import torch

    def train(device, *, batch_size=8, width=64, precision="fp32"):
        dtype = torch.float16 if precision == "fp16" else torch.float32
        while True:
            yield torch.zeros(2**18, batch_size, width, device=device, dtype=dtype).sum()
"""


@pytest.fixture
def loop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fitted_loop.py").write_text(dedent(LOOP))
    return "fitted_loop.py:train"


def test_ranges_lists_and_single_values():
    words = ["batch_size=1:64", "precision=fp32,bf16", "checkpoint_every=0,1,2", "width=64", "name=a:b", "sizes=[1, 2]"]
    assert read_choices(words) == {
        "batch_size": (1, 64),
        "precision": ["fp32", "bf16"],
        "checkpoint_every": [0, 1, 2],
        "width": 64,
        "name": "a:b",
        "sizes": [1, 2],
    }


def test_what_fits_is_printed_and_progress_goes_to_standard_error(loop, capsys):
    arguments = ["fit", loop, "--gpu", "T4", "--budget", "1 GiB", "batch_size=1:64", "precision=fp32,fp16"]
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Fits: precision='fp16', batch_size=")
    assert "(asked for: precision 'fp32', batch_size up to 64)" in out
    assert err.startswith("1: precision='fp32', batch_size=1: ")


def test_a_model_by_its_name_is_fitted_with_each_method(capsys):
    settings = ["context=256", "checkpointing=False"]
    assert cli.main(["fit", "huggingfacetb/smollm2-360m", "--gpu", "T4", "--budget", "2 GiB", *settings]) == 0
    first, full, lora, qlora, assumed, attention = capsys.readouterr().out.splitlines()
    said = "context=256, batch_size=1, checkpointing=False, chunked_loss=True, optimizer=AdamW, adapters=all, rank=16"
    assert first == "SmolLM2-360M, 361,821,120 weights:"
    assert assumed.startswith("Assumed: weights of 16 bits (QLoRA's of 4), ")
    assert assumed.endswith(f" {said}.")
    assert attention == OLDER_CARD
    assert full.startswith(" full: does not fit: it needs ")
    assert lora.startswith(" LoRA: fits: ")
    assert qlora.startswith("QLoRA: fits: ")


def test_several_values_of_a_model_are_a_line_each(capsys):
    words = ["method=LoRA", "context=256,1024", "checkpointing=False"]
    assert cli.main(["fit", "SmolLM2-135M", "--gpu", "L4", "--budget", "1 GiB", *words]) == 0
    _, short, long, _ = capsys.readouterr().out.splitlines()
    assert short.startswith(" LoRA, context=256: fits: ")
    assert long.startswith(" LoRA, context=1024: does not fit: it needs ")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["context=1:9"], "context is given as a range: for a model, give values, as in context=2048,8192"),
        (["depth=3"], "train has no setting 'depth'"),
        (["method=dora"], "method='dora' is not known: give one of full, LoRA, QLoRA"),
        (["batch_size=0"], "batch_size=0 is no count: give a whole number from 1"),
    ],
)
def test_bad_words_about_a_model_are_one_sentence(words, error, capsys):
    assert cli.main(["fit", "SmolLM2-135M", *words]) == 2
    assert error in capsys.readouterr().err


def test_a_name_that_is_neither_file_nor_model_is_one_sentence(capsys):
    assert cli.main(["fit", "Llama-9-8B"]) == 2
    assert (
        "'Llama-9-8B' is neither an existing file nor a model that memlab knows. The closest: "
        in capsys.readouterr().err
    )


def test_that_nothing_fits_is_a_result(loop, capsys):
    assert cli.main(["fit", loop, "batch_size=1000:2000"]) == 0
    assert capsys.readouterr().out.startswith("Nothing fits; the nearest, batch_size=1000, needs ")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["batch_size=9:3"], "batch_size=(9, 3) is no range"),
        (["depth=1:4"], "train has no setting 'depth'"),
        (["batch_size"], "'batch_size' is not a setting: give key=value"),
        (["--gpu", "K80"], "gpu 'K80' is not a card that memlab knows"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(loop, words, error, capsys):
    assert cli.main(["fit", loop, *words]) == 2
    assert f"memlab: error: {error}" in capsys.readouterr().err


def test_ctrl_c_keeps_what_was_found(loop, capsys, monkeypatch):
    def interrupt(line):
        raise KeyboardInterrupt

    monkeypatch.setattr("memlab.cli.fit._show", interrupt)
    assert cli.main(["fit", loop, "batch_size=1:64"]) == 130
    assert "1 predictions for 64 combinations, interrupted." in capsys.readouterr().out


SCRIPT = """
    import argparse
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    batch_size = parser.parse_args().batch_size
    weight = torch.nn.Parameter(torch.zeros(1, device="cuda"))
    optimizer = torch.optim.SGD([weight])
    while True:
        (weight * torch.zeros(2**20, batch_size, device="cuda")).sum().backward()
        optimizer.step()
"""


def test_the_options_of_a_script(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(dedent(SCRIPT))
    assert cli.main(["fit", "script.py", "--budget", "300 MiB", "batch_size=36:38"]) == 0
    assert capsys.readouterr().out.startswith("Fits: batch_size=37 ")
