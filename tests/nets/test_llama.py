"""The Llama: its weights, its rotation, its attention, against the published model where transformers is installed."""

import pytest
import torch

from memlab.nets import Llama
from memlab.nets.llama import rotate

SHAPE = {"depth": 2, "width": 32, "heads": 4, "kv_heads": 2, "hidden": 48}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Llama(**SHAPE)


@pytest.fixture
def tokens():
    return torch.randint(256, (3, 10), generator=torch.Generator().manual_seed(1))


def logits(model, tokens):
    return model.head(model.features(tokens))


def test_it_is_the_model_of_transformers(model, tokens):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
        rope_theta=500_000.0,
        tie_word_embeddings=True,
    )
    theirs = transformers.LlamaForCausalLM(config)
    names = {
        "token_embedding": "model.embed_tokens",
        "head": "lm_head",
        "norm.": "model.norm.",
        "blocks.": "model.layers.",
        "attention_norm": "input_layernorm",
        "mlp_norm": "post_attention_layernorm",
        "attention.query": "self_attn.q_proj",
        "attention.key": "self_attn.k_proj",
        "attention.value": "self_attn.v_proj",
        "attention.out": "self_attn.o_proj",
        "mlp.gate": "mlp.gate_proj",
        "mlp.up": "mlp.up_proj",
        "mlp.down": "mlp.down_proj",
    }
    renamed = {}
    for name, weight in model.state_dict().items():
        for ours, other in names.items():
            name = name.replace(ours, other) if ours != "norm." or name.startswith("norm.") else name
        renamed[name] = weight
    theirs.load_state_dict(renamed)
    torch.testing.assert_close(logits(model, tokens), theirs(tokens).logits)


def test_a_token_sees_the_past_alone(model, tokens):
    changed = tokens.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 256
    before, after = logits(model, tokens), logits(model, changed)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])


def test_a_rotation_keeps_lengths_and_only_the_distance_of_two_positions_counts():
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 1, 1, 8, generator=generator)
    queries, keys = (rotate(one.expand(1, 1, 12, 8), 100.0)[0, 0] for one in (query, key))
    torch.testing.assert_close(queries.norm(dim=-1), query.norm().expand(12))
    products = queries @ keys.T
    for distance in range(12):
        along = products.diagonal(distance)
        torch.testing.assert_close(along, along[:1].expand_as(along))
    assert products[0].std() > 0.1  # and it does count


def test_an_untied_head_has_a_weight_of_its_own():
    assert Llama(**SHAPE).head.weight is not Llama(**SHAPE, tied=False).token_embedding.weight
    tied, untied = (sum(p.numel() for p in Llama(**SHAPE, tied=tied).parameters()) for tied in (True, False))
    assert untied - tied == 256 * 32


def test_checkpointing_changes_no_gradient(tokens):
    gradients = []
    for every in (0, 1):
        torch.manual_seed(0)
        model = Llama(**SHAPE, checkpoint_every=every)
        model(tokens, tokens).backward()
        gradients.append([p.grad for p in model.parameters()])
    assert all(map(torch.equal, *gradients))


def test_it_learns(model, tokens):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        loss = model(tokens, tokens.roll(-1, 1))
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < 0.2 * losses[0]
