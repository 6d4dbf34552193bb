"""DeepSpeed configurations: what they say, what DeepSpeed would ignore, and what is refused."""

import json

import pytest

from memlab.cluster.deepspeed import read
from memlab.errors import BadValue

WHOLE = {
    "train_batch_size": 64,
    "gradient_accumulation_steps": 4,
    "gradient_clipping": 0.5,
    "bf16": {"enabled": True},
    "fp16": {"enabled": False},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": 5e7, "offload_optimizer": {"device": "cpu"}},
}


def test_a_configuration_is_read_from_a_file(tmp_path):
    file = tmp_path / "zero.json"
    file.write_text(json.dumps(WHOLE))
    found = read(file, world_size=8)
    assert found == read(WHOLE, world_size=8) == read(str(file), world_size=8)
    assert (found.train_batch_size, found.micro_batch_size, found.accumulation_steps) == (64, 2, 4)
    assert (found.stage, found.reduce_bucket_size, found.precision) == (3, 50_000_000, "bf16")
    assert (found.offload_optimizer, found.offload_parameters) == ("cpu", "none")
    assert (found.gradient_clipping, found.remarks) == (0.5, ())


def test_the_defaults_are_deepspeeds():
    found = read({"train_batch_size": 4}, world_size=2)
    assert (found.stage, found.reduce_bucket_size, found.precision) == (0, 500_000_000, "fp32")
    assert (found.gradient_clipping, found.activation_checkpointing) == (1.0, {})


@pytest.mark.parametrize(
    ("given", "batches"),
    [
        ((16, None, None), (16, 8, 1)),
        ((None, 4, None), (8, 4, 1)),
        ((None, 4, 3), (24, 4, 3)),
        ((16, 2, None), (16, 2, 4)),
        ((16, None, 4), (16, 2, 4)),
        ((16, 2, 4), (16, 2, 4)),
    ],
)
def test_what_is_not_given_of_the_batch_sizes_follows(given, batches):
    found = read(sizes(*given), world_size=2)
    assert (found.train_batch_size, found.micro_batch_size, found.accumulation_steps) == batches


def sizes(whole, micro, passes):
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    return {name: value for name, value in zip(names, (whole, micro, passes), strict=True) if value is not None}


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        (
            {"gradient_checkpointing": True},
            "'gradient_checkpointing' at the top level is ignored by DeepSpeed: checkpoint",
        ),
        (
            {"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}},
            "'offload_param' is for stage 3 only: in stage 2 the weights stay on the card.",
        ),
        ({"stage": 2}, "'stage' at the top level is ignored by DeepSpeed: it belongs in 'zero_optimization'."),
        (
            {"cpu_checkpointing": True},
            "'cpu_checkpointing' at the top level is ignored by DeepSpeed: it belongs in 'act",
        ),
        (
            {"gradient_cliping": 1.0},
            "'gradient_cliping' at the top level is ignored by DeepSpeed: 'gradient_clipping' may",
        ),
        ({"qqq": 1}, "'qqq' at the top level is ignored by DeepSpeed: take it out, or look up its name."),
        ({"amp": {}}, "'amp' was removed from DeepSpeed, which refuses it: take it out."),
        (
            {"zero_optimization": {"stage": 1, "gradient_clipping": 1}},
            "'gradient_clipping' in 'zero_optimization' is not",
        ),
        (
            {"activation_checkpointing": {"partition_activations": True}},
            "'activation_checkpointing' only says how deep",
        ),
    ],
)
def test_what_has_no_effect_is_named(change, remark):
    (said,) = read(WHOLE | change, world_size=8).remarks
    assert said.startswith(remark)
    assert said.endswith(".")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "The configuration has no batch size: give"),
        ({"gradient_accumulation_steps": 2}, "The configuration has no batch size: give"),
        ({"train_batch_size": 7}, "train_batch_size=7 is not train_micro_batch_size_per_gpu=3 times"),
        ({"train_batch_size": 1}, "train_batch_size=1 is not train_micro_batch_size_per_gpu=0 times"),
        (
            sizes(16, 4, 4),
            "train_batch_size=16 is not train_micro_batch_size_per_gpu=4 times gradient_accumulation_steps=4",
        ),
        ({"train_batch_size": "auto"}, 'train_batch_size="auto" is filled in by Hugging Face'),
        ({"train_batch_size": 0}, "train_batch_size=0 is not possible: give a whole number from 1 on."),
        (
            {"train_batch_size": 4, "zero_optimization": {"stage": 4}},
            "stage=4 is not possible: give a whole number from 0 t",
        ),
        ({"train_batch_size": 4, "zero_optimization": 2}, "zero_optimization=2 is no section: give an object"),
        (
            {"train_batch_size": 4, "zero_optimization": {"offload_param": {"device": "gpu"}}},
            "offload_param to 'gpu' is not possible: give 'none', 'cpu' or 'nvme'.",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(content, said):
    with pytest.raises(BadValue) as caught:
        read(content, world_size=2)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "is no JSON"), ("[]", "is one JSON object"), ('{"bf16": {}, "bf16": {}}', "'bf16' stands twice")],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path, text, said):
    file = tmp_path / "zero.json"
    file.write_text(text)
    with pytest.raises(BadValue, match=said):
        read(file, world_size=2)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadValue, match="cannot be read"):
        read(tmp_path / "absent.json", world_size=2)
