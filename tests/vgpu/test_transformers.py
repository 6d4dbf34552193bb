"""Others' models, unmodified: GPT-2, Llama and BERT from the transformers library, with random weights."""

import resource

import pytest
import torch
from torch._subclasses import FakeTensorMode

from memlab import predict
from tests.vgpu.test_repeats import PLAYED, accumulating, predicted, told

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install memlab[models]")

LLAMA = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
}
EIGHT_BILLION = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
MODELS = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config()),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)),
    "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig()),
}


def train(device, *, model="gpt2", batch_size=4, tokens=512):
    model = MODELS[model]().to(device)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        ids = torch.randint(0, 1000, (batch_size, tokens)).to(device)
        with torch.autocast(device.type, torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def train_eight_billion(device):
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**EIGHT_BILLION)).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    while True:
        ids = torch.randint(0, 1000, (1, 1024)).to(device)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


@pytest.mark.filterwarnings("default")  # a library's own
@pytest.mark.parametrize("model", MODELS)
def test_two_steps_of_adamw_under_autocast(model):
    trace = predict(train, gpu="A100-40GB", steps=2, model=model)
    assert trace.oom is None
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in MODELS[model]().parameters())
    assert trace.by_category["parameter"] == 4 * parameters
    assert trace.by_category["optimizer state"] == 8 * parameters
    flash = {event.op for event in trace.events if "attention" in event.op}
    assert any("flash" in operator for operator in flash), flash


@pytest.mark.filterwarnings("default")
def test_eight_billion_parameters_take_no_memory_here():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trace = predict(train_eight_billion, gpu="B200", steps=2)
    assert trace.by_category["parameter"] > 8e9 * 2
    assert trace.by_category["optimizer state"] == pytest.approx(2 * trace.by_category["parameter"], rel=0.01)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 * 2**20  # KiB: 2 GiB


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("where", ["auto", {"": 0}])
def test_a_library_loads_weights_onto_the_card(where, tmp_path):
    pytest.importorskip("accelerate")
    config = transformers.GPT2Config(n_embd=64, n_layer=2, n_head=2, vocab_size=100, n_positions=32)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)

    def train(device):
        model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, device_map=where)
        assert {parameter.device for parameter in model.parameters()} == {device}
        yield model(torch.zeros(1, 8, dtype=torch.long, device=device)).logits.sum()

    assert predict(train, steps=1).by_category["parameter"] > 0


def test_masks_are_those_of_code_that_nobody_traces():
    """Without a cache the library looks whether sequences are packed, and takes for yes what it cannot read."""

    def train(device):
        small = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4}
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**small, vocab_size=256)).to(device)
        while True:
            ids = torch.randint(0, 256, (2, 32)).to(device)
            with torch.autocast(device.type, torch.bfloat16):
                model(input_ids=ids, use_cache=False)
            yield

    attention = {event.op for event in predict(train, gpu="A100-40GB").events if "attention" in event.op}
    assert attention == {"aten._scaled_dot_product_flash_attention"}
    ids = torch.zeros(1, 1)
    assert transformers.utils.import_utils.is_fake_tensor(FakeTensorMode().from_tensor(ids))


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("model", [transformers.GPT2LMHeadModel, transformers.LlamaForCausalLM])
def test_micro_batches_are_played(model, monkeypatch):
    """Although these models ask whether a mask is all ones and whether texts are packed, and give a cache."""

    def make():
        sizes = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "vocab_size": 1000}
        return model(model.config_class(**sizes))

    def loss_of(net, device, number):
        ids = torch.randint(0, 1000, (4, 64)).to(device)
        return net(input_ids=ids, labels=ids, attention_mask=torch.ones_like(ids), use_cache=True).loss

    ours, theirs, count = predicted(accumulating(make, loss_of), monkeypatch)
    assert told(ours) == told(theirs)
    assert count == PLAYED
