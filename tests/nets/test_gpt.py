import math

import pytest
import torch

from memlab.nets import GPT

DEPTH, WIDTH, HEADS, CONTEXT = 3, 32, 4, 16


@pytest.fixture
def model():
    torch.manual_seed(0)
    return GPT(depth=DEPTH, width=WIDTH, heads=HEADS, context=CONTEXT)


@pytest.fixture
def tokens():
    return torch.randint(256, (5, CONTEXT), generator=torch.Generator().manual_seed(1))


def logits(model, tokens):
    """Return the output of the head, which the model itself only shows as a loss: ``(batch, tokens, 256)``."""
    kept = []
    with model.head.register_forward_hook(lambda module, args, output: kept.append(output)):
        model(tokens, tokens)
    return kept[0]


def parameters(depth, width, context, vocabulary=256):
    """Embeddings of tokens (the head's too) and positions, 12 width^2 + 13 width a block, the last norm."""
    return (vocabulary + context) * width + depth * (12 * width**2 + 13 * width) + 2 * width


@pytest.mark.parametrize(("depth", "width", "heads", "context"), [(1, 8, 1, 4), (3, 32, 4, 16), (12, 48, 12, 100)])
def test_the_parameters_are_those_of_the_formula(depth, width, heads, context):
    model = GPT(depth=depth, width=width, heads=heads, context=context)
    assert sum(p.numel() for p in model.parameters()) == parameters(depth, width, context)


def test_the_defaults_are_as_wide_and_deep_as_gpt_2_small_on_bytes():
    with torch.device("meta"):
        model = GPT()
    assert sum(p.numel() for p in model.parameters()) == parameters(12, 768, 1024)


def test_the_loss_is_one_number_for_any_length_up_to_the_context(model, tokens):
    for length in (1, 7, CONTEXT):
        assert model(tokens[:, :length], tokens[:, :length]).shape == ()
    assert logits(model, tokens).shape == (5, CONTEXT, 256)


def test_the_loss_is_the_mean_over_all_tokens(model, tokens):
    targets = tokens.flip(0)
    chosen = logits(model, tokens).log_softmax(-1).gather(2, targets[..., None])
    torch.testing.assert_close(model(tokens, targets), -chosen.mean())


def test_the_head_and_the_embedding_are_one_tensor(model):
    assert model.head.weight is model.token_embedding.weight


def test_an_untrained_model_knows_next_to_nothing(model, tokens):
    loss = float(model(tokens, (tokens + 1) % 256).detach())
    assert loss == pytest.approx(math.log(256), abs=0.05)


def test_no_token_sees_a_later_one(model, tokens):
    changed = tokens.clone()
    changed[:, 9] = (changed[:, 9] + 1) % 256
    before, after = logits(model, tokens), logits(model, changed)
    torch.testing.assert_close(before[:, :9], after[:, :9])
    assert not (before[:, 9:] - after[:, 9:]).abs().amax((0, 2)).le(1e-4).any()


def test_every_parameter_gets_a_gradient(model, tokens):
    model(tokens, tokens.flip(0)).backward()
    assert all(p.grad.abs().sum() > 0 for p in model.parameters())


def test_attention_may_be_another_function(model, tokens):
    usual = logits(model, tokens)
    for block in model.blocks:
        block.attention.mix = lambda query, key, value: value
    changed = logits(model, tokens)
    torch.testing.assert_close(changed[:, 0], usual[:, 0])  # the first token has only itself to look at
    assert not torch.allclose(changed[:, 1:], usual[:, 1:])
