import pytest

from memlab.errors import BadValue
from memlab.finetuning import MODELS, count_weights, find_model

# Parameters of the checkpoints on Hugging Face, as their pages and papers have them.
WEIGHTS = {
    "SmolLM2-135M": 134_515_008,
    "SmolLM2-360M": 361_821_120,
    "Qwen2.5-0.5B": 494_032_768,
    "TinyLlama-1.1B": 1_100_048_384,
    "Llama-3.2-1B": 1_235_814_400,
    "Qwen2.5-1.5B": 1_543_714_304,
    "SmolLM2-1.7B": 1_711_376_384,
    "Qwen2.5-3B": 3_085_938_688,
    "Llama-3.2-3B": 3_212_749_824,
    "Llama-2-7B": 6_738_415_616,
    "Mistral-7B-v0.3": 7_248_023_552,
    "Qwen2.5-7B": 7_615_616_512,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-2-13B": 13_015_864_320,
    "Qwen2.5-14B": 14_770_033_664,
    "Qwen2.5-32B": 32_763_876_352,
    "Llama-3.1-70B": 70_553_706_496,
}


def test_each_name_has_the_published_number_of_weights():
    assert {name: count_weights(name) for name in MODELS} == WEIGHTS


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "llama-3.1-8b", "meta-llama/Llama-3.1-8B", "Llama-3.1-8B-Instruct"])
def test_a_name_may_be_written_as_on_the_hub(name):
    assert find_model(name) == "Llama-3.1-8B"


def test_an_unknown_name_is_told_what_is_like_it():
    with pytest.raises(BadValue, match=r"'Lama-3.1-8B' is neither .* The closest: Llama-3.1-8B, .*All: SmolLM2-135M"):
        find_model("Lama-3.1-8B")
