import pytest

from memlab import cli
from memlab.errors import BadValue


@pytest.fixture
def failing_with(monkeypatch):
    """Makes ``memlab lab`` raise the given exception."""

    def install(error):
        def run(_):
            raise error

        monkeypatch.setattr("memlab.cli.lab.run", run)

    return install


def test_an_error_is_one_sentence_and_status_2(failing_with, capsys):
    failing_with(BadValue("'lots' is not a number of bytes."))
    assert cli.main(["lab"]) == 2
    assert capsys.readouterr().err == "memlab: error: 'lots' is not a number of bytes.\n"


def test_ctrl_c_is_status_130(failing_with):
    failing_with(KeyboardInterrupt())
    assert cli.main(["lab"]) == 130


def test_a_bug_is_not_hidden(failing_with):
    failing_with(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        cli.main(["lab"])


@pytest.mark.parametrize("arguments", [[], ["unheard-of"]])
def test_wrong_usage_names_the_commands(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_help_lists_the_commands(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert "lab" in text
    assert "doctor" in text


@pytest.mark.parametrize("command", ["measure", "predict", "fit"])
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["n" * 300], "memlab: error: "),
        (["n" * 300 + ".py:train"], " is not there (looked in "),
        (["loop.py:train", "device=cpu"], "train has no setting 'device': its settings are none."),
    ],
)
def test_odd_words_are_one_sentence(command, words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.py").write_text("def train(device, **settings):\n    yield\n")
    assert cli.main([command, *words]) == 2
    assert told in capsys.readouterr().err
