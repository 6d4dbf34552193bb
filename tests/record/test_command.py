import json

import pytest

from tests.record.__main__ import main


def test_cases_are_recorded_and_counted(tmp_path, capsys):
    file = tmp_path / "t4.json"
    arguments = ["--cases", "mlp precision=fp32 optimizer", "--gpu", "T4", "--out", str(file)]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "mlp precision=fp32 optimizer=SGD: " in text
    assert f"1 cases on T4 in {file}, 0 of them failed" in text
    assert list(json.loads(file.read_text())["cases"]) == ["mlp precision=fp32 optimizer=SGD"]


def test_the_list_names_the_cases_and_runs_none(tmp_path, capsys):
    file = tmp_path / "none.json"
    assert main(["--list", "--cases", "gpt", "--out", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 50
    assert any(line.endswith("(holdout)") for line in lines)
    assert not file.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cases", "recipes"], "no case is called 'recipes'"),
        (["--minutes", "0"], "--minutes 0 is no time: give a number above 0"),
        (["--gpu", "K80"], "gpu 'K80' is not a card"),
        (["--device", "tpu"], "device 'tpu' is not a device"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(arguments, words, tmp_path, capsys):
    assert main(["--out", str(tmp_path / "x.json"), *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
