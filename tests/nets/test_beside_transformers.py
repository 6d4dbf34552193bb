"""Models of the transformers library take the same bytes as ours in every category, or the difference has a reason."""

from collections import Counter
from functools import partial

import pytest
import torch

from memlab import predict
from memlab.nets import GPT, GPT2_SMALL, LLAMA_1B, RESNET_50, VIT_B_16, Llama, ResNet, ViT
from memlab.trace import Category

pytestmark = pytest.mark.slow

transformers = pytest.importorskip("transformers")

BATCH, TOKENS = 2, 512
WITHOUT_DROPOUT = {"embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0}
GPT2 = {"activation_function": "gelu", "use_cache": False} | WITHOUT_DROPOUT
LLAMA_3_2_1B = {
    "vocab_size": 128_256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
    "use_cache": False,
}


def gpt2(**options):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2 | options))


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA_3_2_1B))


def vit():
    return transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000))


def resnet():
    return transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000))


def text():
    tokens = torch.zeros(BATCH, TOKENS, dtype=torch.int64)
    return {"input_ids": tokens, "labels": tokens}


def images():
    return {"pixel_values": torch.zeros(BATCH, 3, 224, 224), "labels": torch.zeros(BATCH, dtype=torch.int64)}


def predicted(make_model, make_inputs):
    """A prediction for a loop as people write it, of either library's model."""

    def train(device):
        model = make_model().to(device).train()
        optimizer = torch.optim.AdamW(model.parameters())
        while True:
            inputs = {name: tensor.to(device) for name, tensor in make_inputs().items()}
            is_theirs = isinstance(model, transformers.PreTrainedModel)
            loss = model(**inputs).loss if is_theirs else model(*inputs.values())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss

    return predict(train, gpu="A100-40GB")


@pytest.mark.parametrize(
    ("ours", "theirs", "inputs", "more"),
    [
        pytest.param(partial(GPT, **GPT2_SMALL), gpt2, text, {}, id="GPT-2 small"),
        # Two tables of 32 frequencies in float32, which ours computes anew.
        pytest.param(partial(Llama, **LLAMA_1B), llama, text, {Category.BUFFER: 2 * 32 * 4}, id="Llama 1B"),
        pytest.param(partial(ViT, **VIT_B_16), vit, images, {}, id="ViT-B/16"),
        pytest.param(partial(ResNet, **RESNET_50), resnet, images, {}, id="ResNet-50"),
    ],
)
def test_both_take_the_same_bytes(ours, theirs, inputs, more):
    def bytes_of(make_model):
        # What libraries of kernels hold at the peak depends on the order of calls, too.
        return Counter(predicted(make_model, inputs).by_category | {Category.WORKSPACE: 0})

    assert bytes_of(theirs) == bytes_of(ours) + Counter(more)


HIDDEN = BATCH * TOKENS * GPT2_SMALL["width"]  # numbers in the residual stream
DEPTH = GPT2_SMALL["depth"]


@pytest.mark.parametrize(
    ("options", "more"),
    [
        pytest.param({"use_cache": True}, DEPTH * 2 * HIDDEN * 4, id="keys and values for generation"),
        # GPT-2's own GELU in seven operations, which keep three tensors of four times the width more than one kernel.
        pytest.param({"activation_function": "gelu_new"}, DEPTH * 3 * 4 * HIDDEN * 4, id="GELU in Python"),
        # A byte for each number that passes through a dropout: two a block, one after the embedding.
        pytest.param({"resid_pdrop": 0.1, "embd_pdrop": 0.1}, (2 * DEPTH + 1) * HIDDEN, id="masks of dropout"),
    ],
)
def test_each_default_of_its_gpt2_costs_what_is_said(options, more):
    plain, other = (predicted(partial(gpt2, **settings), text) for settings in ({}, options))
    assert other.by_category[Category.ACTIVATION] - plain.by_category[Category.ACTIVATION] == more
