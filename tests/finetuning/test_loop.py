from itertools import islice

import pytest
import torch

from memlab import predict
from memlab.categories import Category
from memlab.errors import BadValue
from memlab.finetuning import METHODS, OPTIMIZERS, loop, make_model, train
from memlab.nets import Llama
from memlab.techniques.chunked_loss import chunked_cross_entropy

TINY = {"depth": 2, "width": 64, "heads": 4, "kv_heads": 2, "hidden": 128, "vocabulary": 300, "tied": False}
WEIGHTS = sum(weight.numel() for weight in Llama(**TINY).parameters())
SMALL = {"sizes": TINY, "context": 64, "rank": 4}
CPU = torch.device("cpu")


def losses(**settings):
    torch.manual_seed(0)
    return [loss.item() for loss in islice(train(CPU, **SMALL | settings), 3)]


@pytest.mark.parametrize("method", METHODS)
def test_memory_switches_do_not_change_the_losses(method):
    plain = losses(method=method, checkpointing=False, chunked_loss=False)
    for switch in ("checkpointing", "chunked_loss"):
        others = {"checkpointing": False, "chunked_loss": False} | {switch: True}
        assert losses(method=method, batch_size=1, **others) == pytest.approx(plain, rel=1e-2)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("method", METHODS)
def test_each_optimizer_trains_with_each_method(method, optimizer):
    assert all(0 < loss < 10 for loss in losses(method=method, optimizer=optimizer))


def test_the_loss_falls():
    torch.manual_seed(0)
    steps = [loss.item() for loss in islice(train(CPU, sizes=TINY, context=64, batch_size=4, method="full"), 60)]
    assert sum(steps[-10:]) < 0.97 * sum(steps[:10])


def test_what_each_method_stores():
    weights = {name: predict(train, gpu="A100-40GB", steps=2, method=name, **SMALL).timeline for name in METHODS}
    full, lora, qlora = (weights[name] for name in METHODS)
    assert max(full[Category.PARAMETER]) == 2 * WEIGHTS
    blocks = 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 128)
    adapters = 2 * 4 * 4 * (2 * (64 + 64) + 2 * (64 + 32) + 3 * (64 + 128))
    assert max(lora[Category.PARAMETER]) == 2 * WEIGHTS + adapters
    assert max(lora[Category.OPTIMIZER_STATE]) >= 2 * adapters
    packed = blocks // 2 + 2 * blocks // 64 + 14 * 2 * 512  # scales in 16 bits; a table of pairs each
    assert max(qlora[Category.BUFFER]) == pytest.approx(packed, rel=0.05)


@pytest.mark.parametrize(
    ("card", "method", "dtype"),
    [
        ("T4", "QLoRA", torch.float16),
        ("T4", "full", torch.bfloat16),  # its range is float32's: float16 weights would need a copy in float32
        ("A100-40GB", "QLoRA", torch.bfloat16),
    ],
)
def test_a_card_without_bfloat16_trains_adapters_in_float16(card, method, dtype, monkeypatch):
    seen = []

    def noted(features, *rest, **options):
        seen.append(features.dtype)
        return chunked_cross_entropy(features, *rest, **options)

    monkeypatch.setattr(loop, "chunked_cross_entropy", noted)
    predict(train, gpu=card, steps=1, method=method, **SMALL)
    assert seen == [dtype]


@pytest.mark.parametrize(("setting", "value"), [("method", "lora"), ("optimizer", "Adam"), ("adapters", "mlp")])
def test_unknown_words_are_refused(setting, value):
    with pytest.raises(BadValue, match=f"{setting}='{value}' is not known: give one of "):
        next(train(CPU, **SMALL | {setting: value}))


@pytest.mark.parametrize(("device", "places"), [("cpu", 2), ("cuda", 1)])
def test_a_model_that_leaves_the_host_holds_one_block_there(device, places):
    model = make_model(TINY, checkpointing=False, dtype=torch.bfloat16, device=torch.device(device))
    weights = [block.mlp.up.weight for block in model.blocks]
    assert len({id(weight) for weight in weights}) == 2
    assert len({weight.data_ptr() for weight in weights}) == places
    assert model.token_embedding.weight.dtype == torch.bfloat16


def test_blocks_that_shared_their_numbers_have_their_own_where_they_go():
    model = make_model(TINY, checkpointing=False, dtype=torch.float32, device=torch.device("meta"))
    moved = [block.to(torch.float64).mlp.up.weight for block in model.blocks]
    assert torch.equal(*moved)
    assert moved[0].data_ptr() != moved[1].data_ptr()
