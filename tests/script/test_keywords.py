"""Arguments in a script's own calls, and constants of its source: found, and changed in a prediction."""

import os
from textwrap import dedent

import pytest

from memlab.script.child import ask
from memlab.script.command import Command

pytestmark = pytest.mark.slow

LOADERS = """
    import sys
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(4096, 1024))
    unused = DataLoader(data, batch_size=512)
    training = DataLoader(data, 1024, shuffle=True, num_workers=2)
    testing = DataLoader(
        data, batch_size=256
    )
    model = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(model.parameters())
    with torch.no_grad():
        for (x,) in testing:
            model(x.cuda())
    for (x,) in training:
        model(x.cuda()).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
# As transformers has them; the package need not be installed.
ARGUMENTS = """
    from dataclasses import dataclass

    @dataclass
    class TrainingArguments:
        output_dir: str
        per_device_train_batch_size: int = 8
        gradient_accumulation_steps: int = 1
        gradient_checkpointing: bool = False
        bf16: bool = False
        fp16: bool = False
        optim: str = "adamw_torch"

        def __post_init__(self):
            self.batch = self.per_device_train_batch_size
"""
TRAINER = """
    import torch
    from transformers.training_args import TrainingArguments
    from trl import Config

    arguments = Config(
        output_dir="here",
    )
    width = 1024 if arguments.gradient_checkpointing else 2048
    model = torch.nn.Linear(width, width).cuda()
    optimizer = torch.optim.SGD(model.parameters())
    while True:
        model(torch.randn(1024 * arguments.batch, width, device="cuda")).mean().backward()
        optimizer.step()
"""
INHERITS = """
    from dataclasses import dataclass
    from transformers.training_args import TrainingArguments

    @dataclass
    class Config(TrainingArguments):
        max_length: int = 1024

        def __post_init__(self):
            super().__post_init__()
"""


@pytest.fixture
def asked(tmp_path):
    """``asked(text)``: a command for a script with this text, beside a package of that name and one that inherits."""
    folder = tmp_path / "site-packages"
    for name, text in {"transformers/training_args.py": ARGUMENTS, "trl.py": INHERITS}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(text))
    (folder / "transformers/__init__.py").touch()
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])

    def asked(text, *arguments):
        file = tmp_path / "train.py"
        file.write_text(dedent(text))
        return Command(file, *arguments).within({"PYTHONPATH": path})

    return asked


def options_of(answer):
    return {option.key: option.value for option in answer.options}


def peak_of(answer):
    return answer.trace.peak_allocated


def test_the_batch_of_a_loader_that_trains_is_an_option(asked):
    command = asked(LOADERS)
    answer = ask(command, gpu="T4", steps=2)
    assert options_of(answer) == {"train.py:9 batch_size": 256, "train.py:8 batch_size": 1024}
    testing, training = answer.options
    assert (testing.is_of_evaluation, training.is_of_evaluation) == (True, False)
    smaller = ask(command.with_option(training, 512), gpu="T4", steps=2)
    assert options_of(smaller) == options_of(answer)
    written = ask(asked(LOADERS.replace("1024, shuffle", "512, shuffle")), gpu="T4", steps=2)
    assert peak_of(smaller) == peak_of(written) < peak_of(answer)


def test_what_a_script_reads_from_its_command_line_comes_first(asked):
    command = asked("""
        import sys, torch
        batch_size = 64
        sys.argv[1:]
        model = torch.nn.Linear(1024, 1024).cuda()
        optimizer = torch.optim.SGD(model.parameters())
        while True:
            model(torch.randn(batch_size, 1024, device="cuda")).mean().backward()
            optimizer.step()
    """)
    (option,) = ask(command, gpu="T4", steps=2).options
    assert (option.flag, option.place) == ("--batch_size", "")


def test_a_constant_of_a_script_that_reads_nothing_is_changed_in_its_source(asked):
    text = """
        import torch
        batch_size = 1024
        model = torch.nn.Linear(1024, 1024).cuda()
        optimizer = torch.optim.SGD(model.parameters())
        while True:
            model(torch.randn(batch_size, 1024, device="cuda")).mean().backward()
            optimizer.step()
    """
    command = asked(text)
    answer = ask(command, gpu="T4", steps=2)
    (option,) = answer.options
    assert option.told(512) == "train.py:3: batch_size = 512"
    smaller = ask(command.with_option(option, 512), gpu="T4", steps=2)
    written = ask(asked(text.replace("batch_size = 1024", "batch_size = 512")), gpu="T4", steps=2)
    assert peak_of(smaller) == peak_of(written) < peak_of(answer)


def test_a_trainers_arguments_are_options_and_make_the_changes_that_they_have_a_field_for(asked):
    command = asked(TRAINER)
    answer = ask(command, gpu="T4", steps=2)
    names = {option.flag: option for option in answer.options}
    assert names.keys() == {"per_device_train_batch_size", "gradient_accumulation_steps", "max_length"}
    batch = names["per_device_train_batch_size"]
    assert batch.told(4) == "train.py:6: Config(..., per_device_train_batch_size=4)"
    smaller = ask(command.with_option(batch, 4), gpu="T4", steps=2)
    written = ask(asked(TRAINER.replace('="here",', '="here", per_device_train_batch_size=4')), gpu="T4", steps=2)
    assert peak_of(smaller) == peak_of(written) < peak_of(answer)
    edited = ask(command, gpu="T4", steps=2, edits=["checkpointing", "autocast"])
    assert set(edited.edits) == {
        "train.py:6: Config(..., gradient_checkpointing=True)",
        "train.py:6: Config(..., fp16=True)",  # a T4 has no bf16
    }
    assert peak_of(edited) < peak_of(answer)


def test_where_a_parser_makes_a_trainers_arguments_the_change_is_a_word_of_the_command_line(asked, tmp_path):
    parser = "def parse(kind):\n    return kind(output_dir='here')\n"
    (tmp_path / "site-packages/transformers/hf_argparser.py").write_text(parser)
    text = TRAINER.replace("arguments = Config(", "from transformers.hf_argparser import parse\n    _ = dict(")
    text = text.replace("    width =", "    arguments = parse(Config)\n    width =")
    edited = ask(asked(text), gpu="T4", steps=2, edits=["checkpointing"])
    assert edited.edits == ("--gradient_checkpointing True",)
