"""The calls of other people's libraries to a card and to CUDA, beside PyTorch."""

import sys
import threading
import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from memlab import measure, predict
from memlab.vgpu import libraries
from memlab.vgpu.internals import FakeTensor
from tests.vgpu.once import in_a_prediction, seen


@torch.library.custom_op("memlab_tests::scaled", mutates_args=())
def scaled(tensor: torch.Tensor, by: float, times: int = 1) -> torch.Tensor:
    return tensor * (by * times)


@scaled.register_fake
def _(tensor, by, times=1):
    return torch.empty_like(tensor)


@torch.library.custom_op("memlab_tests::in_pieces", mutates_args=())
def in_pieces(tensor: torch.Tensor, opaque: bool) -> torch.Tensor:
    whole = torch.cat([2 * piece for piece in tensor.split(16)])
    if opaque and isinstance(tensor, FakeTensor):
        raise TypeError("incompatible function arguments")  # as C++ says where a tensor has no memory
    return whole


@in_pieces.register_fake
def _(tensor, opaque):
    return torch.empty_like(tensor)


@torch.library.custom_op("memlab_tests::on_cards", mutates_args={"tensor"}, device_types="cuda")
def on_cards(tensor: torch.Tensor) -> None:
    tensor.add_(torch.ones_like(tensor))


OPERATORS = {
    "operator": torch.ops.memlab_tests.scaled.default,
    "of any form": torch.ops.memlab_tests.scaled,
    "Python": scaled,
}


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
def test_a_tensor_of_the_card_is_asked_where_an_operator_takes_a_number(operator):
    def train(device):
        x = torch.randn(64, 64, device=device)
        while True:
            yield operator(x, x.norm(), times=torch.tensor(2, device=device)).sum()

    assert predict(train, gpu="H100", steps=3).peak_allocated == 33_792  # as on a card


def test_the_line_that_asked_is_told():
    def work(device):
        x = torch.randn(4, device=device)
        scaled(x, torch.tensor(2.0, device=device))  # a number that is known
        scaled(x, x.norm())

    (line,) = in_a_prediction(work)[1].guesses
    assert line.startswith("test_libraries.py:")


def test_the_wrong_argument_is_an_error_as_before():
    with pytest.raises(RuntimeError, match="scaled"):
        seen(lambda device: scaled(torch.ones(2, device=device), "2"))


def test_a_card_has_a_version_of_cuda():
    real = torch.version.cuda
    beside = []
    start = threading.Thread.start

    def work(device):
        thread = threading.Thread(target=lambda: beside.append(torch.version.cuda))
        start(thread)
        thread.join()
        return torch.version.cuda

    assert seen(work) == (real or "13.0")
    assert beside == [real]
    assert torch.version.cuda == real
    assert type(torch.version) is types.ModuleType


class GlobalPageManager:
    """As bitsandbytes' own."""

    instance = None

    @classmethod
    def get_instance(cls):
        if cls.instance is None:
            cls.instance = cls()
            cls.instance.paged_tensors = []
        return cls.instance


def no_cuda(*args, **kwargs):
    raise RuntimeError("Method 'cget_managed_ptr' not available in CPU-only version of bitsandbytes.")


@pytest.fixture
def functional(monkeypatch):
    """``bitsandbytes.functional`` as it is without CUDA."""
    library = types.ModuleType(libraries.BITSANDBYTES)
    library.name2qmap = {}
    library.GlobalPageManager = GlobalPageManager
    library.get_paged = library.fill = library.prefetch_tensor = no_cuda
    monkeypatch.setitem(sys.modules, library.__name__, library)
    return library


@pytest.mark.parametrize("shape", [(1024, 1024), (1001, 333)])
def test_the_state_of_a_paged_optimizer_is_not_on_the_card(functional, shape):
    manager = GlobalPageManager.get_instance()
    real = torch.zeros(3)
    manager.paged_tensors.append(real)

    def work(device):
        nn.Linear(2, 2, device=device)(torch.ones(2, device=device))
        before = torch.cuda.memory_allocated()
        state = functional.get_paged(*shape, dtype=torch.uint8, device=device)
        functional.fill(state, 0)
        functional.prefetch_tensor(state)
        manager.paged_tensors.append(state)
        took = torch.cuda.memory_allocated() - before
        return state.is_paged, state.dtype, state.shape, str(state.device), isinstance(state, FakeTensor), took

    assert seen(work) == (True, torch.uint8, shape, "cpu", True, 0)
    assert manager.paged_tensors == [real]
    assert functional.get_paged is no_cuda
    manager.paged_tensors.clear()


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("as_inputs", [lambda x: x, lambda x: (x,)], ids=["a tensor", "a tuple"])
def test_the_drawing_of_a_model_takes_its_run(as_inputs):
    library = types.ModuleType("torch.utils.tensorboard._pytorch_graph")  # which needs tensorboard
    exec(
        "import torch\n"
        "def graph(model, inputs):\n"
        "    trace = torch.jit.trace(model, inputs, strict=True)\n"
        "    torch._C._jit_pass_inline(trace.graph)\n"
        "    return [*trace.graph.nodes()], [*trace.named_modules()]\n",
        vars(library),
    )

    def work(device):
        model = nn.Linear(256, 1024, device=device)
        x = torch.ones(512, 256, device=device)
        model(x)  # the workspace of products stays
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        nodes, _ = library.graph(model, as_inputs(x))
        return nodes, (torch.cuda.max_memory_allocated() - before) // (512 * 1024 * 4)

    assert seen(work) == ([], 2)


@pytest.mark.parametrize("where", ["cpu", "T4"])
def test_the_python_function_of_a_custom_operator_is_seen(where):
    def train(device):
        x = torch.ones(64, 2**20, device=device)  # floats: 256 MiB
        while True:
            yield in_pieces(x, False)[0, 0]

    trace = measure(train, device="cpu", xray="every") if where == "cpu" else predict(train, gpu="T4")
    assert trace.peak_allocated == pytest.approx(3 * 2**28, rel=0.001)  # the pieces, and what is made of them
    assert "aten.cat" in {event.op for event in trace.events}
    assert trace.notes == ()


@pytest.mark.filterwarnings("ignore")  # of the compiler's own
def test_it_is_seen_where_it_writes_in_place_for_cards_alone_and_in_compiled_code():
    def writing(device):
        x = torch.ones(2**20, device=device)  # 4 MiB
        while True:
            on_cards(x)
            yield x[0]

    def compiled(device):
        run = torch.compile(lambda x: in_pieces(x, False) * 2)
        x = torch.ones(64, 2**14, device=device)
        while True:
            yield run(x)[0, 0]

    assert predict(writing, gpu="T4").peak_allocated == 2 * 2**22
    assert predict(compiled, gpu="T4").peak_allocated == 3 * 2**22  # x, the pieces, and what is made of them


def test_where_it_is_not_python_all_the_way_its_results_are_counted_and_a_note_says_so():
    def train(device):
        x = torch.ones(64, 2**20, device=device)
        while True:
            yield in_pieces(x, True)[0, 0]

    trace = predict(train, gpu="T4")
    assert trace.notes == ("Of memlab_tests.in_pieces only the results are counted: no prediction can run its code.",)


def test_out_of_memory_in_a_custom_operator_is_a_result():
    def train(device):
        x = torch.empty(64, 2**25, device=device)  # 8 GiB
        while True:
            yield in_pieces(x, False)[0, 0]

    assert predict(train, gpu="T4").oom.op == "aten.mul"


@pytest.mark.skipif(not hasattr(nn, "LinearCrossEntropyOptions"), reason="since torch 2.13")
def test_the_chunked_loss_takes_what_it_does_on_a_card():
    def train(device):
        x, weight = (torch.ones(n, 64, device=device, requires_grad=True) for n in (512, 5000))
        targets = torch.zeros(512, dtype=torch.long, device=device)
        options = nn.LinearCrossEntropyOptions(batch_chunk_size=128)
        while True:
            F.linear_cross_entropy(x, weight, targets, options=options).backward()
            x.grad = weight.grad = None
            yield

    trace = predict(train, gpu="A100-40GB")
    assert (trace.peak_allocated, trace.peak_reserved) == (13_946_880, 23_068_672)  # on the stand-in
    assert trace.flops == 3 * 2 * 512 * 64 * 5000
