"""The state outside of a loop: as it was after success, an error, an interrupt and out of memory."""

import collections
import functools
import sys
import types

import pytest
import torch
from torch import nn

from memlab import predict
from memlab.vgpu import libraries
from tests.vgpu.once import seen

CARD = torch.device("cuda", 0)


class Mine(Exception):
    """The loop's own error."""


ENDS = {
    "success": (None, None),
    "an error": (Mine, None),
    "an interrupt": (KeyboardInterrupt, None),
    "out of memory": (None, "100 KiB"),
}
however_it_ends = pytest.mark.parametrize("end", ENDS)


def run(work, end="success"):
    """``work(device)`` and what comes after it, in a prediction that ends so."""
    failure, budget = ENDS[end]

    def train(device):
        work(device)
        yield
        if failure is not None:
            raise failure
        torch.empty(2**20, device=device)  # more than the budget, where there is one
        yield

    if failure is not None:
        with pytest.raises(failure):
            predict(train)
    else:
        assert (predict(train, budget=budget).oom is not None) == (budget is not None)


def numbers(tensors):
    """Return identity, type, device, numbers and gradient of each tensor."""
    return [
        (id(t), type(t), t.device.type, t.dtype, t.requires_grad, t.is_leaf, t.detach().tolist(), id(t.grad))
        for t in tensors
    ]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def trained(model, optimizer):
    model(torch.ones(3, 4)).square().sum().backward()
    optimizer.step()
    return optimizer


def step(model, device):
    model(torch.ones(3, 4, device=device)).square().sum().backward()


# Modules


@however_it_ends
def test_parameters_and_buffers_are_as_before(end):
    model = network()
    tensors = [*model.parameters(), *model.buffers()]
    before = numbers(tensors)
    run(lambda device: step(model.to(device), device), end)
    assert numbers([*model.parameters(), *model.buffers()]) == before


@however_it_ends
def test_a_module_trains_after_it(end):
    model, twin = network(), network()
    run(lambda device: step(model.to(device), device), end)
    for each in (model, twin):
        trained(each, torch.optim.SGD(each.parameters(), 0.1))
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True))


@however_it_ends
def test_gradients_that_were_there_are_there(end):
    model = network()
    step(model, "cpu")
    gradients = [(id(p.grad), p.grad.tolist()) for p in model.parameters()]

    def work(device):
        model.zero_grad()
        step(model.to(device), device)

    run(work, end)
    assert [(id(p.grad), p.grad.tolist()) for p in model.parameters()] == gradients


def test_gradients_that_are_accumulated_to_are_as_before():
    model = network()
    step(model, "cpu")
    before = [p.grad.clone() for p in model.parameters()]
    run(lambda device: step(model, "cpu"))  # on the host, for real
    assert all(torch.equal(p.grad, old) for p, old in zip(model.parameters(), before, strict=True))


@however_it_ends
def test_hooks_of_parameters_are_called_afterwards(end):
    model, called = network(), []
    weight = model[0].weight
    weight.register_hook(lambda gradient: called.append("gradient"))
    weight.register_post_accumulate_grad_hook(lambda parameter: called.append("accumulated"))
    run(lambda device: step(model.to(device), device), end)
    called.clear()
    step(model, "cpu")
    assert called == ["gradient", "accumulated"]


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_parameters_are_called_in_the_prediction(kind):
    model, called = network(), []
    getattr(model[0].weight, kind)(lambda tensor: called.append(kind))

    def work(device):
        step(model.to(device), device)
        return len(called)

    assert seen(work) == 1


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_the_loop_are_gone_and_new_ones_are_called(kind):
    model, called = network(), []

    def work(device):
        model.to(device)
        getattr(model[0].weight, kind)(lambda tensor: called.append("the loop's"))

    run(work)
    getattr(model[0].weight, kind)(lambda tensor: called.append("new"))
    step(model, "cpu")
    assert called == ["new"]


@however_it_ends
def test_hooks_of_modules_that_the_loop_adds_are_gone(end):
    model, called = network(), []

    def work(device):
        model.to(device).register_forward_hook(lambda *args: called.append("forward"))
        model[0].register_forward_pre_hook(lambda *args: called.append("before"))
        model[2].register_full_backward_hook(lambda *args: called.append("backward"))
        step(model, device)

    run(work, end)
    called.clear()
    step(model, "cpu")
    assert called == []


@however_it_ends
def test_modules_that_the_loop_replaces_are_back(end):
    model = network()
    layers, weight = list(model), model[0].weight

    def work(device):
        model[0] = nn.Linear(4, 4)
        model.add_module("new", nn.Linear(2, 4))
        del model[2]
        model.to(device)

    run(work, end)
    assert [id(layer) for layer in model] == [id(layer) for layer in layers]
    assert model[0].weight is weight
    assert weight.device.type == "cpu"


@however_it_ends
def test_parameters_that_the_loop_replaces_are_back(end):
    model = network()
    before = numbers(model.parameters())

    def work(device):
        model.to(device)
        model[0].weight = nn.Parameter(torch.ones(4, 4, device=device))
        model[2].register_parameter("new", nn.Parameter(torch.ones(2, device=device)))
        model[2].bias = None

    run(work, end)
    assert numbers(model.parameters()) == before
    assert "new" not in model[2]._parameters


@however_it_ends
def test_data_that_the_loop_assigns_is_taken_back(end):
    model = network()
    before = numbers(model.parameters())

    def work(device):
        model[0].weight.data = torch.zeros(4, 4)
        model.to(device)
        model[2].weight.data = torch.zeros(2, 4, device=device)

    run(work, end)
    assert numbers(model.parameters()) == before


def test_large_data_that_the_loop_assigns_is_taken_back():
    model = nn.Linear(128, 128)
    before = numbers(model.parameters())

    def work(device):
        model.weight.data = torch.randn(128, 128)
        model.to(device)

    run(work)
    assert numbers(model.parameters()) == before


@however_it_ends
def test_buffers_that_the_loop_registers_or_replaces_are_as_before(end):
    model = network()
    mean = model[1].running_mean

    def work(device):
        model.to(device)
        model[1].running_mean = torch.ones(4, device=device)
        model[0].register_buffer("mask", torch.ones(4, 4, device=device))

    run(work, end)
    assert model[1].running_mean is mean
    assert mean.tolist() == [0] * 4
    assert dict(model[0].named_buffers()) == {}


def test_statistics_that_the_loop_updates_on_the_host_are_as_before():
    model = network()
    before = numbers(model.buffers())
    run(lambda device: model(torch.ones(3, 4)))
    assert numbers(model.buffers()) == before


@however_it_ends
def test_flags_and_modes_are_as_before(end):
    model = network()

    def work(device):
        model.to(device).eval()
        model[0].requires_grad_(False)
        model.extra = torch.ones(3, device=device)

    run(work, end)
    assert model.training
    assert all(part.training for part in model.modules())
    assert all(p.requires_grad for p in model.parameters())
    assert not hasattr(model, "extra")


@pytest.mark.parametrize("move", [lambda m: m.to(torch.float64), lambda m: m.half(), lambda m: m.to("meta")])
def test_parameters_that_are_converted_are_as_before(move):
    model = network()
    before = numbers(model.parameters())
    run(lambda device: move(model))
    assert numbers(model.parameters()) == before


def test_tied_weights_stay_tied():
    embedding, head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
    head.weight = embedding.weight
    run(lambda device: nn.ModuleList([embedding, head]).to(device))
    assert head.weight is embedding.weight
    assert type(head.weight) is nn.Parameter


def test_a_parametrization_of_the_loop_is_gone():
    model = nn.Linear(4, 4)
    weight = model.weight

    def work(device):
        torch.nn.utils.parametrizations.weight_norm(model)
        model.to(device)(torch.ones(2, 4, device=device)).sum().backward()

    run(work)
    assert model.weight is weight
    assert type(model) is nn.Linear
    assert set(model.state_dict()) == {"weight", "bias"}


def test_moving_twice_and_back_is_as_before():
    model = network()
    before = numbers(model.parameters())
    run(lambda device: model.to(device).cpu().to(device))
    assert numbers(model.parameters()) == before


def test_a_second_prediction_finds_it_as_the_first_did():
    model = network()

    def work(device):
        held = torch.cuda.memory_allocated()
        step(model.to(device), device)
        return held, torch.cuda.memory_allocated(), model[0].weight.grad.device

    assert seen(work) == seen(work)


# Optimizers and what belongs to them


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.1),  # has state before its first step
}


@however_it_ends
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_an_optimizer_without_steps_is_as_before(make, end):
    model = network()
    optimizer = make(model.parameters())
    parameters = [id(p) for p in model.parameters()]
    state = {id(p): {k: v.tolist() for k, v in s.items()} for p, s in optimizer.state.items()}

    def work(device):
        step(model.to(device), device)
        optimizer.step()
        assert optimizer.state

    run(work, end)
    assert {id(p): {k: v.tolist() for k, v in s.items()} for p, s in optimizer.state.items()} == state
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == parameters


@however_it_ends
def test_an_optimizer_that_has_trained_has_its_state(end):
    model = network()
    optimizer = trained(model, torch.optim.AdamW(model.parameters(), 0.1))

    def state():
        return {id(p): {k: (id(v), v.tolist()) for k, v in s.items()} for p, s in optimizer.state.items()}

    before = state()

    def work(device):
        model.to(device)
        for moments in optimizer.state.values():
            for name, moment in moments.items():
                moments[name] = moment.to(device) if name != "step" else moment
        step(model, device)
        optimizer.step()

    run(work, end)
    assert state() == before


def test_an_optimizer_that_steps_on_the_host_has_its_state():
    model = network()
    optimizer = trained(model, torch.optim.AdamW(model.parameters(), 0.1))
    before = (
        {id(p): {k: v.tolist() for k, v in s.items()} for p, s in optimizer.state.items()},
        numbers(model.parameters()),
    )

    def work(device):
        step(model, "cpu")
        optimizer.step()

    run(work)
    after = (
        {id(p): {k: v.tolist() for k, v in s.items()} for p, s in optimizer.state.items()},
        numbers(model.parameters()),
    )
    assert after == before


@however_it_ends
def test_groups_of_parameters_are_as_before(end):
    model = network()
    optimizer = torch.optim.SGD(model[0].parameters(), 0.1)

    def work(device):
        optimizer.param_groups[0]["lr"] = 5.0
        optimizer.add_param_group({"params": model[2].parameters()})

    run(work, end)
    assert len(optimizer.param_groups) == 1
    assert optimizer.param_groups[0]["lr"] == 0.1


@however_it_ends
def test_a_schedule_is_where_it_was(end):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def work(device):
        for _ in range(3):
            optimizer.step()
            schedule.step()

    run(work, end)
    assert schedule.last_epoch == 0
    assert schedule.get_last_lr() == [0.1]
    assert optimizer.param_groups[0]["lr"] == 0.1
    optimizer.step()
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.05


@pytest.mark.parametrize("kind", ["chained", "plateau", "one cycle"])
def test_other_schedules_are_where_they_were(kind):
    optimizer = torch.optim.SGD(network().parameters(), 0.1, momentum=0.9)
    schedulers = torch.optim.lr_scheduler
    schedule = {
        "chained": lambda: schedulers.SequentialLR(
            optimizer, [schedulers.ConstantLR(optimizer), schedulers.ExponentialLR(optimizer, 0.5)], [2]
        ),
        "plateau": lambda: schedulers.ReduceLROnPlateau(optimizer, patience=0),
        "one cycle": lambda: schedulers.OneCycleLR(optimizer, 0.1, total_steps=10),
    }[kind]()
    before = repr(schedule.state_dict()), repr(optimizer.param_groups[0])

    def work(device):
        for loss in (1.0, 2.0, 3.0):
            optimizer.step()
            schedule.step(loss) if kind == "plateau" else schedule.step()

    run(work)
    assert (repr(schedule.state_dict()), repr(optimizer.param_groups[0])) == before


@however_it_ends
def test_a_gradient_scaler_is_as_before(end):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)
    scaler.scale(model(torch.ones(3, 4)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    before = scaler.state_dict()

    def work(device):
        for _ in range(2):
            scaler.scale(model(torch.ones(3, 4)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()

    run(work, end)
    assert scaler.state_dict() == before
    assert before["scale"] == 16.0


def test_a_gradient_scaler_of_the_card_is_as_before():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.warns(UserWarning, match="CUDA is not available"):
        scaler = torch.amp.GradScaler("cuda")

    def work(device):
        scaler.scale(model.to(device)(torch.ones(3, 4, device=device)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    before = scaler.state_dict()
    run(work)
    assert scaler.state_dict() == before


# Tensors and containers


@however_it_ends
def test_tensors_of_the_host_that_are_written_in_place_are_as_before(end):
    small, large, ids = torch.zeros(3), torch.ones(600, 600), torch.arange(3)

    def work(device):
        small.add_(5)
        small[1] = 7
        large[10:20].mul_(3)
        ids.copy_(torch.tensor([7, 8, 9], device=device))
        torch._foreach_add_([small], 1)
        torch.add(ids, 1, out=ids)

    run(work, end)
    assert small.tolist() == [0, 0, 0]
    assert ids.tolist() == [0, 1, 2]
    assert (large == 1).all()


def test_a_tensor_that_is_written_in_inference_mode_is_as_before():
    before = torch.zeros(3)

    def train(device):
        with torch.inference_mode():
            before.add_(1)
            made = torch.zeros(3)
            made += 1
        yield made.sum()

    predict(train, steps=1)
    assert before.tolist() == [0, 0, 0]


def test_views_of_one_tensor_that_are_written_are_as_before():
    whole = torch.arange(6)

    def work(device):
        whole[:2] += 10
        whole[4:] += 10
        whole.view(2, 3)[1] = 0

    run(work)
    assert whole.tolist() == [0, 1, 2, 3, 4, 5]


def test_what_the_loop_itself_made_on_the_host_keeps_its_numbers_in_it():
    def work(device):
        count = torch.zeros(3)
        count += 1
        return count.tolist()

    assert seen(work) == [1, 1, 1]


def test_a_tensor_that_is_asked_for_a_gradient_is_as_before():
    x = torch.ones(3)

    def work(device):
        x.requires_grad_(True)
        (x * 2).sum().backward()

    run(work)
    assert not x.requires_grad
    assert x.grad is None


def test_a_gradient_of_a_tensor_is_as_before():
    x = torch.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    run(lambda device: (x * 3).sum().backward())
    assert x.grad.tolist() == [2, 2, 2]


@however_it_ends
def test_a_list_that_got_tensors_of_the_card_is_as_before(end):
    losses, by_name, both = [1.0], {"first": 0}, collections.deque([1], maxlen=5)

    def work(device):
        losses.append(torch.ones(2, device=device))
        by_name["second"] = torch.ones(2, device=device)
        both.append(torch.ones(2, device=device))

    run(work, end)
    assert losses == [1.0]
    assert by_name == {"first": 0}
    assert both == collections.deque([1])
    assert both.maxlen == 5


def test_a_list_that_got_plain_numbers_keeps_them():
    losses, lines = [], []

    def work(device):
        losses.append(torch.ones(100, device=device).sum().item())
        lines.append("a step")

    run(work)
    assert losses == [1.0]
    assert lines == ["a step"]


def test_a_list_that_got_large_tensors_of_the_host_is_as_before():
    kept = []
    run(lambda device: kept.append(torch.randn(600, 600)))
    assert kept == []


def test_nested_tensors_of_the_card_in_a_list_are_gone():
    kept = []
    run(lambda device: kept.append({"loss": torch.ones(2, device=device)}))
    assert kept == []


class Counter:
    """Not PyTorch's own: its attributes are the reader's, unless they hold tensors of the card."""

    def __init__(self):
        self.count, self.last = 0, None


class Lazy(collections.OrderedDict):
    """A registry that makes what it holds when it is asked, as libraries have them."""

    def __init__(self, makers, /):
        super().__init__(makers)

    def copy(self):
        raise NotImplementedError

    def values(self):
        raise NotImplementedError


class Rows(list):
    def __init__(self, first, second, /):
        super().__init__((first, second))


def test_containers_with_classes_of_their_own_are_looked_into():
    layer, rows = nn.Linear(2, 2), Rows(1, 2)
    registry, recent = Lazy({"layer": layer, "other": 1}), collections.deque([1], maxlen=3)
    registry.move_to_end("layer")
    pairs = dict[str, int]  # its __dict__ is that of the class

    def work(device):
        assert pairs(one=1)
        registry["layer"].to(device)
        for container in (rows, recent):
            container.append(torch.ones(2, device=device))
        registry["new"] = torch.ones(2, device=device)

    run(work)
    assert layer.weight.device.type == "cpu"
    assert (rows, list(recent), list(registry)) == ([1, 2], [1], ["other", "layer"])
    assert registry.popitem()[0] == "layer"


def test_objects_of_the_reader_lose_tensors_of_the_card():
    counter = Counter()

    def work(device):
        counter.last = torch.ones(3, device=device)

    run(work)
    assert counter.last is None


# Where it is found


class Trainer:
    """A loop that is a method, with what it needs on ``self``."""

    def __init__(self):
        self.model = network()

    def train(self, device):
        step(self.model.to(device), device)
        yield


def test_the_module_of_a_method_is_found():
    trainer = Trainer()
    before = numbers(trainer.model.parameters())
    predict(trainer.train)
    assert numbers(trainer.model.parameters()) == before


def of_a_module(device, model):
    model[0] = nn.Linear(4, 4)
    step(model.to(device), device)
    yield


def test_the_module_of_a_partial_is_found():
    model = network()
    layer = model[0]
    predict(functools.partial(of_a_module, model=model))
    assert model[0] is layer


def test_the_module_among_the_settings_is_found():
    model = network()
    layer = model[0]
    predict(of_a_module, model=model)
    assert model[0] is layer


GLOBAL = network()


def helper(device):
    GLOBAL[0] = nn.Linear(4, 4)
    step(GLOBAL.to(device), device)


def test_a_global_that_a_helper_names_is_found():
    layer = GLOBAL[0]
    run(lambda device: helper(device))
    assert GLOBAL[0] is layer


def by_default(model):
    def helper(device, model=model):
        model[0] = nn.Linear(4, 4)

    return helper


def by_keyword(model):
    def helper(device, *, model=model):
        model[0] = nn.Linear(4, 4)

    return helper


def replace_first(model, device):
    model[0] = nn.Linear(4, 4)


@pytest.mark.parametrize("made", [by_default, by_keyword, lambda model: functools.partial(replace_first, model)])
def test_what_a_helper_holds_is_found(made):
    model = network()
    layer, helper = model[0], made(model)
    run(lambda device: helper(device))
    assert model[0] is layer


def test_what_an_imported_module_of_the_reader_holds_is_found():
    mine = types.ModuleType("mine")
    mine.__file__ = __file__
    mine.model = network()
    layer = mine.model[0]

    def train(device):
        yield from of_a_module(device, mine.model)

    predict(train)
    assert mine.model[0] is layer


def test_the_module_in_a_tuple_in_a_dict_is_found():
    held = {"both": (network(), "name")}
    layer = held["both"][0][0]

    def train(device):
        yield from of_a_module(device, held["both"][0])

    predict(train)
    assert held["both"][0][0] is layer


def test_the_module_that_only_an_optimizer_knows_is_found():
    optimizer = torch.optim.AdamW(network().parameters())

    def work(device):
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()

    before = numbers(optimizer.param_groups[0]["params"])
    run(work)
    assert numbers(optimizer.param_groups[0]["params"]) == before
    assert not optimizer.state


@pytest.mark.parametrize("imported", ["before", "in the prediction"])
def test_what_a_library_keeps_is_not_a_predictions(imported, monkeypatch):
    """As bitsandbytes keeps the table of its 8-bit numbers, for all that is quantized later."""
    library = types.ModuleType(libraries.BITSANDBYTES)
    table = torch.arange(3.0)
    library.name2qmap = {"dynamic": table} if imported == "before" else {}
    if imported == "before":
        monkeypatch.setitem(sys.modules, library.__name__, library)
    there = []

    def train(device):
        monkeypatch.setitem(sys.modules, libraries.BITSANDBYTES, library)
        kept = sys.modules[libraries.BITSANDBYTES].name2qmap
        there.append(list(kept))
        kept["dynamic"] = torch.ones(3, device=device)
        yield kept["dynamic"].sum()

    predict(train, gpu="T4", steps=1)
    assert there == [[]]
    assert list(library.name2qmap.values()) == ([table] if imported == "before" else [])
