import pytest
import torch
from torch import nn

from memlab import predict
from memlab.errors import BadValue
from memlab.nets import ViT
from memlab.techniques.lora import LoRALinear, add_lora
from memlab.techniques.nf4 import NF4Linear


def linear(**options) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(6, 8, **{"dtype": torch.float64, **options})


def trained(**options) -> LoRALinear:
    """An adapter whose B is no longer zero."""
    layer = LoRALinear(linear(), **{"rank": 3, **options})
    nn.init.normal_(layer.B)
    return layer


def vit() -> ViT:
    torch.manual_seed(0)
    return ViT(depth=2, width=16, heads=2, image=8, patch=4)


X = torch.randn(2, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
IMAGES, LABELS = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(3)


def test_it_begins_as_its_base():
    assert torch.equal(LoRALinear(linear(), rank=3)(X), linear()(X))


def test_it_is_the_formula():
    layer = trained(alpha=5.0)
    weight = layer.base.weight + 5.0 / 3 * layer.B @ layer.A
    torch.testing.assert_close(layer(X), X @ weight.T + layer.base.bias)


def test_only_the_adapter_has_a_gradient_and_it_is_that_of_the_formula():
    layer = trained()
    layer(X).square().sum().backward()
    assert layer.base.weight.grad is layer.base.bias.grad is None
    A, B = (matrix.detach().clone().requires_grad_() for matrix in (layer.A, layer.B))
    (X @ (layer.base.weight + layer.scale * B @ A).T + layer.base.bias).square().sum().backward()
    torch.testing.assert_close((layer.A.grad, layer.B.grad), (A.grad, B.grad))


@pytest.mark.parametrize("bias", [True, False])
def test_merged_it_is_a_plain_linear_with_the_same_output(bias):
    layer = LoRALinear(linear(bias=bias), rank=6)
    nn.init.normal_(layer.B)
    before = layer.base.weight.clone()
    merged = layer.merge()
    assert type(merged) is nn.Linear
    torch.testing.assert_close(merged(X), layer(X))
    assert torch.equal(layer.base.weight, before)
    assert not any(parameter.requires_grad for parameter in merged.parameters())


def test_merging_draws_no_random_numbers():
    layer, before = trained(), torch.get_rng_state()
    layer.merge()
    assert torch.equal(torch.get_rng_state(), before)


def test_it_has_the_type_of_its_base():
    layer = LoRALinear(linear(dtype=torch.bfloat16), rank=2)
    assert layer.A.dtype == layer.B.dtype == layer.merge().weight.dtype == torch.bfloat16


def test_an_adapter_in_float32_beside_a_base_in_16_bits_computes_in_the_type_of_its_input():
    layer = LoRALinear(linear(dtype=torch.bfloat16), rank=2, dtype=torch.float32)
    nn.init.normal_(layer.B)
    out = layer(X.to(torch.bfloat16))
    assert (layer.A.dtype, out.dtype, layer.merge().weight.dtype) == (torch.float32, torch.bfloat16, torch.bfloat16)
    out.sum().backward()
    assert layer.A.grad.dtype == torch.float32


def test_a_packed_base_is_adapted_and_not_merged():
    base = NF4Linear(nn.Linear(64, 32))
    layer, x = LoRALinear(base, rank=2), torch.randn(3, 64)
    assert torch.equal(layer(x), base(x))
    assert [name for name, weight in layer.named_parameters() if weight.requires_grad] == ["A", "B"]
    with pytest.raises(BadValue, match="The weight of this layer is packed"):
        layer.merge()


@pytest.mark.parametrize("rank", [0, 7, 2.0])
def test_other_ranks_are_refused(rank):
    with pytest.raises(BadValue, match="not a rank of this layer: give a whole number from 1 to 6"):
        LoRALinear(linear(), rank=rank)


def test_other_layers_are_refused():
    with pytest.raises(BadValue, match=r"Conv2d cannot be adapted: give an nn\.Linear"):
        LoRALinear(nn.Conv2d(1, 1, 1), rank=1)


def test_the_chosen_layers_are_replaced_and_the_rest_is_frozen():
    model = vit()
    expected = model(IMAGES, LABELS)
    layers = add_lora(model, ["qkv", "mlp.2"], rank=2)
    first, second = model.blocks
    assert layers == [first.attention.qkv, first.mlp[2], second.attention.qkv, second.mlp[2]]
    assert type(first.mlp[0]) is nn.Linear
    adapters = {parameter for layer in layers for parameter in (layer.A, layer.B)}
    assert {parameter for parameter in model.parameters() if parameter.requires_grad} == adapters
    assert torch.equal(model(IMAGES, LABELS), expected)


def test_a_name_is_matched_by_whole_parts():
    model = nn.ModuleDict({"out": nn.Linear(4, 4), "layout": nn.Linear(4, 4)})
    assert add_lora(model, ["out"], rank=1) == [model["out"]]


@pytest.mark.parametrize(
    ("targets", "rank", "message"),
    [
        (["qkv", "query"], 2, "'query' ends the name of no Linear in this model: give some of qkv, out, 0, 2, head"),
        (["qkv", "out"], 17, "not a rank of this layer"),
        (["qkv", "head"], 12, "not a rank of this layer: give a whole number from 1 to 10"),
    ],
)
def test_what_cannot_be_adapted_is_refused_and_the_model_stays_as_it_was(targets, rank, message):
    model = vit()
    with pytest.raises(BadValue, match=message):
        add_lora(model, targets, rank=rank)
    assert not any(isinstance(module, LoRALinear) for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_predicted_gradients_and_state_are_those_of_the_adapters():
    adapted_layers = []

    def train(device, *, rank=0):
        model = ViT(depth=2, width=256, heads=2, image=8, patch=4).to(device)
        if rank:
            adapted_layers[:] = add_lora(model, ["qkv", "mlp.2"], rank=rank)
        optimizer = torch.optim.AdamW(model.parameters())
        while True:
            loss = model(IMAGES.to(device), LABELS.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss

    full, adapted = (predict(train, rank=rank) for rank in (0, 4))
    small = sum(layer.A.nbytes + layer.B.nbytes for layer in adapted_layers)
    assert max(adapted.timeline["gradient"]) == small
    assert max(adapted.timeline["optimizer state"]) == 2 * small
    assert max(adapted.timeline["parameter"]) == max(full.timeline["parameter"]) + small
