import copy

import pytest
import torch
from torch import nn

from memlab import measure, predict
from memlab.errors import BadValue
from memlab.nets import MLP
from memlab.techniques.stochastic_rounding import StochasticAdamW, copy_stochastic_, round_stochastic

ALL_BITS = torch.tensor([0x7FFFFFFF, -1], dtype=torch.int32).view(torch.float32)  # NaN, as CUDA makes it, and its minus


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(count: int = 10_000) -> torch.Tensor:
    return torch.randn(count, generator=seeded(1)) * 10 ** torch.linspace(-40, 38, count)


def test_what_bfloat16_can_hold_is_not_changed():
    held = torch.cat([numbers().bfloat16(), torch.tensor([0.0, -0.0, torch.inf, -torch.inf]).bfloat16()])
    rounded = round_stochastic(held.float(), generator=seeded())
    assert torch.equal(rounded.view(torch.int16), held.view(torch.int16))


def test_nan_stays_nan():
    x = torch.cat([ALL_BITS, torch.tensor([torch.nan, -torch.nan])]).repeat(100)
    assert round_stochastic(x, generator=seeded()).isnan().all()


def test_each_number_goes_to_one_of_its_two_neighbours():
    x = numbers()
    toward_zero = (x.view(torch.int32) & -(2**16)).view(torch.float32)
    away = (toward_zero.view(torch.int32) + 2**16).view(torch.float32)
    rounded = round_stochastic(x, generator=seeded()).float()
    assert ((rounded == toward_zero) | (rounded == away)).all()
    assert (rounded == toward_zero).any()
    assert (rounded == away).any()


@pytest.mark.parametrize("x", [1 + 2**-9, -1 - 2**-9, 1e-3, -0.3, 1 + 2**-12, 1e-39])
def test_the_mean_of_many_roundings_is_the_number(x):
    source = torch.full((200_000,), x)
    rounded = round_stochastic(source, generator=seeded()).double()
    spread = rounded.std() / len(source) ** 0.5
    assert abs(rounded.mean() - source[0].double()) < 5 * spread


def test_beyond_the_largest_it_may_become_infinite():
    largest = torch.full((1000,), torch.finfo(torch.float32).max)
    assert set(round_stochastic(largest, generator=seeded()).tolist()) <= {
        torch.finfo(torch.bfloat16).max,
        torch.inf,
    }


def test_the_same_seed_gives_the_same_bits():
    x = numbers()
    first, second, other = (round_stochastic(x, generator=seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_any_shape_and_any_strides():
    x = numbers(60).view(3, 4, 5).transpose(0, 2)
    assert torch.equal(round_stochastic(x, generator=seeded()), round_stochastic(x.contiguous(), generator=seeded()))
    assert round_stochastic(torch.tensor(1.001)).shape == ()
    assert round_stochastic(torch.empty(0, 3)).shape == (0, 3)


def test_a_copy_is_in_place_also_into_a_weight():
    weight = nn.Parameter(torch.zeros(100, dtype=torch.bfloat16))
    source = numbers(100)
    assert copy_stochastic_(weight, source, generator=seeded()) is weight
    assert torch.equal(weight, round_stochastic(source, generator=seeded()))


@pytest.mark.parametrize(
    ("target", "source", "message"),
    [
        (
            torch.zeros(2),
            torch.zeros(2),
            "float32 needs no rounding .* give a bfloat16 target, or use copy_",
        ),
        (torch.zeros(2).bfloat16(), torch.zeros(2).half(), "float16 cannot be rounded .* give a float32 tensor"),
        (torch.zeros(2).bfloat16(), torch.zeros(1), r"\(1,\) does not fit \(2,\): give two tensors of one shape"),
    ],
)
def test_what_cannot_be_copied_is_refused(target, source, message):
    with pytest.raises(BadValue, match=message):
        copy_stochastic_(target, source)


def gradients(steps: int) -> list[torch.Tensor]:
    return list(torch.randn(steps, 4000, generator=seeded(2)))


def stepped(optimizer_class, dtype: torch.dtype, *, steps: int = 50, **settings) -> tuple[nn.Parameter, dict]:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.linspace(0.5, 1, 4000).to(dtype))
    optimizer = optimizer_class([weight], **settings)
    for gradient in gradients(steps):
        weight.grad = gradient.to(dtype)
        optimizer.step()
    return weight, optimizer.state[weight]


def test_in_float32_it_is_adamw():
    ours, our_state = stepped(StochasticAdamW, torch.float32, lr=1e-2, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1)
    theirs, state = stepped(torch.optim.AdamW, torch.float32, lr=1e-2, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    for name in ("exp_avg", "exp_avg_sq"):
        torch.testing.assert_close(our_state[name], state[name], rtol=1e-5, atol=1e-6)


def test_small_updates_arrive_where_adamw_in_bfloat16_loses_them():
    lengths = {}
    exact = stepped(torch.optim.AdamW, torch.float32, lr=1e-4)[0] - torch.linspace(0.5, 1, 4000)
    for kind in (torch.optim.AdamW, StochasticAdamW):
        way = stepped(kind, torch.bfloat16, lr=1e-4)[0].float() - torch.linspace(0.5, 1, 4000).bfloat16().float()
        lengths[kind] = ((way @ exact) / (exact @ exact)).item()
    assert lengths[torch.optim.AdamW] < 0.1
    assert lengths[StochasticAdamW] == pytest.approx(1, abs=0.1)


def test_the_mean_of_squares_decays_where_adamws_does_not():
    left = {}
    for kind in (torch.optim.AdamW, StochasticAdamW):
        torch.manual_seed(0)
        weight = nn.Parameter(torch.ones(1000, dtype=torch.bfloat16))
        optimizer = kind([weight])
        for step in range(300):
            weight.grad = torch.full_like(weight, float(step == 0))
            optimizer.step()
        left[kind] = optimizer.state[weight]["exp_avg_sq"].float().mean().item()
    assert left[torch.optim.AdamW] == pytest.approx(0.001, rel=0.01)
    assert left[StochasticAdamW] == pytest.approx(0.001 * 0.999**299, rel=0.02)


def test_all_that_stays_is_bfloat16_and_a_parameter_without_gradient_is_left_alone():
    weight, state = stepped(StochasticAdamW, torch.bfloat16, steps=2)
    assert weight.dtype == state["exp_avg"].dtype == state["exp_avg_sq"].dtype == torch.bfloat16
    alone = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    StochasticAdamW([alone]).step()
    assert torch.equal(alone, torch.ones(3, dtype=torch.bfloat16))


def test_groups_a_scheduler_and_a_saved_state():
    weights = [nn.Parameter(torch.ones(100, dtype=torch.bfloat16)) for _ in range(2)]
    optimizer = StochasticAdamW([{"params": weights[:1]}, {"params": weights[1:], "lr": 0.0, "weight_decay": 0.0}])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)

    def step(optimizer, weights):
        torch.manual_seed(0)
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        optimizer.step()

    step(optimizer, weights)
    scheduler.step()
    assert not torch.equal(weights[0], weights[1])
    assert torch.equal(weights[1], torch.ones_like(weights[1]))
    again = copy.deepcopy(weights)
    other = StochasticAdamW([{"params": again[:1]}, {"params": again[1:]}])
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert other.state[again[0]]["exp_avg"].dtype == torch.bfloat16
    assert other.param_groups[0]["lr"] == pytest.approx(1e-4)
    step(optimizer, weights)
    step(other, again)
    assert torch.equal(weights[0], again[0])


def test_other_types_are_refused():
    with pytest.raises(BadValue, match="float16 is not trained here: give parameters in bfloat16 or float32"):
        StochasticAdamW([nn.Parameter(torch.ones(2, dtype=torch.float16))])


def train(device, *, dtype=torch.bfloat16, kind=StochasticAdamW):
    model = MLP(3, 1024).to(device, dtype)
    optimizer = kind(model.parameters())
    x = torch.ones(4, 1024, device=device, dtype=dtype)
    while True:
        loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def test_residents_are_half_measured_and_predicted():
    parameters = 3 * (1024**2 + 1024)
    for run in (measure(train), predict(train)):
        most = {category: max(counts) for category, counts in run.timeline.items()}
        assert most["parameter"] == most["gradient"] == 2 * parameters
        assert most["optimizer state"] == 4 * parameters
        # A few float32 copies of one weight at a time, not of all.
        assert most["temporary"] < 8 * 4 * 1024**2
