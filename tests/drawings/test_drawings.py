"""Drawings take their numbers from a run: what belongs to which layer, what a block keeps, and when."""

import re

import pytest
import torch

from memlab import drawings, predict
from memlab.alive import alive
from memlab.data import batches
from memlab.drawings.adapter import matrices_of
from memlab.drawings.bits import bytes_of
from memlab.drawings.block import kept_by
from memlab.drawings.lives import held_by_blocks
from memlab.drawings.operations import written_by
from memlab.drawings.owners import LAYER
from memlab.drawings.parts import parts_of
from memlab.drawings.per_weight import bytes_per_weight
from memlab.drawings.scores import kept_by_layer
from memlab.drawings.waiting import on_card
from memlab.nets import GPT
from memlab.techniques.lora import add_lora
from memlab.techniques.nf4 import pack
from memlab.trace import Category
from tests.drawings.loop import SIZES, train


@pytest.fixture(scope="module")
def plain():
    return predict(train)


@pytest.fixture(scope="module")
def checkpointed():
    return predict(train, checkpoint_every=1)


def test_what_is_alive_adds_up_to_what_is_allocated(plain):
    for moment in (0, plain.peak_index, len(plain.events)):
        known = sum(one.bytes for one in alive(plain, moment) if one.storage.category != Category.WORKSPACE)
        workspace = plain.timeline[Category.WORKSPACE][moment]
        assert known + workspace == plain.allocated[moment]


def test_the_parts_have_all_that_belongs_to_layers(plain):
    held = parts_of(plain)
    assert list(held) == ["token_embedding", "position_embedding", "blocks.0", "blocks.1", "blocks.2", "norm", "loss"]
    left_out = sum(plain.by_category.get(category, 0) for category in (Category.INPUT, Category.WORKSPACE))
    assert sum(sum(part.values()) for part in held.values()) == plain.peak_allocated - left_out
    logits = 4 * 64 * 4096 * 4  # batch, tokens, vocabulary, bytes of a number
    assert held["loss"][Category.TEMPORARY] == pytest.approx(2 * logits, rel=0.01)


def test_a_block_keeps_sixteen_times_its_output(plain):
    kept = kept_by(plain, "blocks.1")
    unit = 4 * 64 * 64 * 4
    assert [one.bytes // unit for one in kept] == [1, 3, 1, 1, 1, 4, 4, 1]
    picture = drawings.block(plain, "blocks.1")
    assert picture.sentence == "A block keeps 16 times the size of its output (4 \u00d7 64 \u00d7 64) for backward"
    (axes,) = picture.axes
    assert {text.get_text() for text in axes.texts} >= {"attention: 6 of 16", "mlp: 10 of 16"}


def test_a_tensor_in_16_bits_is_half_a_unit():
    def train(device):
        model = GPT(depth=2, width=64, heads=4, context=64).to(device)
        while True:
            tokens = torch.zeros(4, 64, dtype=torch.int64, device=device)
            with torch.autocast(device.type, torch.float16):
                loss = model(tokens, tokens)
            loss.backward()
            yield loss

    sentence = drawings.block(predict(train, gpu="T4", steps=2), "blocks.1").sentence
    assert re.match(r"A block keeps \d+\.5 times ", sentence)


def test_plain_blocks_hold_all_until_backward_and_checkpointed_ones_their_output(plain, checkpointed):
    unit = 4 * 64 * 64 * 4
    stairs, hills = held_by_blocks(plain), held_by_blocks(checkpointed)
    assert list(stairs) == list(hills) == ["blocks.0", "blocks.1", "blocks.2"]
    assert max(stairs["blocks.1"][Category.ACTIVATION]) >= 16 * unit
    assert Category.RECOMPUTED not in stairs["blocks.1"]
    assert max(hills["blocks.1"][Category.ACTIVATION]) == unit
    assert max(hills["blocks.1"][Category.RECOMPUTED]) > 10 * unit
    assert all(row[-1] == 0 for of_block in hills.values() for row in of_block.values())


def test_the_largest_part_is_named(plain):
    assert drawings.parts(plain).sentence.startswith("The loss holds")
    assert drawings.parts(plain, title="mine").sentence == "mine"


def test_lives_have_one_scale(plain, checkpointed):
    picture = drawings.lives({"plain": plain, "checkpointed": checkpointed}, title="stairs and hills")
    one, other = picture.axes
    assert one.get_xlim() == other.get_xlim()
    assert one.get_ylim() == other.get_ylim()
    assert picture.png().startswith(b"\x89PNG")


def test_a_phase_too_short_for_its_name_has_none(plain):
    def in_sixteen(device):
        model = GPT(**SIZES).to(device)
        for tokens, targets in batches(16, SIZES["context"]):
            for x, y in zip(tokens.split(1), targets.split(1), strict=True):
                loss = model(x.to(device), y.to(device))
                loss.backward()
            yield loss

    names = [
        {text.get_text() for text in drawings.lives({"mine": trace}, title="mine").axes[0].texts}
        for trace in (predict(in_sixteen), plain)
    ]
    assert not {"forward", "backward"} & names[0]
    assert {"forward", "backward"} < names[1]


def test_what_float16_loses_is_counted_as_it_rounds():
    numbers = torch.tensor([0.0, 2.0**-26, -(2.0**-26), 2.0**-24, 1.0, 60000.0])
    picture = drawings.formats({"numbers": numbers, "scaled": 8 * numbers})
    assert picture.sentence == "40% of the numbers are too small for float16"  # the 0 is not lost
    labels = [text.get_text() for text in picture.axes[0].get_legend().get_texts()]
    assert labels == ["numbers: 40.0% lost in float16", "scaled: 0.0% lost in float16"]
    assert picture.png().startswith(b"\x89PNG")


def test_what_the_host_holds_is_on_the_left_in_the_colours_of_the_card(plain):
    on_host = {"nothing": {}, "activations": {Category.ACTIVATION: 3 << 20}}
    (axes,) = drawings.host(dict.fromkeys(on_host, plain), on_host, title="moved").axes
    lengths = [
        sum(bar.get_width() for bar in axes.patches if round(bar.get_y() + bar.get_height() / 2) == row)
        for row in (0, 1)
    ]
    assert lengths == [plain.peak_allocated, plain.peak_allocated - (3 << 20)]
    left = [bar for bar in axes.patches if bar.get_width() < 0]
    assert {bar.get_facecolor() for bar in left} <= {bar.get_facecolor() for bar in axes.patches if bar.get_width() > 0}
    names = axes.get_legend_handles_labels()[1]
    assert len(names) == len(set(names))
    assert {"nothing", "3.00 MiB"} <= {text.get_text() for text in axes.texts}


@pytest.mark.parametrize(("name", "state"), [("AdamW", 8), ("SGD", 0)])
def test_what_an_optimizer_keeps_is_counted_for_each_weight(name, state):
    def with_optimizer(device):
        model = GPT(**SIZES).to(device)
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=1e-3, fused=True)
        for tokens, targets in batches(1, SIZES["context"]):
            model(tokens.to(device), targets.to(device)).backward()
            optimizer.step()
            optimizer.zero_grad()
            yield torch.zeros(())

    weights = sum(weight.numel() for weight in GPT(**SIZES).parameters())
    trace = predict(with_optimizer)
    kept = bytes_per_weight(trace, weights)
    found = [kept[kind] for kind in (Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE)]
    assert found == pytest.approx([4, 4, state], abs=0.05)  # each tensor is rounded up to 512 bytes
    picture = drawings.per_weight({name: trace}, weights=weights, title="mine")
    (axes,) = picture.axes
    assert (f"{state}.00 of state" if state else "no state") in {text.get_text() for text in axes.texts}
    assert picture.png().startswith(b"\x89PNG")


def test_an_adapter_has_gradient_and_state_and_its_matrix_has_none():
    def with_lora(device):
        model = GPT(**SIZES).to(device)
        add_lora(model, ["qkv"], rank=4)
        optimizer = torch.optim.AdamW((weight for weight in model.parameters() if weight.requires_grad), lr=1e-3)
        for tokens, targets in batches(1, SIZES["context"]):
            loss = model(tokens.to(device), targets.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss

    trace = predict(with_lora)
    (frozen, of_frozen), (b, of_b), (a, of_a) = matrices_of(trace, "blocks.1.attention.qkv")
    assert [one.shape for one in (frozen, b, a)] == [(192, 64), (192, 4), (4, 64)]
    assert of_frozen == {Category.PARAMETER: 192 * 64 * 4}
    for matrix, taken in ((b, of_b), (a, of_a)):
        bytes_of = matrix.shape[0] * matrix.shape[1] * 4
        assert taken == {
            Category.PARAMETER: bytes_of,
            Category.GRADIENT: bytes_of,
            Category.OPTIMIZER_STATE: 2 * bytes_of,
        }
    assert drawings.adapter(trace, "blocks.1.attention.qkv", title="mine").png().startswith(b"\x89PNG")


def test_blocks_that_keep_nothing_have_their_row_too():
    def half_frozen(device):
        model = GPT(**SIZES).to(device)
        model.token_embedding.requires_grad_(False)
        model.position_embedding.requires_grad_(False)
        model.blocks[:2].requires_grad_(False)
        for tokens, targets in batches(1, SIZES["context"]):
            loss = model(tokens.to(device), targets.to(device))
            loss.backward()
            yield loss

    trace = predict(half_frozen)
    assert "blocks.0" not in held_by_blocks(trace)
    (axes, _) = drawings.lives({"half frozen": trace, "plain": predict(train)}, title="mine").axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1", "2"]


def test_batches_that_wait_are_counted_on_the_card():
    def ahead(device):
        layer = torch.nn.Linear(64, 1, device=device)
        waits = [torch.zeros(1000, 64).to(device) for _ in range(3)]
        while True:
            loss = layer(waits[0]).mean()
            loss.backward()
            yield loss

    trace = predict(ahead)
    assert on_card(trace, 1000 * 64 * 4) == 3
    picture = drawings.waiting({"two ahead": (4, trace)}, batch=1000 * 64 * 4, title="mine")
    assert len(picture.axes[0].patches) == 3 + 4
    assert picture.png().startswith(b"\x89PNG")


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # which torch.distributed.optim still has
def test_four_cards_hold_copies_or_pieces():
    from notebooks.ranks import sharded

    ranks = {name: [of_rank(sharded.train, name, rank) for rank in range(4)] for name in ("ddp", "zero-1", "zero-3")}
    picture = drawings.shards(ranks, title="cut")
    (axes,) = picture.axes
    tops = sorted({round(bar.get_x() + bar.get_width() / 2) for bar in axes.patches})
    assert tops == [0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13]
    whole, cut = ranks["ddp"][0].start["parameter"], ranks["zero-3"][0].start["parameter"]
    assert cut == pytest.approx(whole / 4, rel=0.01)
    written = [text.get_text() for text in axes.texts]
    assert sum(text.endswith(" each") for text in written) >= 1  # of DDP; the pieces of ZeRO-1 are not equal
    assert {"ddp", "zero-1", "zero-3"} <= set(written)


def of_rank(loop, strategy, rank):
    return predict(loop, world_size=4, global_rank=rank, strategy=strategy, steps=2)


def test_a_fused_attention_keeps_no_table_of_scores():
    def by_formula(query, key, value):
        return (query @ key.mT).softmax(-1) @ value

    def with_mix(device, *, context, mix=None):
        model = GPT(**SIZES | {"context": context}).to(device)
        for block in model.blocks:
            block.attention.mix = mix or block.attention.mix
        for tokens, targets in batches(1, context):
            loss = model(tokens.to(device), targets.to(device))
            loss.backward()
            yield loss

    pairs = {n: (predict(with_mix, context=n, mix=by_formula), predict(with_mix, context=n)) for n in (256, 512)}
    table = 2 * 512 * 512 * 4  # heads, tokens, tokens, bytes of a number
    units = 512 * 64 * 4  # what goes in or out
    with_table, without = (kept_by_layer(trace, "blocks.1.attention") for trace in pairs[512])
    assert table < with_table < table + 8 * units
    assert 4 * units <= without < 5 * units
    picture = drawings.scores(pairs, "blocks.1.attention", title="never made")
    assert len(picture.axes[0].patches) == 4
    assert picture.png().startswith(b"\x89PNG")


def by_formula(x):
    return 0.5 * x * (1 + torch.tanh(x))


@pytest.mark.filterwarnings("ignore")
def test_what_an_operation_writes_and_what_is_kept_of_it():
    x = torch.randn(64, 64)
    whole = torch.nn.functional.gelu
    compiled = torch.compile(by_formula, backend="aot_eager_decomp_partition")
    formula, fused, planned = (written_by(function, x) for function in (by_formula, whole, compiled))
    assert formula.names == ("x", "mul", "tanh", "add", "mul")
    assert formula.kept == {1, 2, 3}
    assert (fused.names, fused.kept) == (("x", "gelu"), {0})
    assert planned.kept == {0}
    assert set(planned.names[1:]) == {"kernel"}
    picture = drawings.operations({"formula": by_formula, "fused": whole}, x, title="less")
    assert len(picture.axes[0].patches) == 5 + 2
    assert picture.png().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "layer", "number"),
    [
        ("blocks.3.mlp.0", "blocks.3", ".3"),
        ("transformer.h.3.mlp.c_fc.weight", "transformer.h.3", ".3"),
        ("head", "head", None),
        ("token_embedding.weight", "token_embedding", None),
    ],
)
def test_a_numbered_layer_may_lie_deep_in_the_model_of_a_library(name, layer, number):
    found = LAYER.match(name)
    assert (found[0], found[1]) == (layer, number)


def test_stored_bits_count_what_lies_beside_the_weights():
    weight = torch.randn(64, 64)
    packed, scales = pack(weight)
    assert bytes_of({"weights": packed, "scales": scales}, weight.numel()) == {"weights": 0.5, "scales": 4 / 64}
    picture = drawings.bits({"NF4": {"weights": packed, "scales": scales}}, weights=weight.numel(), title="mine")
    assert "4.5 bits" in next(text.get_text() for text in picture.axes[0].texts)
