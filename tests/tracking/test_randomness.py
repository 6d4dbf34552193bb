"""Random numbers of a run's own: threads neither see nor change one another's."""

import threading

import pytest
import torch
from torch import nn

from memlab import measure, predict
from memlab.tracking.randomness import DRAWING, RandomNumbers
from tests.device import DEVICE
from tests.vgpu.once import seen


def drawn(count=3):
    return torch.rand(count).tolist()


def seeded(seed, count=3):
    """Return the first numbers of the process's generator after this seed."""
    return torch.rand(count, generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.fixture(autouse=True)
def _unchanged():
    """No test here changes the process's random state."""
    torch.manual_seed(123)
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)


# The context


def test_inside_numbers_are_those_of_the_seed():
    with RandomNumbers():
        assert drawn() == seeded(0)
    with RandomNumbers(7):
        assert drawn() == seeded(7)


def test_entered_again_they_go_on():
    numbers, found = RandomNumbers(), []
    for _ in range(3):
        with numbers:
            found += drawn(1)
    assert found == seeded(0)


def test_inside_another_each_has_its_own():
    with RandomNumbers(1):
        first = drawn(1)
        with RandomNumbers(2):
            assert drawn() == seeded(2)
        assert first + drawn(2) == seeded(1)


def test_an_error_ends_it():
    with pytest.raises(ValueError, match="mine"), RandomNumbers():
        raise ValueError("mine")
    state = torch.get_rng_state()
    torch.manual_seed(5)
    assert drawn() == seeded(5)
    torch.set_rng_state(state)


def test_seeds_and_states_inside_are_its_own():
    with RandomNumbers():
        assert torch.initial_seed() == 0
        torch.manual_seed(9)
        assert torch.initial_seed() == 9
        state = torch.get_rng_state()
        assert drawn() == seeded(9)
        torch.set_rng_state(state)
        assert drawn() == seeded(9)
        assert torch.random.get_rng_state().tolist() != state.tolist()


def test_a_new_seed_inside_is_no_seed_outside():
    with RandomNumbers():
        assert torch.seed() == torch.initial_seed()
        assert torch.random.seed() == torch.random.initial_seed()
    assert torch.initial_seed() == 123


def test_a_fork_of_the_random_state_inside():
    with RandomNumbers():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            assert drawn() == seeded(3)
        assert drawn() == seeded(0)


def test_a_generator_of_the_readers_is_used():
    generator = torch.Generator().manual_seed(4)
    with RandomNumbers():
        assert torch.rand(3, generator=generator).tolist() == seeded(4)
        assert drawn() == seeded(0)


@pytest.mark.parametrize("draw", [torch.rand, torch.randn, torch.randperm])
def test_a_card_draws_from_its_own_generator(draw):
    with RandomNumbers():
        assert draw(20, device=DEVICE).device.type == torch.device(DEVICE).type


def test_the_functions_are_the_very_same_afterwards():
    names = ("manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state")
    before = [getattr(owner, name) for owner in (torch, torch.random) for name in names]
    with RandomNumbers():
        assert torch.manual_seed is not before[0]
    assert all(
        now is old
        for now, old in zip([getattr(o, n) for o in (torch, torch.random) for n in names], before, strict=True)
    )


# Every door through which a number is drawn

DOORS = {
    "rand": lambda: torch.rand(4),
    "rand, much": lambda: torch.rand(2000),
    "rand, named": lambda: torch.rand(4, generator=None),
    "rand_like": lambda: torch.rand_like(torch.ones(4)),
    "randn": lambda: torch.randn(4),
    "randn, much": lambda: torch.randn(2000),
    "randn_like": lambda: torch.randn_like(torch.ones(4)),
    "randint": lambda: torch.randint(0, 100, (4,)),
    "randint, high": lambda: torch.randint(100, (4,)),
    "randint_like": lambda: torch.randint_like(torch.ones(4), 0, 100),
    "randperm": lambda: torch.randperm(20),
    "normal": lambda: torch.normal(0.0, 1.0, (4,)),
    "normal of tensors": lambda: torch.normal(torch.zeros(4), torch.ones(4)),
    "normal_": lambda: torch.empty(4).normal_(),
    "uniform_": lambda: torch.empty(4).uniform_(),
    "random_": lambda: torch.empty(4).random_(100),
    "bernoulli": lambda: torch.bernoulli(torch.full((20,), 0.5)),
    "bernoulli_": lambda: torch.empty(20).bernoulli_(0.5),
    "multinomial": lambda: torch.multinomial(torch.ones(20), 5),
    "exponential_": lambda: torch.empty(4).exponential_(),
    "cauchy_": lambda: torch.empty(4).cauchy_(),
    "log_normal_": lambda: torch.empty(4).log_normal_(),
    "geometric_": lambda: torch.empty(20).geometric_(0.3),
    "poisson": lambda: torch.poisson(torch.full((20,), 5.0)),
    "binomial": lambda: torch.binomial(torch.full((20,), 9.0), torch.full((20,), 0.5)),
    "gamma": lambda: torch.distributions.Gamma(torch.ones(4), torch.ones(4)).sample(),
    "Dirichlet": lambda: torch.distributions.Dirichlet(torch.ones(4)).sample(),
    "dropout": lambda: nn.functional.dropout(torch.ones(20), 0.5),
    "dropout_": lambda: nn.functional.dropout(torch.ones(20), 0.5, inplace=True),
    "feature dropout": lambda: nn.functional.dropout2d(torch.ones(20, 4, 2, 2), 0.5),
    "alpha dropout": lambda: nn.functional.alpha_dropout(torch.ones(20), 0.5, training=True),
    "rrelu": lambda: nn.functional.rrelu(-torch.ones(20), training=True),
    "a layer": lambda: nn.Linear(4, 4).weight.detach(),
    "orthogonal": lambda: nn.init.orthogonal_(torch.empty(4, 4)),
    "trunc_normal": lambda: nn.init.trunc_normal_(torch.empty(20)),
    "attention": lambda: nn.functional.scaled_dot_product_attention(*[torch.ones(1, 2, 4, 4)] * 3, dropout_p=0.5),
    "a loader": lambda: torch.cat(list(torch.utils.data.DataLoader(range(20), shuffle=True))),
    "split": lambda: torch.tensor(torch.utils.data.random_split(range(20), [10, 10])[0].indices),
    "fractional pooling": lambda: nn.functional.fractional_max_pool2d(torch.rand(1, 1, 8, 8), 2, output_size=4),
    "gumbel": lambda: nn.functional.gumbel_softmax(torch.ones(4)),
    "given out": lambda: torch.rand(4, out=torch.empty(4)),
}
doors = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)


def as_without_memlab(door):
    """Return what a source of randomness draws from the process's generator with seed 0."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return door().tolist()


@doors
def test_every_door_leads_to_the_runs_own_generator(door):
    with RandomNumbers():
        first = door().tolist()
    assert first == as_without_memlab(door)  # and _unchanged looks at the process's state


@doors
def test_it_does_in_a_measurement(door):
    found = []

    def train(device):
        found.append(door().tolist())
        yield

    measure(train, device=DEVICE, steps=1)
    assert found == [as_without_memlab(door)]


@doors
def test_a_prediction_draws_nothing_from_the_process(door):
    seen(lambda device: door() is None)


@pytest.mark.parametrize("door", ["randn", "randint", "randperm", "uniform_", "dropout", "bernoulli_"])
def test_small_numbers_of_a_predictions_host_are_those_of_a_run(door):
    assert seen(lambda device: DOORS[door]().tolist()) == as_without_memlab(DOORS[door])


def test_numbers_of_the_card_leave_the_hosts_as_they_are():
    def work(device):
        torch.randn(5, device=device)
        nn.Dropout(0.5)(torch.ones(30, device=device))
        return drawn()

    assert seen(work) == seeded(0)


def test_every_operator_that_takes_a_generator_is_known():
    dispatched = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    drawing = {
        schema.name.removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::")
        and schema.name in dispatched
        and any(argument.name == "generator" for argument in schema.arguments)
    }
    assert len(drawing) > 30
    assert drawing - set(DRAWING) == set()


def test_every_name_is_one_of_torchs():
    assert [name for name in DRAWING if not hasattr(torch.ops.aten, name)] == []
    assert len(set(DRAWING)) == len(DRAWING)


# Threads


def in_turn(*works):
    """The results of generators, each in a thread of its own: first a part of the first, then one of the second, ..."""
    results, errors = [[] for _ in works], []
    turns = [threading.Event() for _ in works]
    over = [False] * len(works)

    def hand_on(index):
        following = [(index + offset) % len(works) for offset in range(1, len(works) + 1)]
        for other in following:
            if not over[other]:
                turns[other].set()
                return

    def run(index):
        def wait():
            assert turns[index].wait(30)
            turns[index].clear()

        wait()
        try:
            works[index](results[index].append, lambda: (hand_on(index), wait()))
        except BaseException as error:  # shown in the test's own thread
            errors.append(error)
        over[index] = True
        hand_on(index)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(works))]
    for thread in threads:
        thread.start()
    turns[0].set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def a_run(call):
    """A measurement or prediction that draws, then waits for its turn."""

    def work(keep, wait):
        def train(device):
            model = nn.Linear(4, 4)
            for _ in range(3):
                keep([model.weight.sum().item(), *drawn(), *torch.randperm(5).tolist()])
                wait()
                yield

        call(train)

    return work


def a_cell(keep, wait):
    """Seed the process's generator and draw from it three times, as a reader's cell does meanwhile."""
    for _ in range(3):
        torch.manual_seed(42)
        wait()
        keep(drawn())
        wait()


def alone(work):
    return in_turn(work)[0]


def by_measuring(train):
    measure(train, device=DEVICE)


RUNS = {"measure": a_run(by_measuring), "predict": a_run(predict)}
runs = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)


@pytest.fixture
def restored():
    """The reader's cells do change the process's random state."""
    with torch.random.fork_rng(devices=[]):
        yield


@runs
@pytest.mark.usefixtures("restored")
def test_a_run_and_a_cell_that_seeds_do_not_see_one_another(run):
    expected = alone(run)
    ran, found = in_turn(run, a_cell)
    assert ran == expected
    assert found == [seeded(42)] * 3


@runs
def test_a_prediction_beside_a_run_draws_what_each_draws_alone(run):
    expected = alone(run), alone(RUNS["predict"])
    assert tuple(in_turn(run, RUNS["predict"])) == expected


def test_a_thread_that_a_cell_starts_draws_from_the_process():
    inside, over, found = threading.Event(), threading.Event(), []

    def train(device):
        inside.set()
        over.wait()
        yield

    thread = threading.Thread(target=measure, args=(train,), kwargs={"device": "cpu"})
    thread.start()
    inside.wait()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(8)
        found += drawn()
        state = torch.get_rng_state()
        torch.set_rng_state(state)
        assert torch.initial_seed() == 8
    over.set()
    thread.join()
    assert found == seeded(8)


def losses_of(seed):
    """A loop whose losses depend on what it draws."""

    def train(device):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        while True:
            loss = model(torch.randn(16, 8, device=device)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss

    return train


@pytest.mark.filterwarnings("ignore:Another run is being measured")
def test_two_labs_that_train_at_once_have_the_losses_of_each_alone():
    expected = [measure(losses_of(seed), device=DEVICE, steps=20).losses for seed in (1, 2)]
    barrier, found = threading.Barrier(2), {}

    def run(seed):
        barrier.wait()
        found[seed] = measure(losses_of(seed), device=DEVICE, steps=20).losses

    for _ in range(3):
        threads = [threading.Thread(target=run, args=(seed,)) for seed in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [found[1], found[2]] == expected
