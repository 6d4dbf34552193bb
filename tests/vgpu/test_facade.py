"""In a prediction "cuda" is the virtual card, and torch.cuda answers from it; outside nothing is changed."""

import threading

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from memlab import predict
from memlab.errors import Unpredictable, WrongDevice
from memlab.vgpu import CARDS
from tests.vgpu.once import in_a_prediction, seen

MIB = 2**20
CARD = torch.device("cuda", 0)


def mib(count, **options):
    """A tensor of so many MiB."""
    return torch.empty(count * MIB, dtype=torch.uint8, **options)


# Mixed precision


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_by_the_name_of_cuda(dtype):
    def work(device):
        x = torch.ones(4, 4, device="cuda")
        with torch.autocast("cuda", dtype):
            return (x @ x).dtype, torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")

    assert seen(work) == (dtype, True, dtype)


def test_autocast_is_off_outside_of_its_region():
    def work(device):
        with torch.autocast("cuda", torch.float16):
            pass
        x = torch.ones(4, 4, device="cuda")
        return (x @ x).dtype, torch.is_autocast_enabled("cuda"), torch.is_autocast_enabled()

    assert seen(work) == (torch.float32, False, False)


def test_a_grad_scaler_by_the_name_of_cuda():
    def work(device):
        weight = torch.ones(4, device="cuda", requires_grad=True)
        optimizer, scaler = torch.optim.SGD([weight], 0.1), torch.amp.GradScaler("cuda")
        for _ in range(2):
            scaler.scale(weight.sum()).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        return scaler.is_enabled(), scaler.get_scale()

    assert seen(work) == (True, 65536.0)


# What is asked of the card


def test_there_is_one_card_and_it_is_in_use():
    def work(device):
        cuda = torch.cuda
        return cuda.is_available(), cuda.is_initialized(), cuda.device_count(), cuda.current_device(), cuda.init()

    assert seen(work) == (True, True, 1, 0, None)


@pytest.mark.parametrize("gpu", ["T4", "A100-80GB", "H100"])
def test_its_properties_are_the_cards(gpu):
    def work(device):
        properties = torch.cuda.get_device_properties(0)
        return (
            torch.cuda.get_device_name(),
            torch.cuda.get_device_capability(),
            (properties.name, properties.total_memory, (properties.major, properties.minor)),
            properties.multi_processor_count,
        )

    card = CARDS[gpu]
    capability = divmod(card.sm, 10)
    assert seen(work, gpu=gpu) == (card.name, capability, (card.name, card.capacity, capability), card.processors)


@pytest.mark.parametrize("gpu", CARDS)
def test_kernels_can_be_planned_by_its_properties(gpu):
    properties = seen(lambda device: torch.cuda.get_device_properties(device), gpu=gpu)
    shared = properties.shared_memory_per_multiprocessor
    assert properties.shared_memory_per_block < properties.shared_memory_per_block_optin <= shared
    assert shared < properties.L2_cache_size
    assert properties.max_threads_per_block <= properties.max_threads_per_multi_processor


@pytest.mark.parametrize(("gpu", "has_it"), [("T4", False), ("A100-40GB", True)])
def test_bfloat16_is_the_cards(gpu, has_it):
    def work(device):
        return torch.cuda.is_bf16_supported(), torch.cuda.is_bf16_supported(including_emulation=False)

    assert seen(work, gpu=gpu) == (True, has_it)


def test_memory_allocated_is_the_simulated_allocators():
    def work(device):
        before = torch.cuda.memory_allocated()
        x = mib(3, device=device)
        small = torch.ones(1, device=device)
        held = torch.cuda.memory_allocated(), torch.cuda.memory_allocated(0), torch.cuda.memory_allocated("cuda")
        del x, small
        return before, held, torch.cuda.memory_allocated()

    rounded = 3 * MIB + 512
    assert seen(work) == (0, (rounded,) * 3, 0)


def test_the_peak_is_the_traces():
    def work(device):
        x = mib(3, device=device)
        del x
        y = mib(2, device=device)
        return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), y.numel()

    (allocated, reserved, _), trace = in_a_prediction(work)
    assert allocated == trace.peak_allocated == 3 * MIB
    assert reserved == trace.peak_reserved == 20 * MIB


def test_the_peak_is_the_highest_of_all_steps():
    peaks = []

    def train(device):
        for size in (4, 2, 3):
            x = mib(size, device=device)
            peaks.append(torch.cuda.max_memory_allocated())
            del x
            yield

    predict(train)
    assert peaks == [4 * MIB] * 3


def test_a_peak_that_is_reset_begins_at_what_is_held():
    def work(device):
        held, freed = mib(1, device=device), mib(3, device=device)
        del freed
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.max_memory_allocated(), held.numel()

    (peak, _), trace = in_a_prediction(work)
    assert peak == MIB
    assert trace.peak_allocated == 4 * MIB  # what the loop forgets the trace does not


def test_a_reserved_peak_that_is_reset_begins_at_what_is_held():
    def work(device):
        mib(30, device=device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.max_memory_reserved()

    reserved, trace = in_a_prediction(work)
    assert reserved == 0
    assert trace.peak_reserved == 30 * MIB


def test_empty_cache_gives_back_what_is_free():
    def work(device):
        free, held = mib(30, device=device), mib(40, device=device)
        del free
        before = torch.cuda.memory_reserved()
        torch.cuda.empty_cache()
        return before, torch.cuda.memory_reserved(), held.numel()

    assert seen(work)[:2] == (70 * MIB, 40 * MIB)


def test_mem_get_info_is_what_the_driver_has_left():
    def work(device):
        before = torch.cuda.mem_get_info()
        x = mib(40, device=device)
        return before, torch.cuda.mem_get_info(), x.numel()

    (free, total), after, _ = seen(work)
    assert total == CARDS["T4"].capacity
    assert free == CARDS["T4"].room
    assert after == (free - 40 * MIB, total)


def test_memory_stats_have_torchs_names():
    def work(device):
        x = mib(3, device=device)
        stats = torch.cuda.memory_stats()
        return [stats[f"{name}_bytes.all.current"] for name in ("allocated", "active", "reserved")], x.numel()

    assert seen(work)[0] == [3 * MIB, 3 * MIB, 20 * MIB]


def test_the_summary_is_torchs_own_text():
    def work(device):
        x = mib(3, device=device)
        return torch.cuda.memory_summary(), torch.cuda.memory_summary(abbreviated=True), x.numel()

    full, abbreviated, _ = seen(work)
    assert "PyTorch CUDA memory summary, device ID 0" in full
    assert "3072 KiB" in full
    assert "PyTorch CUDA memory summary" in abbreviated


def test_a_share_of_the_memory_is_a_budget():
    def train(device):
        torch.cuda.set_per_process_memory_fraction(0.5)
        mib(9 * 1024, device=device)

        yield

    trace = predict(train, steps=1)
    assert trace.oom is not None
    assert trace.oom.limit == CARDS["T4"].capacity // 2


def test_a_snapshot_has_the_segments():
    def work(device):
        x = mib(30, device=device)
        return [segment["total_size"] for segment in torch.cuda.memory_snapshot()], x.numel()

    assert seen(work)[0] == [30 * MIB]


# What does nothing


def test_synchronizing_returns():
    assert seen(
        lambda device: (torch.cuda.synchronize(), torch.cuda.synchronize(device), torch.cuda.synchronize(0))
    ) == (
        None,
        None,
        None,
    )


def test_two_events_are_some_time_apart():
    def work(device):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        end.record()
        end.synchronize()
        return start.elapsed_time(end), end.query()

    milliseconds, over = seen(work)
    assert milliseconds > 0
    assert over


def test_what_runs_on_a_stream_is_counted():
    def work(device):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            x = mib(3, device=device)
        torch.cuda.current_stream().wait_stream(stream)
        x.record_stream(stream)
        stream.synchronize()
        event = torch.cuda.default_stream().record_event()
        return torch.cuda.memory_allocated(), event

    assert seen(work)[0] == 3 * MIB


def test_an_event_that_a_stream_records_can_be_waited_for():
    def work(device):
        event = torch.cuda.Stream().record_event()
        event.synchronize()
        torch.cuda.current_stream().wait_event(event)
        return event.query()

    assert seen(work)


@pytest.mark.parametrize("name", [0, "cuda", CARD])
def test_the_context_of_the_card(name):
    def work(device):
        with torch.cuda.device(name):
            return torch.ones(2, device="cuda").device

    assert seen(work) == CARD


def test_the_device_that_is_set_is_checked():
    assert seen(lambda device: [torch.cuda.set_device(name) and None for name in (0, "cuda:0", device)]) == [None] * 3
    with pytest.raises(WrongDevice, match="'cuda:1'"):
        seen(lambda device: torch.cuda.set_device(1))


def test_seeds_and_states_of_the_cards_generator():
    def work(device):
        torch.cuda.manual_seed(1)
        torch.cuda.manual_seed_all(1)
        state = torch.cuda.get_rng_state()
        torch.cuda.set_rng_state(state)
        torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all())
        with torch.random.fork_rng():
            torch.cuda.seed()
        return state.dtype, state.device.type

    assert seen(work) == (torch.uint8, "cpu")


def test_nvtx_marks_nothing():
    def work(device):
        torch.cuda.nvtx.mark("here")
        torch.cuda.nvtx.range_push("step")
        torch.cuda.nvtx.range_pop()
        with torch.cuda.nvtx.range("step"):
            return "inside"

    assert seen(work) == "inside"


def test_a_cuda_graph_is_refused_in_words():
    with pytest.raises(Unpredictable, match=r"A CUDA graph at test_facade\.py:\d+ cannot be predicted"):
        seen(lambda device: torch.cuda.CUDAGraph())
    with pytest.raises(Unpredictable, match=r"A CUDA graph at test_facade\.py:\d+ cannot be predicted"):
        seen(lambda device: torch.cuda.graph_pool_handle())


def test_the_graph_context_is_refused_in_words():
    with pytest.raises(Unpredictable, match=r"A CUDA graph at test_facade\.py:\d+ cannot be predicted"):
        seen(lambda device: torch.cuda.graph(None))


# torch.accelerator


def test_the_accelerator_is_the_card():
    def work(device):
        accelerator = torch.accelerator
        return (
            accelerator.is_available(),
            accelerator.current_accelerator().type,
            accelerator.device_count(),
            accelerator.current_device_index(),
            accelerator.synchronize(),
        )

    assert seen(work) == (True, "cuda", 1, 0, None)


def test_the_accelerators_memory_is_the_cards():
    def work(device):
        x = mib(30, device=device)
        held = torch.accelerator.memory_allocated(), torch.accelerator.memory_reserved()
        del x
        torch.accelerator.empty_cache()
        peaks = torch.accelerator.max_memory_allocated(), torch.accelerator.max_memory_reserved()
        torch.accelerator.reset_peak_memory_stats()
        return held, torch.accelerator.memory_reserved(), peaks, torch.accelerator.max_memory_allocated()

    assert seen(work) == ((30 * MIB, 30 * MIB), 0, (30 * MIB, 30 * MIB), 0)


def test_the_accelerators_module_is_found():
    assert seen(lambda device: torch.get_device_module("cuda") is torch.cuda)
    assert seen(lambda device: torch.get_device_module(device) is torch.cuda)


# Generators and pinned memory


def test_a_generator_of_the_card():
    def work(device):
        generator = torch.Generator(device="cuda").manual_seed(1)
        return generator.device, torch.randn(3, device="cuda", generator=generator).device, type(generator.seed())

    assert seen(work) == (torch.device("cuda"), CARD, int)  # without an index, as on CUDA


def test_a_generator_of_the_host_draws_its_own_numbers():
    def work(device):
        generator = torch.Generator().manual_seed(7)
        return (
            generator.device.type,
            isinstance(generator, torch.Generator),
            torch.rand(3, generator=generator).tolist(),
        )

    outside = torch.rand(3, generator=torch.Generator().manual_seed(7)).tolist()
    assert seen(work) == ("cpu", True, outside)


def test_pinned_memory_is_the_hosts():
    def work(device):
        small, large = torch.arange(3.0).pin_memory(), torch.randn(600, 600).pin_memory()
        held = torch.cuda.memory_allocated()
        return small.tolist(), small.device.type, large.device.type, large.cuda(non_blocking=True).device, held

    assert seen(work) == ([0, 1, 2], "cpu", "cpu", CARD, 0)


def test_tensors_are_made_in_pinned_memory():
    def work(device):
        return torch.zeros(3, pin_memory=True).tolist(), torch.empty(600, 600, pin_memory=True).device.type

    assert seen(work) == ([0, 0, 0], "cpu")


def test_a_data_loader_with_pinned_memory():
    def work(device):
        loader = DataLoader(TensorDataset(torch.arange(6)), batch_size=3, pin_memory=True)
        return [batch.tolist() for (batch,) in loader]

    threads = threading.active_count()
    assert seen(work) == [[0, 1, 2], [3, 4, 5]]
    assert threading.active_count() == threads


def test_what_libraries_look_up_as_soon_as_there_is_a_card():
    before = hasattr(torch._C, "_cuda_getCurrentRawStream")
    assert seen(lambda device: callable(torch._C._cuda_getCurrentRawStream))
    assert hasattr(torch._C, "_cuda_getCurrentRawStream") is before
