"""Numbers on the card: those that are known steer the loop as on a real card, others are guessed, and that is said."""

import math
import re
import signal

import pytest
import torch
from torch import nn

from memlab import measure, predict
from memlab.errors import Unpredictable
from memlab.lab.words import failure_sentence
from memlab.trace import Trace
from memlab.vgpu import values
from tests.vgpu.once import in_a_prediction, seen

DEVICES = ["cuda", "cpu"]


def both(work):
    """Return the result of ``work(device)`` in a prediction; it must be certain, and be what the CPU gives."""
    result, trace = in_a_prediction(work)
    assert trace.guesses == ()
    assert result == work(torch.device("cpu"))
    return result


# Known


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.tensor(7, device=d),
        lambda d: torch.tensor([1, 2, 3], device=d)[1],
        lambda d: torch.tensor([1, 2, 3]).to(d).sum(),
        lambda d: torch.arange(10, device=d)[-1],
        lambda d: torch.empty(3, dtype=torch.int64, device=d).fill_(4).sum(),
        lambda d: torch.empty(5000, dtype=torch.int32, device=d).copy_(torch.arange(5000, dtype=torch.int32))[-1],
        lambda d: torch.full((3,), 4, device=d).max(),
        lambda d: torch.zeros(3, dtype=torch.bool, device=d).any(),
        lambda d: torch.ones(3, dtype=torch.bool, device=d).all(),
        lambda d: torch.ones(3, dtype=torch.int32, device=d).sum(),
        lambda d: torch.tensor(2.5, device=d),
        lambda d: torch.tensor(2.5).to(d) * 3,
        lambda d: torch.tensor(2, device=d) / 4,
        lambda d: torch.tensor(3, device=d).float().sqrt(),
        lambda d: torch.full((), math.pi, device=d),
        lambda d: torch.tensor(5, device=d) > 4,
        lambda d: (torch.arange(12, device=d).view(3, 4) % 3 == 0).sum(),
        lambda d: torch.arange(6, device=d).view(2, 3).T.flatten()[1],
        lambda d: torch.ones(20, 20, dtype=torch.bool, device=d).tril().sum(),
        lambda d: torch.stack([torch.tensor(1, device=d), torch.tensor(5, device=d)]).argmax(),
        lambda d: torch.cat([torch.arange(3, device=d), torch.arange(4, device=d)]).max(),
        lambda d: torch.where(torch.tensor([True, False], device=d), 3, 4)[1],
        lambda d: torch.tensor(7, device=d).clone().detach().to(torch.int32),
        lambda d: torch.tensor([3, 1, 2], device=d).sort().values[0],
    ],
)
def test_what_is_made_from_known_numbers_is_known(make):
    both(lambda device: make(device).item())


def test_a_counter_counts():
    def work(device):
        count = torch.zeros((), dtype=torch.int64, device=device)
        for _ in range(5):
            count += 1
        return count.item(), int(count), bool(count == 5)

    assert both(work) == (5, 5, True)


def test_a_counter_counts_over_steps():
    counts = []

    def train(device):
        count = torch.zeros((), dtype=torch.int64, device=device)
        for _ in range(3):
            count.add_(1)
            counts.append(count.item())
            yield

    trace = predict(train)
    assert counts == [1, 2, 3]
    assert trace.guesses == ()


def test_a_loop_ends_by_its_counter():
    def work(device):
        count, turns = torch.tensor(0, device=device), 0
        while count < 10:
            count = count + 3
            turns += 1
        return turns

    assert both(work) == 4


def test_done_flags_end_a_loop():
    def work(device):
        done, turns = torch.zeros(4, dtype=torch.bool, device=device), 0
        while not done.all():
            done[turns] = True
            turns += 1
        return turns

    assert both(work) == 4


def test_writing_through_a_view_is_seen_by_all():
    def work(device):
        x = torch.zeros(6, dtype=torch.int64, device=device)
        row, matrix = x[2:4], x.view(2, 3)
        row.fill_(7)
        matrix[1, 2] = 9
        return x.tolist(), row.tolist(), matrix.tolist()

    assert both(work)[0] == [0, 0, 7, 7, 0, 9]


def test_a_copy_is_not_written_through():
    def work(device):
        x = torch.zeros(3, dtype=torch.int64, device=device)
        twin = x.clone()
        x += 1
        return x.tolist(), twin.tolist()

    assert both(work) == ([1, 1, 1], [0, 0, 0])


def test_numbers_that_are_copied_from_the_host_are_known():
    def work(device):
        x = torch.zeros(3, dtype=torch.int64, device=device)
        x.copy_(torch.tensor([1, 2, 3]))
        x[0] = torch.tensor(8)
        return x.tolist()

    assert both(work) == [8, 2, 3]


def test_a_host_tensor_that_changes_later_does_not_change_the_card():
    def work(device):
        host = torch.tensor([1, 2])
        card = host.to(device, copy=True)
        host += 5
        return card.tolist()

    assert both(work) == [1, 2]


def test_numbers_come_back_to_the_host():
    def work(device):
        x = torch.arange(5, device=device)
        target = torch.zeros(5, dtype=torch.int64)
        target.copy_(x)
        return x.cpu().tolist(), target.tolist(), x.cpu().numpy().tolist(), x.to("cpu", torch.float32).tolist()

    assert both(work)[0] == [0, 1, 2, 3, 4]


def test_the_bounds_of_a_range_are_known():
    def work(device):
        bounds = torch.tensor(0.25, device=device).repeat(2) * torch.tensor([-1.0, 1.0], device=device) + 1
        return bounds.clamp(min=0.9).tolist(), (bounds[1] > 1.5).item(), bool((bounds > 0).all())

    assert both(work) == ([pytest.approx(0.9), 1.25], False, True)


def test_a_few_floats_that_are_drawn_or_trained_are_not_known():
    def work(device):
        drawn, bias = torch.rand(2, device=device), nn.Parameter(torch.zeros(2, device=device))
        bias.square().sum().backward()
        torch.optim.SGD([bias], lr=0.1).step()
        return drawn[0].item(), bias[0].item()

    assert len(in_a_prediction(work)[1].guesses) == 1  # one line asks for both


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # by PyTorch, for what it loads here
@pytest.mark.parametrize("count", [1, 4])
def test_second_derivatives_of_a_few_known_floats(count):
    def work(device):
        return torch.func.hessian(lambda w: (w**3).sum())(torch.zeros(count, device=device)).shape

    assert seen(work) == (count, count)


def test_in_place_operators_follow():
    def work(device):
        x = torch.arange(4, device=device)
        x.mul_(2).add_(1).clamp_(max=5)
        x[x == 3] = 30
        x.masked_fill_(x == 1, 10)
        return x.tolist()

    assert both(work) == [10, 30, 5, 5]


def test_lists_of_counters_count():
    def work(device):
        counters = [torch.tensor(0.0, device=device), torch.tensor(5, device=device)]
        torch._foreach_add_(counters, 1)
        torch._foreach_mul_(counters, 2)
        return [counter.item() for counter in counters], [c.item() for c in torch._foreach_add(counters, 1)]

    assert both(work) == ([2, 12], [3, 13])


def test_an_optimizers_steps_on_the_card_are_counted():
    def work(device):
        weight = torch.ones(3, device=device, requires_grad=True)
        optimizer = torch.optim.Adam([weight], capturable=False, fused=device.type == "cuda")
        for _ in range(3):
            weight.sum().backward()
            optimizer.step()
        return optimizer.state[weight]["step"].item()

    assert both(work) == 3


def test_outputs_given_by_name_follow():
    def work(device):
        out = torch.zeros(3, dtype=torch.int64, device=device)
        torch.add(torch.arange(3, device=device), 1, out=out)
        return out.tolist()

    assert both(work) == [1, 2, 3]


def test_sizes_that_depend_on_known_numbers_are_known():
    def work(device):
        mask = torch.arange(10, device=device) % 3 == 0
        places = mask.nonzero()
        return (
            places.shape,
            torch.arange(10, device=device)[mask].shape,
            torch.tensor([1, 1, 2], device=device).unique().shape,
        )

    assert both(work) == ((4, 1), (4,), (2,))


def test_rows_that_are_chosen_by_known_numbers():
    def work(device):
        mask = torch.arange(8, device=device) < 3
        return torch.ones(8, 50, device=device)[mask].shape

    assert both(work) == (3, 50)


def test_two_known_tensors_are_compared():
    def work(device):
        x = torch.arange(3, device=device)
        return torch.equal(x, x.clone()), torch.equal(x, x + 1)

    assert both(work) == (True, False)


@pytest.mark.parametrize("count", [10, 5000, 600_000])
def test_masks_and_labels_of_a_batch(count):
    labels = torch.where(torch.arange(count) % 3 == 0, -100, torch.arange(count))

    def work(device):
        kept = labels.to(device) != -100
        drawn = torch.randn(count, 1, device=device)[kept]
        masks_nothing = torch.ones_like(labels).to(device).bool()
        return drawn.shape, bool(kept.all()), bool(masks_nothing.sum() == masks_nothing.numel())

    assert both(work) == ((count - len(range(0, count, 3)), 1), False, True)


def test_a_loop_that_waits_for_the_host():
    def work(device):
        values = [torch.tensor([1, 2, 3], device=device)[i].item() for i in range(3)]
        return (
            values,
            [int(i) for i in torch.arange(3, device=device)],
            torch.tensor([[1], [2]], device=device).tolist(),
        )

    assert both(work) == ([1, 2, 3], [0, 1, 2], [[1], [2]])


# Guessed


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda x: x.sum().item(), 1.0),
        (lambda x: x.mean().double().item(), 1.0),
        (lambda x: x.argmax().item(), 0),
        (lambda x: x.long().sum().item(), 64),
        (lambda x: bool(x.sum() > 2), False),
        (lambda x: bool(torch.isfinite(x).all()), True),
        (lambda x: bool(torch.isnan(x).any()), False),
        (lambda x: bool(torch.isfinite(x.sum())), True),
        (lambda x: bool((x > 0).all()), True),
        (lambda x: bool((x > 2).any()), False),
        (lambda x: bool((x[1:] > x[:-1]).all()), True),
        (lambda x: bool((x[1:] <= x[:-1]).any()), False),
        (lambda x: bool(((x > 1) & (x < 1)).view(8, 8).all(0).all()), True),
        (lambda x: bool((x > 1).view(8, 8).min(-1)[0].all()), True),
        (lambda x: bool(x.to(torch.bool).sum() == x.numel()), True),  # how transformers asks whether a mask masks
        (lambda x: bool((torch.multinomial(x.softmax(0), 3) == 7).all()), False),  # an end that a text waits for
        (lambda x: torch.equal(x, x + 1), True),
        (lambda x: torch.allclose(x, x + 1), True),
        (lambda x: 1 / x.sum().item(), 1.0),
        (lambda x: math.log(x.sum().item()), 0.0),
        (lambda x: f"{x.mean():.3f}", "1.000"),
        (lambda x: float(x.norm()), 1.0),
        (lambda x: int(x.argmax()), 0),
        (lambda x: torch.multinomial(x.softmax(0), 1).item(), 0),
        (lambda x: torch.randint(0, 5, (), device=x.device).item(), 0),
    ],
)  # fmt: skip
def test_what_nobody_knows_is_guessed_and_the_line_is_said(ask, answer):
    result, trace = in_a_prediction(lambda device: ask(torch.randn(64, device=device)))
    assert result == answer
    assert type(result) is type(answer)
    (line,) = trace.guesses
    assert line == f"test_values.py:{ask.__code__.co_firstlineno}"
    assert trace.sentence.endswith(f"; a number was guessed at {line}")


def test_all_of_what_is_partly_known_is_worked_out():
    def work(device):
        known, unknown = torch.tensor(False, device=device), torch.randn(3, device=device).sum() > 0
        return bool(known & unknown)

    assert seen(work) is False


def test_what_is_known_is_not_a_guess():
    def work(device):
        return torch.tensor(3, device=device).item(), torch.ones(3, device=device).shape

    assert in_a_prediction(work)[1].guesses == ()
    assert "guessed" not in in_a_prediction(work)[1].sentence


def test_numbers_that_are_drawn_are_not_known():
    _, trace = in_a_prediction(lambda device: torch.randint(0, 9, (1,), device=device).item())
    assert len(trace.guesses) == 1


def test_what_is_written_over_with_unknown_numbers_is_not_known():
    def work(device):
        x = torch.arange(3, device=device)
        x.copy_(torch.randn(3, 50, device=device).argmax(1))
        return x[0].item()

    _, trace = in_a_prediction(work)
    assert len(trace.guesses) == 1


def test_what_is_written_over_through_a_view_is_not_known():
    def work(device):
        x = torch.arange(4, device=device)
        x[1:3] = torch.randn(2, 50, device=device).argmax(1)
        return x.view(2, 2)[0, 0].item()

    _, trace = in_a_prediction(work)
    assert len(trace.guesses) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_what_was_never_written_is_not_known(dtype):
    result, trace = in_a_prediction(lambda device: torch.empty(1, dtype=dtype, device=device).item())
    assert result == torch.ones(1, dtype=dtype).item() if dtype.is_floating_point else not result
    assert len(trace.guesses) == 1


def test_each_line_is_said_once_and_the_others_are_counted():
    def train(device):
        x = torch.randn(3, device=device)
        for _ in range(2):
            x.sum().item()
            x.mean().item()
            x.max().item()
            yield

    first = train.__code__.co_firstlineno + 3
    trace = predict(train)
    assert trace.guesses == tuple(f"test_values.py:{first + i}" for i in range(3))
    assert trace.sentence.endswith(f"; a number was guessed at test_values.py:{first} and 2 other lines")


def test_one_other_line_is_one_line():
    def train(device):
        x = torch.randn(3, device=device)
        x.sum().item()
        x.mean().item()
        yield

    assert predict(train).sentence.endswith(" and 1 other line")


def test_guesses_survive_the_file():
    _, trace = in_a_prediction(lambda device: torch.randn(3, device=device).sum().item())
    assert Trace.from_json(trace.to_json()).guesses == trace.guesses != ()


def test_a_measurement_has_no_guesses():
    def train(device):
        yield torch.randn(3, device=device).sum().item()

    trace = measure(train, device="cpu")
    assert trace.guesses == ()
    assert "guessed" not in trace.sentence


def test_a_loss_that_is_yielded_is_not_asked():
    def train(device):
        yield torch.randn(3, device=device).sum()

    assert predict(train).guesses == ()


def test_a_gradient_scaler_and_clipping_step():
    def work(device):
        model = nn.Linear(4, 4).to(device)
        optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
        scaler.scale(model(torch.ones(2, 4, device=device)).sum()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        scaler.step(optimizer)
        scaler.update()
        return len(optimizer.state), scaler.get_scale()

    assert seen(work) == (2, 65536.0)


def test_distributions_validate():
    def work(device):
        normal = torch.distributions.Normal(torch.zeros(3, device=device), torch.ones(3, device=device))
        choice = torch.distributions.Categorical(logits=torch.randn(2, 5, device=device))
        return normal.log_prob(normal.rsample()).shape, choice.log_prob(choice.sample()).shape

    assert seen(work) == ((3,), (2,))


@pytest.mark.parametrize("rows", [1, 8, 250, 300])
def test_distributions_validate_what_a_network_made(rows):
    def work(device):
        x = nn.Linear(5, 4).to(device)(torch.randn(rows, 5, device=device))
        chances, spread = x.softmax(-1), x.exp()
        of_vectors = torch.distributions.MultivariateNormal(x, scale_tril=torch.tril(x[:, :, None] * x[:, None]))
        one = torch.distributions.Categorical(chances)
        others = [
            torch.distributions.OneHotCategorical(chances),
            torch.distributions.Uniform(-spread, spread),
            torch.distributions.Beta(spread, spread),
            torch.distributions.Dirichlet(spread),
        ]
        return one.log_prob(one.sample()).shape, of_vectors.rsample().shape, [d.sample().shape[0] for d in others]

    assert seen(work) == ((rows,), (rows, 4), [rows] * 4)


# Loops without an end


class TooLong(Exception):
    """A loop went on."""


@pytest.fixture
def alarm(monkeypatch):
    """A loop that hangs ends the test; one that is cut off is so soon."""
    assert values.MOST_GUESSES == 10_000
    monkeypatch.setattr(values, "MOST_GUESSES", 50)

    def ring(*_):
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
def test_a_loop_that_waits_for_an_unknown_number_is_cut_off():
    def train(device):
        x = torch.randn(3, device=device)
        while not x.sum() > 100:
            pass
        yield

    line = train.__code__.co_firstlineno + 2
    words = f"The loop at test_values.py:{line} asked the card 50 times in one step for a number that a prediction"
    with pytest.raises(Unpredictable, match=re.escape(words)):
        predict(train)


@pytest.mark.usefixtures("alarm")
def test_a_loop_that_looks_for_a_rare_token_is_cut_off():
    def train(device):
        logits = torch.randn(3, 50, device=device)
        done = torch.zeros(3, dtype=torch.bool, device=device)
        while not done.all():
            done |= logits.argmax(-1) == 7
        yield

    with pytest.raises(Unpredictable, match=r"asked the card 50 times in one step"):
        predict(train)


@pytest.mark.usefixtures("alarm")
def test_a_loop_that_asks_whether_a_list_of_numbers_is_over_is_cut_off():
    def train(device):
        logits = torch.randn(3, 50, device=device)
        while 7 not in logits.argmax(-1).tolist():
            pass
        yield

    with pytest.raises(Unpredictable, match=r"asked the card 50 times in one step"):
        predict(train)


@pytest.mark.usefixtures("alarm")
def test_each_step_asks_anew():
    def train(device):
        x = torch.randn(3, device=device).sum()
        for _ in range(3):
            for _ in range(40):
                x.item()
            yield

    assert len(predict(train).steps) == 3


@pytest.mark.usefixtures("alarm")
def test_a_known_number_may_be_asked_any_number_of_times():
    def work(device):
        x = torch.tensor(3, device=device)
        return sum(x.item() for _ in range(51))

    assert seen(work) == 153


# Guessed, and then an error


def test_an_error_is_told_what_was_guessed_in_its_step():
    def train(device):
        count = int(torch.randn(8, device=device).argmax())
        yield torch.ones(6, device=device).view(count, -1)

    with pytest.raises(RuntimeError, match="invalid for input of size 6") as caught:
        predict(train, gpu="T4")
    (note,) = caught.value.__notes__
    assert re.fullmatch(
        r"In this prediction, .* guessed at test_values.py:\d+: .* by hand, or with `--guess LINE=NUMBER`; "
        r'where a router counts tokens for experts, have them spread evenly: chosen="evenly", `--chosen evenly`\.',
        note,
    )
    assert failure_sentence(caught.value, train).endswith(f"Fix it, then run its cell and the panel's again. {note}")


def test_an_error_in_a_step_without_guesses_is_as_it_is():
    def train(device):
        yield torch.randn(8, device=device).argmax().item()
        yield torch.ones(6, device=device).view(4)

    with pytest.raises(RuntimeError, match="invalid for input of size 6") as caught:
        predict(train, gpu="T4")
    assert not hasattr(caught.value, "__notes__")
