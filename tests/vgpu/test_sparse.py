"""Sparse gradients: what their indices and values take, and what optimizers make of them."""

import gc
import re

import pytest
import torch
from torch import nn

from memlab import predict
from memlab.errors import Unpredictable
from memlab.vgpu import find_card
from memlab.vgpu.scratch import cub
from tests.vgpu.once import in_a_prediction, seen

# PyTorch's own, of each sparse tensor that Adagrad makes.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
ROWS, WIDTH, TOKENS = 5000, 64, 4096
OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "SparseAdam": lambda parameters: torch.optim.SparseAdam(parameters, lr=0.1),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
}


def loop(optimizer, *, mode=None, count=TOKENS, rows=ROWS, differ=False, passes=1, set_to_none=True, **options):
    """Tokens are one alone, or all different."""
    kind = nn.Embedding if mode is None else nn.EmbeddingBag
    options |= {} if mode is None else {"mode": mode}

    def train(device):
        table = kind(rows, WIDTH, sparse=True, **options).to(device)
        optimize = OPTIMIZERS[optimizer](table.parameters())
        while True:
            for _ in range(passes):
                tokens = (torch.arange(count) if differ else torch.full((count,), 7)).to(device)
                starts = () if mode is None else (torch.arange(0, count, 8, device=device),)
                loss = table(tokens, *starts).square().mean()
                loss.backward()
            optimize.step()
            optimize.zero_grad(set_to_none=set_to_none)
            yield loss

    return train


# What a plain loop of three steps takes with PyTorch 2.13 on the stand-in's T4, allocated and reserved. Where rows are
# counted there, STANDIN_FOUND said how many differ.
PEAKS = [
    ("SGD", {}, 6556672, 27262976),
    ("SGD", {"differ": True}, 6556672, 27262976),
    ("SGD", {"passes": 2}, 7638016, 29360128),
    ("SGD", {"passes": 3}, 8719360, 29360128),
    ("SGD", {"set_to_none": False}, 6556672, 27262976),
    ("SGD", {"differ": True, "padding_idx": 4999}, 6556672, 27262976),
    ("SGD", {"count": 300_000, "rows": 100_000}, 415974400, 438304768),
    ("momentum", {}, 8719360, 29360128),
    ("momentum", {"passes": 3}, 20777472, 50331648),
    ("SparseAdam", {}, 9116672, 27262976),
    ("SparseAdam", {"differ": True}, 11246080, 29360128),
    ("SparseAdam", {"differ": True, "padding_idx": 4999}, 11278848, 29360128),
    ("SparseAdam", {"passes": 2}, 10198016, 29360128),
    ("SparseAdam", {"count": 300_000, "rows": 100_000}, 467174400, 515899392),
    ("Adagrad", {}, 7836672, 27262976),
    ("Adagrad", {"differ": True}, 7836672, 27262976),
    ("Adagrad", {"passes": 3}, 9999360, 29360128),
    ("SGD", {"mode": "sum"}, 2534400, 23068672),
    ("SGD", {"mode": "mean"}, 2554880, 23068672),
    ("SGD", {"mode": "mean", "passes": 2}, 5610496, 25165824),
    ("SGD", {"mode": "sum", "differ": True, "padding_idx": 4999}, 3652608, 25165824),
    ("SparseAdam", {"mode": "sum"}, 5094400, 23068672),
    ("SparseAdam", {"mode": "mean"}, 5114880, 23068672),
    ("Adagrad", {"mode": "mean"}, 3834880, 23068672),
]


@pytest.mark.parametrize(("optimizer", "options", "allocated", "reserved"), PEAKS)
def test_a_loop_takes_what_cuda_takes(optimizer, options, allocated, reserved):
    trace = predict(loop(optimizer, **options), gpu="T4", steps=3)
    assert (max(step.peak_allocated for step in trace.steps), trace.peak_reserved) == (allocated, reserved)
    assert (trace.notes, trace.guesses) == ((), ())


def test_rows_that_nobody_knows_are_as_many_as_can_be():
    def train(device):
        table = nn.Embedding(50_000, WIDTH, sparse=True).to(device)
        optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
        while True:
            table(torch.randint(50_000, (TOKENS,), device=device)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            yield

    trace = predict(train, gpu="T4", steps=3)
    assert trace.peak_allocated == 45805568  # on the stand-in where all differ
    (note,) = trace.notes
    assert "How many rows a sparse gradient has is not known" in note


def test_no_more_rows_than_the_table_has():
    def work(device):
        tokens = torch.randint(10, (40,), device=device)
        table = nn.Embedding(10, 4, sparse=True).to(device)
        table(tokens).sum().backward()
        return table.weight.grad.coalesce()._nnz()

    assert seen(work) == 10


def test_padding_that_nobody_knows_is_taken_for_none():
    def work(device):
        table = nn.Embedding(10, 4, sparse=True, padding_idx=0).to(device)
        table(torch.randint(10, (4, 10), device=device)).sum().backward()
        return table.weight.grad._nnz()

    count, trace = in_a_prediction(work)
    assert count == 40
    assert "Which tokens are padding is not known" in trace.notes[0]


def test_padding_and_rows_are_counted_where_they_are_known():
    def work(device):
        table = nn.Embedding(10, 4, sparse=True, padding_idx=0).to(device)
        table(torch.tensor([[5, 0, 3], [5, 0, 9]]).to(device)).sum().backward()
        gradient = table.weight.grad
        summed = gradient.coalesce()
        return gradient._nnz(), gradient.is_coalesced(), summed.is_coalesced(), summed.indices().tolist()

    assert seen(work) == (4, False, True, [[3, 5, 9]])


def test_indices_of_two_dimensions():
    def work(device):
        indices = torch.tensor([[0, 1, 1, 0], [2, 0, 0, 1]]).to(device)
        sparse = torch.sparse_coo_tensor(indices, torch.ones(4, device=device), (2, 3))
        return sparse.coalesce().indices().tolist(), (sparse.sparse_dim(), sparse.dense_dim(), sparse._nnz())

    assert seen(work) == ([[0, 0, 1], [1, 2, 0]], (2, 0, 4))


def sparse_gradient(device, *, is_coalesced=False):
    indices, values = torch.arange(1000).view(1, -1).to(device), torch.zeros(1000, 4, device=device)
    return torch.sparse_coo_tensor(indices, values, (2000, 4), check_invariants=False, is_coalesced=is_coalesced)


# What an operator on 1,000 rows of 2,000 takes at most, and what of it stays, with PyTorch on the stand-in's T4.
OPERATORS = {
    "coalesce": (lambda g: g.coalesce(), 41472, 24576),
    "to_dense": (lambda g: g.to_dense(), 32256, 32256),
    "clone": (lambda g: g.clone(), 24576, 24576),
    "detach": (lambda g: g.detach(), 0, 0),
    "neg": (lambda g: -g, 24576, 24576),
    "mul": (lambda g: g * 2, 24576, 24576),
    "mul_": (lambda g: g.mul_(2), 24576, 0),
    "div_": (lambda g: g.div_(2), 0, 0),
    "add": (lambda g: g + g, 48640, 48640),
    "add of twice as much": (lambda g: g.clone().add_(g, alpha=2), 89600, 48640),
    "zero_": (lambda g: g.clone().zero_().add_(g), 24576, 24576),
    "half": (lambda g: g.half(), 16384, 16384),
    "norm": (lambda g: g.norm(2), 41472, 512),
    "sum": (lambda g: g.sum(), 512, 512),
    "added to what is dense": (lambda g: torch.zeros(g.shape, device=g.device).add_(g), 32256, 32256),
    "mask": (lambda g: torch.zeros(g.shape, device=g.device).sparse_mask(g), 73728, 24576),
    "foreach": (lambda g: torch._foreach_neg([g]), 24576, 24576),
}


@pytest.mark.parametrize(("operator", "peak", "kept"), OPERATORS.values(), ids=OPERATORS)
def test_an_operator_takes_what_cuda_takes(operator, peak, kept):
    def work(device):
        gradient = sparse_gradient(device)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        result = operator(gradient)
        taken = torch.cuda.max_memory_allocated() - before, torch.cuda.memory_allocated() - before
        del result
        return taken

    assert seen(work) == (peak, kept)


def test_a_sparse_tensor_lets_go_of_what_it_holds():
    def work(device):
        before = torch.cuda.memory_allocated()
        sparse = sparse_gradient(device, is_coalesced=True)
        held = torch.cuda.memory_allocated() - before
        sparse.values().sum(), sparse.indices()
        del sparse
        return held, torch.cuda.memory_allocated() - before

    gc.disable()
    try:
        assert seen(work) == (24576, 0)
    finally:
        gc.enable()


def test_a_copy_in_a_hook_is_a_copy():
    def work(device, hook):
        table = nn.Embedding(100, 64, sparse=True).to(device)
        table.weight.register_hook(hook)
        tokens = torch.zeros(800, dtype=torch.int64, device=device)
        before = torch.cuda.memory_allocated()
        table(tokens).square().sum().backward()
        return torch.cuda.memory_allocated() - before

    values, indices = 800 * 64 * 4, 6656
    assert seen(lambda device: work(device, lambda gradient: None)) == values  # its indices are the tokens
    assert seen(lambda device: work(device, lambda gradient: gradient.clone())) == values + indices


def test_it_comes_and_goes():
    def work(device):
        host = torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (4,))
        sparse = host.to(device)
        back = sparse.cpu()
        empty = torch.sparse_coo_tensor(size=(4, 3), device=device)
        return sparse.is_sparse, sparse.device, back.layout, back._indices().tolist(), empty._nnz()

    assert seen(work) == (True, torch.device("cuda:0"), torch.sparse_coo, [[0, 2]], 0)


@pytest.mark.parametrize(
    "work",
    [
        lambda g: nn.utils.get_total_norm([g]),  # as clip_grad_norm_, for which CUDA has no kernel
        lambda g: torch.sparse.mm(g, torch.zeros(4, 2, device=g.device)),
        lambda g: g * g,
        lambda g: g[3],
        lambda g: g + torch.zeros(g.shape, device=g.device),
        lambda g: torch.zeros(g.shape, device=g.device).copy_(g),
        lambda g: torch.zeros(g.shape, device=g.device).to_sparse(),
        lambda g: torch.zeros(4, 4, device=g.device).to_sparse_csr(),
    ],
)
def test_the_rest_is_refused_in_one_sentence(work):
    with pytest.raises(Unpredictable, match=r"at test_sparse.py:\d+ works on a sparse tensor, which cannot") as refusal:
        seen(lambda device: work(sparse_gradient(device)))
    assert re.fullmatch(r"[^\n]*\.", str(refusal.value))


def test_pytorchs_own_errors_stay():
    with pytest.raises(RuntimeError, match="Cannot get values on an uncoalesced tensor"):
        seen(lambda device: sparse_gradient(device).values())
    with pytest.raises(RuntimeError, match="scale_grad_by_freq not supported with sparse gradients"):
        predict(loop("SGD", scale_grad_by_freq=True), steps=1)


# The temporary storage that thrust takes to coalesce so many entries, on the stand-in.
@pytest.mark.parametrize(
    ("gpu", "count", "sort", "unique"),
    [
        ("T4", 2, 1023, 1535),
        ("T4", 2049, 33791, 1535),
        ("T4", 20_000, 320511, 1791),
        ("T4", 3_000_000, 48006143, 76287),
        ("A100-40GB", 1_000_000, 16002303, 7423),
        ("H100", 3_000_000, 48006143, 6399),
    ],
)
def test_thrust_takes_what_it_took(gpu, count, sort, unique):
    assert cub.merge_sort(count, 8, 8) == sort
    assert cub.thrust_unique_by_key(find_card(gpu), count, 8) == unique


@pytest.mark.filterwarnings("ignore:Validating sparse tensor invariants")  # PyTorch's own, since 2.15
def test_a_momentum_is_saved_and_loaded(tmp_path):
    path = tmp_path / "momentum.pt"
    torch.save({"momentum": torch.sparse_coo_tensor([[0, 2]], [[1.0], [2.0]], (4, 1))}, path)

    def work(device):
        table = nn.Embedding(500, 8, sparse=True).to(device)
        optimizer = OPTIMIZERS["momentum"](table.parameters())
        table(torch.zeros(40, dtype=torch.int64).to(device)).square().sum().backward()
        optimizer.step()
        torch.save(optimizer.state_dict(), "optimizer.pt")
        optimizer.load_state_dict(torch.load("optimizer.pt"))
        (state,) = optimizer.state.values()
        host = torch.load(path)["momentum"]
        momentum = state["momentum_buffer"]
        return momentum.layout, momentum.device, momentum._nnz(), host.device, host._indices().tolist()

    assert seen(work) == (torch.sparse_coo, torch.device("cuda:0"), 40, torch.device("cpu"), [[0, 2]])


def test_a_sparse_buffer_is_the_hosts_again():
    class Graph(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("edges", torch.sparse_coo_tensor([[0, 1], [1, 0]], [3.0, 4.0], (2, 2)))

    graph = Graph()
    held = seen(lambda device: (graph.to(device).edges.device, torch.cuda.memory_allocated()))
    assert held == (torch.device("cuda:0"), 1024)
    assert (graph.edges.device.type, graph.edges.to_dense().tolist()) == ("cpu", [[0, 3], [4, 0]])
