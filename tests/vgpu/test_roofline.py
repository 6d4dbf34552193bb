"""The least time of a step: worked out by hand for single operators, and what must not count."""

import pytest
import torch
from torch.nn import functional as F

from memlab import measure, predict
from memlab.trace import Trace
from memlab.units import MIB
from memlab.vgpu.cards import CARDS
from memlab.vgpu.time.operator_work import Kind, work_of
from tests.vgpu.once import seen
from tests.vgpu.test_bytes import train_gpt

LARGE = 2**27  # numbers of four bytes: no card's cache holds them


@pytest.fixture(autouse=True)
def _precision():
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


def least(operate, *, gpu="T4"):
    """The least seconds of a step that only calls ``operate()`` with what ``operate(None)`` once gave."""

    def train(device):
        given = operate(device)
        yield
        while True:
            given[0](*given[1:])
            yield

    return predict(train, gpu=gpu).least_seconds


def product(dtype=torch.float32, size=4096):
    def make(device):
        return torch.mm, *(torch.empty(size, size, device=device, dtype=dtype) for _ in range(2))

    return make


def gpu_seconds(size, teraflops):
    return 2 * size**3 / (teraflops * 10**12)


@pytest.mark.parametrize(
    ("gpu", "dtype", "precision", "teraflops"),
    [
        ("T4", torch.float32, "highest", 8.1),
        ("T4", torch.float32, "high", 8.1),
        ("T4", torch.float16, "highest", 65),
        ("T4", torch.bfloat16, "highest", 8.1),
        ("A100-40GB", torch.float32, "highest", 19.5),
        ("A100-40GB", torch.float32, "high", 156),
        ("A100-40GB", torch.bfloat16, "highest", 312),
    ],
)
def test_a_product_takes_its_operations_at_the_cards_peak_for_its_type(gpu, dtype, precision, teraflops):
    torch.set_float32_matmul_precision(precision)
    assert least(product(dtype), gpu=gpu) == pytest.approx(gpu_seconds(4096, teraflops))


def test_what_is_not_multiplied_takes_its_bytes():
    speed = CARDS["T4"].speed
    one = 4 * LARGE
    two_in_one_out = (2 * one - speed.cache + one - speed.cache) / speed.memory
    numbers = [lambda device: torch.empty(LARGE, device=device)] * 2
    assert least(lambda device: (torch.add, *(make(device) for make in numbers))) == pytest.approx(two_in_one_out)


def test_a_storage_counts_once_and_what_is_broadcast_once():
    speed = CARDS["T4"].speed
    one_in_one_out = 2 * (4 * LARGE - speed.cache) / speed.memory

    def twice(device):
        numbers = torch.empty(LARGE, device=device)
        torch.mul(numbers, torch.empty(LARGE, device=device))  # which is remembered, and is not the same
        return torch.mul, numbers, numbers

    def broadcast(device):
        numbers = torch.empty(2, LARGE // 2, device=device)
        row = torch.empty(2, LARGE // 2, device=device)[:1]
        return torch.mul, numbers, row.expand_as(numbers)

    assert least(twice) == pytest.approx(one_in_one_out)
    assert least(broadcast) == pytest.approx(one_in_one_out + 2 * LARGE / speed.memory)  # half of the other
    assert least(lambda device: (torch.Tensor.view, torch.empty(LARGE, device=device), 2, -1)) == 0


def test_what_the_cache_holds_may_be_free():
    assert least(lambda device: (torch.add, torch.empty(MIB // 2, device=device), 1)) == 0  # 2 MiB, of 4
    assert least(lambda device: (torch.add, torch.empty(4 * MIB, device=device), 1)) > 0


def test_a_table_is_not_read_for_a_few_of_its_rows():
    def look_up(device):
        return (
            F.embedding,
            torch.zeros(8, dtype=torch.int64, device=device),
            torch.empty(LARGE // 64, 64, device=device),
        )

    assert least(look_up) == 0


def test_what_is_changed_in_place_is_written():
    speed = CARDS["T4"].speed

    def in_place(device):
        numbers = torch.empty(LARGE, device=device)
        return lambda: torch._foreach_mul_([numbers], 2.0)

    expected = 2 * (4 * LARGE - speed.cache) / speed.memory
    assert least(lambda device: (in_place(device),)) == pytest.approx(expected)


def test_copies_between_host_and_card_go_at_the_speed_of_the_bus():
    def there(device):
        return torch.Tensor.to, torch.empty(LARGE), device

    def back(device):
        return torch.Tensor.cpu, torch.empty(LARGE, device=device)

    for copy in (there, back):
        assert least(copy) == pytest.approx(4 * LARGE / CARDS["T4"].speed.bus)


@pytest.mark.parametrize("operate", [torch.mm, torch.add])
def test_what_the_host_computes_is_not_in_it(operate):
    square = torch.empty(512, 512)
    assert least(lambda device: (operate, square, square)) == 0


def test_streams_may_run_side_by_side():
    def beside(device):
        numbers, factor = torch.empty(LARGE), torch.empty(4096, 4096, device=device)
        stream = torch.cuda.Stream()

        def both():
            with torch.cuda.stream(stream):
                numbers.to(device)
            torch.mm(factor, factor)

        return (both,)

    assert least(beside) == pytest.approx(max(4 * LARGE / CARDS["T4"].speed.bus, gpu_seconds(4096, 8.1)))


@pytest.mark.parametrize(("kernel", "stride", "fewer"), [(1, 1, 1), (3, 1, 4), (5, 1, 6.25), (3, 2, 1)])
def test_a_convolution_may_be_winograds(kernel, stride, fewer):
    torch.backends.cudnn.allow_tf32 = False

    def convolve(device):
        images, weight = (
            torch.empty(64, 256, 64, 64, device=device),
            torch.empty(512, 256, kernel, kernel, device=device),
        )
        return lambda: F.conv2d(images, weight, stride=stride, padding=kernel // 2)

    flops = 2 * 64 * (64 // stride) ** 2 * 512 * 256 * kernel**2
    assert least(lambda device: (convolve(device),)) == pytest.approx(flops / fewer / 8.1e12)


def test_convolutions_run_on_tensor_cores_by_default():
    def convolve(device):
        images, weight = torch.empty(64, 256, 64, 64, device=device), torch.empty(512, 256, 1, 1, device=device)
        return F.conv2d, images, weight

    flops = 2 * 64 * 64**2 * 512 * 256
    assert least(convolve, gpu="A10G") == pytest.approx(flops / 35e12)


def test_causal_attention_is_half_of_it():
    def attend(causal):
        def make(device):
            query = torch.empty(8, 16, 8192, 64, device=device, dtype=torch.float16)
            return lambda: F.scaled_dot_product_attention(query, query, query, is_causal=causal)

        return lambda device: (make(device),)

    assert least(attend(True), gpu="A100-40GB") == pytest.approx(least(attend(False), gpu="A100-40GB") / 2)


def test_an_operator_tells_its_kind():
    def work(device):
        factor = torch.empty(8, 8, device=device)
        return [
            work_of(torch.ops.aten.mm.default, (factor, factor), {}, factor),
            work_of(torch.ops.aten.t.default, (factor,), {}, factor.t()),
        ]

    multiplied, viewed = seen(work)
    assert (multiplied.kind, multiplied.flops, multiplied.read, multiplied.written) == (Kind.PRODUCT, 1024, 256, 256)
    assert (viewed.flops, viewed.read, viewed.written) == (0, 0, 0)


def test_the_last_step_counts_and_not_what_sets_up():
    def train(device):
        torch.empty(LARGE).to(device)
        while True:
            yield torch.ones((), device=device)

    assert predict(train, steps=1).least_seconds > 0
    assert predict(train, steps=2).least_seconds == 0


def test_every_card_has_speeds_that_agree_with_its_architecture():
    for card in CARDS.values():
        speed = card.speed
        assert speed.fp32 <= speed.tf32 <= speed.fp16
        assert speed.bf16 == (speed.fp16 if card.bf16 else speed.fp32)
        assert card.sm >= 80 or speed.tf32 == speed.fp32
        assert speed.bus < speed.memory


def test_a_trace_says_it_and_keeps_it():
    trace = predict(train_gpt, gpu="A100-40GB", precision="bf16")
    assert 0 < trace.least_seconds <= trace.likely_seconds
    assert Trace.from_json(trace.to_json()) == trace
    assert trace.time_sentence.startswith("at least ")
    assert trace.time_sentence.split(", ")[0].endswith(" a step on A100-40GB")


def test_the_same_prediction_again_says_the_same():
    assert predict(train_gpt).least_seconds == predict(train_gpt).least_seconds


def test_what_was_measured_or_ran_out_of_memory_says_nothing():
    failed = predict(train_gpt, budget="3 MiB")
    for trace in (failed, measure(train_gpt, device="cpu", steps=1)):
        assert (trace.least_seconds, trace.likely_seconds, trace.time_sentence) == (None, None, "")
    assert failed.oom


def test_collectives_are_left_out_of_it():
    alone, together = predict(train_gpt), predict(train_gpt, world_size=4)
    assert alone.least_seconds == together.least_seconds


def test_a_loop_that_ends_early_takes_what_its_last_step_took():
    def train(device):
        weight = torch.ones(512, 512, device=device, requires_grad=True)
        for _ in range(2):
            (weight @ weight).sum().backward()
            yield weight.sum()

    assert predict(train).least_seconds == predict(train, steps=2).least_seconds > 0


def test_tf32_counts_where_it_was_allowed_when_the_product_ran():
    def train(device):
        factors = [torch.empty(4096, 4096, device=device) for _ in range(2)]
        while True:
            torch.mm(*factors)
            torch.set_float32_matmul_precision("high")
            torch.mm(*factors)
            torch.set_float32_matmul_precision("highest")
            yield

    both = gpu_seconds(4096, 19.5) + gpu_seconds(4096, 156)
    assert predict(train, gpu="A100-40GB").least_seconds == pytest.approx(both)
