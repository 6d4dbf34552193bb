"""The answers of a script's process; here it is this one, and nothing is set apart."""

import os
import re
from textwrap import dedent

import pytest

from memlab.errors import Refused
from memlab.script import process
from memlab.script.options import Option
from memlab.trace import Trace

STEPS = """
    import torch
    batch_size = 4
    weight = torch.ones(batch_size, requires_grad=True, device="cuda")
    optimizer = torch.optim.SGD([weight])
    for _ in range(5):
        weight.sum().backward()
        optimizer.step()
"""
REFUSED = "the script would have started 'git': a prediction starts no other process."


def said_of_a_null():
    """Return the error that this Python raises for a path with a null byte."""
    with pytest.raises(ValueError, match="null") as caught:
        os.makedirs("a\0")
    return caught.value


@pytest.fixture
def answer(tmp_path, monkeypatch, own_main):
    """``answer(text)`` is that of a script with this text, which was refused so much as a program."""
    monkeypatch.setattr(process, "_set_apart", lambda folder: refused)
    refused = []

    def answer(text, *arguments, was_refused=False, **request):
        refused[:] = [REFUSED] if was_refused else []
        path = tmp_path / "train.py"
        path.write_text(dedent(text))
        flags = {"is_endless": False, "keeps_history": False, "until": None, "edits": [], "guesses": {}, "chosen": None}
        flags["values"] = {}
        request = flags | {"gpu": "T4", "ranks": (None, 0), "steps": 2, "budget": None} | request
        return process.answer(request | {"path": str(path), "arguments": arguments, "module": None}, tmp_path)

    return answer


def test_a_trace_and_the_options(answer):
    given = answer(STEPS)
    assert Trace.from_json(given["trace"]).device == "T4"
    assert [Option(**option) for option in given["options"]] == [
        Option("batch_size", 4, place="train.py:3", written="batch_size = {}")
    ]


def test_constants_are_options_of_a_command_line_that_is_read(answer):
    given = answer(STEPS.replace("torch\n", "sys, torch; sys.argv[1:]\n", 1))
    assert [Option(**option) for option in given["options"]] == [Option("--batch_size", 4)]


def test_the_options_of_a_parser_come_before_constants_of_which_only_a_batch_size_is_one_then(answer):
    text = """
        import argparse
        width = 64
        parser = argparse.ArgumentParser(add_help=False)
        parser.add_argument("--size", type=int, default=2)
        parser.parse_args()
    """
    given = answer(dedent(text) + dedent(STEPS), "--size", "8")
    assert [(option["flag"], option["value"]) for option in given["options"]] == [("--size", 8), ("batch_size", 4)]


def test_a_card_without_an_end(answer):
    given = answer(STEPS.replace("batch_size = 4", "batch_size = 10**10"), is_endless=True)
    trace = Trace.from_json(given["trace"])
    assert trace.oom is None
    assert trace.peak_allocated >= 8 * 10**10


def sentence_of(given):
    assert list(given) == ["error", "message"]
    return f"{given['error']}: {given['message']}"


REMEDY = "give the script that trains, with the arguments (behind --) with which it does."


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("print()", f"BadTrain: train.py ran to its end before an optimizer of PyTorch's made a step: {REMEDY}"),
        (
            "import sys\nsys.exit('no data')",
            f"BadTrain: train.py called sys.exit('no data') before an optimizer of PyTorch's made a step: {REMEDY}",
        ),
        (
            "open('data.csv')",
            "ScriptFailed: train.py raised FileNotFoundError at train.py:1: [Errno 2] No such file or directory: "
            "'data.csv'",
        ),
        (
            "import os\nos.makedirs('a\\0')",
            f"ScriptFailed: train.py raised ValueError at train.py:2: {said_of_a_null()}",
        ),
        (
            "version = '1.0'\nassert version == '0.3'  # it needs that",
            "ScriptFailed: train.py raised AssertionError at train.py:2: assert version == '0.3'  # it needs that",
        ),
        (
            "import torch\ntorch.distributed.init_process_group('gloo')",
            "ScriptFailed: train.py raised ValueError at train.py:2: it is written for torchrun, so say how many ranks "
            "there are (--world-size).",
        ),
    ],
)
def test_what_goes_wrong_is_one_sentence(text, sentence, answer):
    assert sentence_of(answer(text)) == sentence


def test_what_a_script_was_refused_may_be_why_it_made_no_step(answer):
    given = answer("print()", was_refused=True)
    assert sentence_of(given).endswith(f"made a step: it was refused something, {REFUSED}")


def test_what_it_was_refused_comes_out_of_other_errors(answer):
    text = """
        from memlab.errors import Refused
        try:
            raise Refused("the script needs the network (example.com)")
        except OSError as error:
            raise RuntimeError("cannot load") from error
    """
    assert sentence_of(answer(text)) == f"{Refused.__name__}: the script needs the network (example.com)"


def test_what_it_was_refused_may_be_told_by_another_error(answer):
    text = """
        from memlab.errors import Refused
        try:
            raise Refused("the script needs the network (example.com)")
        except OSError as error:
            raise ValueError(f"urlopen error {error}")
    """
    assert sentence_of(answer(text)) == "Refused: the script needs the network (example.com)"


def test_what_it_was_refused_may_stand_further_down_in_an_error(answer):
    given = answer(f'raise RuntimeError("Error downloading:\\nTried a mirror, got: {REFUSED}")', was_refused=True)
    assert sentence_of(given) == f"Refused: {REFUSED}"


def test_what_it_was_refused_stands_beside_an_error_that_came_while_it_dealt_with_that(answer):
    text = """
        from memlab.errors import Refused
        try:
            raise Refused("the script needs the network (example.com).")
        except OSError:
            1 / 0
    """
    assert sentence_of(answer(text)) == (
        "ScriptFailed: train.py raised ZeroDivisionError at train.py:6: division by zero "
        "(while it dealt with a refusal: the script needs the network (example.com))"
    )


def test_what_it_was_refused_before_does_not_turn_up_in_an_error_of_its_own(answer):
    given = answer("1 / 0", was_refused=True)
    assert sentence_of(given) == "ScriptFailed: train.py raised ZeroDivisionError at train.py:1: division by zero"


OF_THE_HUB = (
    "Refused: the script needs {} of Hugging Face's hub, at train.py:{}, and it is not on this machine: a prediction "
    "reaches no network, so download it before, or give the path of what is here."
)


def test_what_is_not_in_the_cache_of_the_hub(answer):
    text = """
        class LocalEntryNotFoundError(FileNotFoundError): "as huggingface_hub's"
        def hf_hub_download(repo_id):
            raise LocalEntryNotFoundError("Please check your connection.")
        try:
            hf_hub_download("timm/resnet50d")
        except OSError as error:
            raise OSError("We couldn't connect to 'https://huggingface.co'") from error
    """
    assert sentence_of(answer(text)) == OF_THE_HUB.format("timm/resnet50d", 8)


def test_a_data_set_that_is_not_in_the_cache_of_the_hub(answer):
    text = """raise ConnectionError("Couldn't reach 'glue' on the Hub (OfflineModeIsEnabled)")"""
    assert sentence_of(answer(text)) == OF_THE_HUB.format("glue", 1)


def test_a_guess_that_it_may_come_of_stands_beside_an_error(answer):
    asserting = "assert 1 < weight.sum() < 2, 'loss'"
    given = answer(STEPS.replace("batch_size = 4", "batch_size = 400").replace("optimizer.step()", asserting))
    sentence = sentence_of(given)
    assert sentence.startswith("ScriptFailed: train.py raised AssertionError at train.py:8: loss. In this prediction, ")
    assert "were guessed at train.py:8: a float is 1, an integer 0" in sentence


def test_a_script_that_catches_everything_is_left_alone(answer, monkeypatch, tmp_path):
    def end(found, folder):
        ended.append(found)

    ended = []
    monkeypatch.setattr(process, "GRACE", 0.2)
    monkeypatch.setattr(process, "_end", end)
    answer(
        """
        import time
        import torch
        model = torch.nn.Linear(8, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(60):
            try:
                model(torch.ones(4, 8, device="cuda")).sum().backward()
                optimizer.step()
            except BaseException:
                time.sleep(0.02)
        """
    )
    (found,) = ended
    assert len(Trace.from_json(found["trace"]).steps) == 2


def test_its_traceback_begins_in_the_script(answer, capsys):
    answer("def load():\n    return 1 / 0\nload()")
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "Traceback (most recent call last):"
    assert "train.py" in shown[1]
    assert shown[-1] == "ZeroDivisionError: division by zero"


def test_where_it_is_is_said_every_few_seconds(answer, monkeypatch, capsys):
    monkeypatch.setattr(process, "EVERY", 0.1)
    answer(STEPS.replace("import torch", "import time, torch; time.sleep(0.5)"))
    lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"memlab: step 1 of 2, no backward yet, at train\.py:2, 0 s", lines[0])
