"""The tracker against arithmetic done by hand, and against torch's own MemTracker."""

import gc
import threading

import pytest
import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils.checkpoint import checkpoint

from memlab.nets import GPT, MLP
from memlab.run import measure
from memlab.trace import Category, Phase
from memlab.tracking import Tracker
from memlab.tracking.internals import on_again
from tests.device import DEVICE, counted_by_hand

CPU = torch.device("cpu")
FLOAT = 4


def train_mlp(device, *, depth=4, width=32, batch_size=64, checkpoint_every=0):
    model = MLP(depth, width, checkpoint_every=checkpoint_every).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(batch_size, width, device=device)
    while True:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss


def mlp_peak(depth, width, batch_size):
    """The peak of a steady step of ``train_mlp``, counted by hand."""
    tensor = FLOAT * batch_size * width  # x, every block's output and every gradient of one
    layer = FLOAT * (width**2 + width)  # one block's weights, or their gradients
    residents = tensor + 3 * depth * layer + 2 * depth * FLOAT  # x, weights, two moments, AdamW's counts of steps
    backward = []
    for block in range(1, depth + 1):
        gradients = (depth - block) * layer
        # ReLU's backward: the outputs up to here, the gradient that came (the last block's is a view of a
        # scalar), the one it makes.
        backward.append((block + (1 if block == depth else 2)) * tensor + gradients)
        # Linear's backward: its output is gone; the gradients of its input and its weights are made.
        backward.append((block + (1 if block > 1 else 0)) * tensor + gradients + layer)
    # AdamW's denominator is made of two temporaries; the one of the bias before it still lives.
    denominator = 2 * FLOAT * width**2 + (FLOAT * width if depth > 1 else 0)
    optimizer = depth * layer + denominator
    loss = FLOAT  # and in backward as much again: the gradient of the loss, 1.0
    return residents + max(max(backward) + 2 * loss, optimizer + loss)


@counted_by_hand
@pytest.mark.parametrize(
    ("depth", "width", "batch_size"), [(1, 8, 64), (4, 32, 64), (4, 64, 4), (6, 16, 1), (3, 40, 41)]
)
def test_an_mlp_with_adamw_peaks_at_exactly_the_bytes_counted_by_hand(depth, width, batch_size):
    trace = measure(train_mlp, depth=depth, width=width, batch_size=batch_size, device=DEVICE)
    assert trace.peak_allocated == mlp_peak(depth, width, batch_size)


@counted_by_hand
def test_every_category_of_an_mlp_is_exact():
    depth, width, batch_size = 4, 32, 64
    trace = measure(train_mlp, depth=depth, width=width, batch_size=batch_size, device=DEVICE)
    tensor, layer = FLOAT * batch_size * width, FLOAT * (width**2 + width)
    assert trace.peak_phase is Phase.BACKWARD
    assert trace.by_category[Category.PARAMETER] == depth * layer
    assert trace.by_category[Category.OPTIMIZER_STATE] == 2 * depth * layer + 2 * depth * FLOAT
    assert trace.by_category[Category.INPUT] == tensor
    assert sum(trace.by_category.values()) == trace.peak_allocated
    assert max(trace.timeline[Category.GRADIENT]) == depth * layer
    # One output a block, the loss and its gradient.
    assert max(trace.timeline[Category.ACTIVATION]) == depth * tensor + 2 * FLOAT


def test_the_categories_sum_to_what_is_allocated_after_every_event():
    trace = measure(train_mlp, checkpoint_every=2, device=DEVICE)
    assert [sum(moment) for moment in zip(*trace.timeline.values(), strict=True)] == list(trace.allocated)
    assert max(trace.timeline[Category.RECOMPUTED]) > 0


def attention_case(width=32, tokens=24, batch_size=4):
    model = nn.MultiheadAttention(width, 4, batch_first=True)
    x = torch.randn(batch_size, tokens, width)
    return model, lambda: model(x, x, x)[0].square().mean(), [x]


def layer_norm_case():
    model = nn.Sequential(nn.Linear(48, 48), nn.LayerNorm(48), nn.GELU(), nn.Linear(48, 7))
    x, y = torch.randn(96, 48), torch.randint(7, (96,))
    return model, lambda: F.cross_entropy(model(x), y), [x, y]


def mlp_case():
    model, x = MLP(5, 40), torch.randn(64, 40)
    return model, lambda: model(x).square().mean(), [x]


def gpt_case(checkpoint_every=0):
    model = GPT(depth=3, width=32, heads=2, context=16, checkpoint_every=checkpoint_every)
    tokens = torch.randint(256, (4, 17))
    return model, lambda: model(tokens[:, :-1], tokens[:, 1:]), [tokens]


def checkpointed_gpt_case():
    return gpt_case(checkpoint_every=1)


@pytest.mark.parametrize("case", [mlp_case, layer_norm_case, attention_case, gpt_case, checkpointed_gpt_case])
def test_agrees_with_mem_tracker(case):
    """MemTracker is told of the model and the inputs; it does not see the loss of the step before (4 bytes)."""
    model, loss_of, inputs = case()
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        loss_of().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    theirs = MemTracker()
    theirs.track_external(model, optimizer, *inputs)
    with theirs:
        step()
    expected = theirs.get_tracker_snapshot("peak")[CPU]["Total"]

    ours = Tracker(CPU)
    for _ in range(2):  # what the model and the optimizer hold is met in the first step
        with ours:
            step()
    assert ours.xray().peak_allocated == pytest.approx(expected, rel=0.01)


def test_the_module_at_work_is_named_in_forward_backward_and_recomputation():
    trace = measure(train_mlp, depth=4, checkpoint_every=2, device=DEVICE)
    products = [event for event in trace.events if event.op == "aten.mm" and event.category is Category.GRADIENT]
    assert [event.module for event in products] == [f"blocks.{i}.0" for i in (3, 2, 1, 0)]
    again = [event for event in trace.events if event.category is Category.RECOMPUTED and event.op == "aten.relu"]
    assert [event.module for event in again] == ["blocks.2.1", "blocks.3.1", "blocks.0.1", "blocks.1.1"]


def test_views_are_not_counted_twice():
    with Tracker(CPU) as tracker:
        x = torch.zeros(256)
        views = [x.view(16, 16), x[3:], x.t(), x.detach()]
    assert tracker.live == 1024
    del views
    assert tracker.live == 1024
    del x
    assert tracker.live == 0


def test_a_resized_storage_counts_as_what_it_is_when_it_is_next_used():
    with Tracker(CPU) as tracker:
        x = torch.zeros(256)
        x.resize_(512)
        assert tracker.live == 2048
        x.untyped_storage().resize_(0)  # no operator, so nothing shows it until x is used
        x.detach()
        assert tracker.live == 0


def test_free_is_seen_where_nothing_in_python_does_it():
    with Tracker(CPU) as tracker:
        w = torch.ones(256, requires_grad=True)
        loss = (w * 2).exp().sum()
        kept = tracker.live
        loss.backward()
        assert tracker.live < kept + 1024  # the gradient came, exp's result went
    del w, loss
    gc.collect()
    assert tracker.live == 0


def test_another_thread_is_not_tracked():
    model, stop, running = MLP(2, 64), threading.Event(), threading.Event()
    inputs = torch.randn(512, 64)  # once: threads share the random generator

    def train_elsewhere():
        optimizer = torch.optim.SGD(model.parameters())
        while not stop.is_set():
            model(inputs).sum().backward()
            optimizer.step()
            running.set()

    alone = measure(train_mlp, device=DEVICE)
    thread = threading.Thread(target=train_elsewhere)
    thread.start()
    try:
        assert running.wait(30)
        beside = measure(train_mlp, device=DEVICE)
    finally:
        stop.set()
        thread.join()
    assert beside.allocated == alone.allocated
    assert beside.losses == alone.losses
    assert {event.module for event in beside.events} == {event.module for event in alone.events}


def test_hooks_are_gone_after_a_step_even_after_an_error():
    from torch.nn.modules import module

    before = len(module._global_forward_pre_hooks), len(module._global_forward_hooks)

    def fail():
        with Tracker(CPU):
            assert len(module._global_forward_pre_hooks) == before[0] + 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (len(module._global_forward_pre_hooks), len(module._global_forward_hooks)) == before


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_activations_are_told_from_temporaries(reentrant):
    layers = nn.Sequential(*[nn.Linear(16, 16) for _ in range(4)])
    x = torch.randn(8, 16, requires_grad=True)
    with Tracker(CPU) as tracker:
        checkpoint(layers, x, use_reentrant=reentrant).sum().backward()
    recomputed = [e for e in tracker.xray().events if e.category is Category.RECOMPUTED and e.bytes > 0]
    # Layers 2 to 4 keep their inputs: three tensors come back; the output of layer 4 is not needed.
    assert [event.bytes for event in recomputed[:3]] == [8 * 16 * FLOAT] * 3


def test_an_optimizer_step_inside_backward_frees_each_gradient():
    model = nn.Sequential(*[nn.Linear(64, 64, bias=False) for _ in range(4)])
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    with Tracker(CPU) as tracker:
        model(torch.randn(2, 64)).sum().backward()
    gradients = [e.bytes for e in tracker.xray().events if e.category is Category.GRADIENT]
    assert gradients == [64 * 64 * FLOAT, -64 * 64 * FLOAT] * 4


def test_a_copy_of_the_weights_is_no_activation():
    model = nn.Linear(16, 16, bias=False)
    with Tracker(CPU) as tracker:
        copy = [weight.detach().clone() for weight in model.parameters()]
        model(torch.ones(2, 16)).sum().backward()
    (born,) = [e for e in tracker.xray().events if e.op == "aten.clone"]
    assert (born.phase, born.category) == (Phase.OTHER, Category.INPUT)
    del copy


def test_gradients_that_no_operator_uses_are_gradients_all_the_same():
    model = nn.Linear(16, 16, bias=False)
    with Tracker(CPU) as tracker:
        model(torch.ones(2, 16)).sum().backward()
        model.zero_grad()
    gradients = [e.bytes for e in tracker.xray().events if e.category is Category.GRADIENT]
    assert gradients == [16 * 16 * FLOAT, -16 * 16 * FLOAT]


def flops_of_a_step(loss_of):
    with Tracker(CPU) as tracker:
        loss_of().backward()
    return tracker.xray().flops


def test_flops_are_those_of_torch_s_own_counter():
    from torch.utils.flop_counter import FlopCounterMode

    model, loss_of, _ = gpt_case()
    with sdpa_kernel(SDPBackend.MATH):  # torch's counter knows the CPU's own attention not
        with FlopCounterMode(display=False) as counter:
            loss_of().backward()
        model.zero_grad()
        assert flops_of_a_step(loss_of) == counter.get_total_flops() > 0


@pytest.mark.parametrize("kind", [torch.nn.Conv2d, torch.nn.ConvTranspose2d])
def test_a_convolution_in_groups_takes_as_many_times_less(kind):
    def flops(groups):
        layer = kind(8, 8, 3, groups=groups, bias=False)
        return flops_of_a_step(lambda: layer(torch.ones(2, 8, 16, 16, requires_grad=True)).sum())

    forward = 2 * 2 * 8 * 8 * 9 * (16 * 16 if kind is torch.nn.ConvTranspose2d else 14 * 14)
    assert flops(1) == 3 * forward
    assert flops(4) == 3 * forward // 4


def test_the_cpus_own_attention_counts_as_a_cards():
    _, loss_of, _ = gpt_case()
    fused = flops_of_a_step(loss_of)
    with sdpa_kernel(SDPBackend.MATH):
        products = flops_of_a_step(loss_of)
    assert fused > products  # its backward makes the scores again
    assert fused - products < 0.2 * products


class FakeAllocator:
    """Counts the tensors that a tracker sees, ``extra`` bytes beside them, and ``scratch`` more during an operator."""

    def __init__(self, extra, scratch):
        self.extra, self.scratch = extra, scratch
        self.tracker = Tracker(CPU, allocator=self)

    def read_and_reset_peak(self):
        unseen = self.tracker._workspace.nbytes + self.tracker._earlier.nbytes
        current = self.tracker.live - unseen + self.extra
        return current, current + self.scratch, 2 * current


def bytes_of(xray, category):
    return [event.bytes for event in xray.events if event.category is category]


def test_what_tensors_do_not_explain_is_workspace():
    allocator = FakeAllocator(extra=0, scratch=50)
    with allocator.tracker as tracker:
        allocator.extra = 1000
        x = torch.zeros(100)
        y = x + 1
    xray = tracker.xray()
    assert xray.peak_allocated == 2 * 400 + 1000 + 50
    assert bytes_of(xray, Category.WORKSPACE) == [1050, -50, 50, -50]
    assert tracker.live == 2 * 400 + 1000
    del x, y


def test_what_lay_there_before_the_run_is_no_workspace():
    allocator = FakeAllocator(extra=5000, scratch=0)
    with allocator.tracker as tracker:
        allocator.extra += 1000
        x = torch.zeros(100)
    xray = tracker.xray()
    assert xray.start == {Category.HELD: 5000}
    assert bytes_of(xray, Category.WORKSPACE) == [1000]
    del x


def test_what_came_while_the_tracker_was_off_is_held_over_until_it_is_freed():
    allocator = FakeAllocator(extra=0, scratch=0)
    with allocator.tracker as tracker:
        allocator.extra = 1000  # a library's workspace, in the first step
        x = torch.zeros(100)
    allocator.extra += 5000  # tensors of a plain step
    with tracker:
        allocator.extra += 10  # a block larger than its tensor
        y = x + 1
        allocator.extra -= 4010
        x.mul_(2)
    xray = tracker.xray()
    assert xray.start[Category.HELD] == 5000 + 400  # and x
    assert xray.start[Category.WORKSPACE] == 1000
    assert bytes_of(xray, Category.WORKSPACE) == [10, -10]
    assert [e.bytes for e in xray.events if e.category is Category.HELD and e.op == "aten.mul_"] == [-4000]
    del x, y


def test_operators_that_allocate_nothing_are_not_asked_about():
    class Counted(FakeAllocator):
        reads = 0

        def read_and_reset_peak(self):
            self.reads += 1
            return super().read_and_reset_peak()

    allocator = Counted(extra=0, scratch=0)
    with allocator.tracker:
        reads = allocator.reads
        x = torch.zeros(4, 4)
        x.view(16), x.t(), x[1:].detach().unsqueeze(0)
        x.add_(1)
    assert allocator.reads == reads + 2


def test_a_thread_in_which_autograd_runs_is_followed_at_once():
    """As backward's thread on a card: it has the mode, and no operator has run there yet."""
    model, names = nn.Sequential(nn.Linear(4, 4)), []
    model[0].register_forward_hook(lambda *_: names.append(tracker._modules.name))

    def elsewhere():
        with on_again(tracker):
            model(torch.ones(2, 4))

    with Tracker(CPU) as tracker:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    # Its own hooks run after those of all modules: what is at work then is the model around it.
    assert names == ["Sequential"]


@counted_by_hand
def test_optimizer_state_in_tuples_is_optimizer_state():
    class Packed(torch.optim.SGD):
        def step(self):
            super().step()
            for parameter in self.param_groups[0]["params"]:
                self.state[parameter]["packed"] = (torch.zeros_like(parameter), [torch.zeros(1000)])

    def train_packed(device):
        model = torch.nn.Linear(100, 100, bias=False).to(device)
        optimizer = Packed(model.parameters(), lr=0.1)
        while True:
            loss = model(torch.ones(1, 100, device=device)).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield loss

    trace = measure(train_packed, device=DEVICE)
    assert trace.start[Category.OPTIMIZER_STATE] == 4 * (100 * 100 + 1000)


def test_flops_and_temporaries_are_seen_in_inference_mode_too():
    layer, x = nn.Linear(64, 64), torch.ones(8, 64)
    with Tracker(CPU) as tracker, torch.inference_mode():
        F.mse_loss(layer(x), torch.zeros(8, 64))
    xray = tracker.xray()
    assert xray.flops == 2 * 8 * 64 * 64
    assert "aten.linear" not in {event.op for event in xray.events}


def test_a_formula_of_operations_that_raises_ends_no_run():
    def wrong(*args, out_val, **kwargs):
        raise ZeroDivisionError

    from memlab.tracking.operators import operator

    known = operator(torch.ops.aten.erfinv.default)
    known.formula = wrong
    try:
        with Tracker(CPU) as tracker:
            torch.erfinv(torch.zeros(4))
    finally:
        known.formula = None
    assert tracker.xray().flops == 0


class Mine(TorchDispatchMode):
    """A mode of the reader's, which counts operators."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_a_readers_own_mode_may_stay_on_over_a_yield():
    mine, seen = Mine(), []

    def train_under(device):
        layer, x = nn.Linear(8, 8, bias=False), torch.ones(4, 8)
        for step in range(6):
            if step == 1:
                mine.__enter__()
            loss = layer(x).sum()
            loss.backward()
            layer.zero_grad()
            if step == 4:
                mine.__exit__(None, None, None)
            seen.append(mine.count)
            yield loss

    trace = measure(train_under, device=DEVICE, steps=6, xray="every")
    assert seen[0] == 0 < seen[1]
    assert seen[2] - seen[1] == seen[3] - seen[2] == seen[4] - seen[3] > 0  # with what reads the loss
    assert seen[5] == seen[4]
    assert trace.flops == 2 * (2 * 4 * 8 * 8)  # forward, and the gradient of the weights
    assert [step.peak_allocated for step in trace.steps[2:]] == [trace.steps[2].peak_allocated] * 4
    assert _get_current_dispatch_mode_stack() == []


def test_what_has_a_kernel_of_its_own_is_not_taken_apart():
    def train(device):
        x = torch.ones(256, 256, device=device, requires_grad=True)
        while True:
            loss = torch.nn.functional.silu(x).sum()
            loss.backward()
            yield loss

    operators = {event.op for event in measure(train, device=DEVICE).events if event.phase == "backward"}
    assert "aten.silu_backward" in operators
    assert "aten.sigmoid" not in operators
