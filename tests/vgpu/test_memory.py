"""The memory of a card: its allocator, its limit, and what PyTorch says when it is full."""

import pytest
import torch

from memlab import predict
from memlab.errors import BadValue
from memlab.units import GIB, MIB
from memlab.vgpu import find_card
from tests.vgpu.test_bytes import train_gpt


def train_pieces(device, *, piece=11 * MIB, count=40):
    """Pieces that leave holes: every second one is freed."""
    while True:
        pieces = [torch.empty(piece // 4, device=device) for _ in range(count)]
        del pieces[::2]
        pieces.append(torch.empty(3 * piece // 8, device=device))
        yield pieces[0].sum()


def test_expandable_segments_follow_the_environment(monkeypatch):
    ordinary = predict(train_pieces)
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.setenv(name, "garbage_collection_threshold:0.8,expandable_segments:True")
        expandable = predict(train_pieces)
        monkeypatch.delenv(name)
        assert expandable.peak_allocated < ordinary.peak_allocated  # a piece is its size, not a block of 12 MiB
        assert expandable.peak_reserved < ordinary.peak_reserved


@pytest.mark.parametrize("allocator", ["", "expandable_segments:True"])
def test_what_is_reserved_is_known_at_each_moment(monkeypatch, allocator):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", allocator)
    for train in (train_gpt, train_pieces):
        first, later = predict(train, steps=1), predict(train, steps=3)
        for trace in (first, later):
            assert all(more >= count for more, count in zip(trace.reserved_at, trace.allocated, strict=True))
        assert first.reserved[0] == (0, 0)
        assert max(first.reserved_at) == first.peak_reserved
        assert later.reserved[0][1] >= first.reserved[-1][1]  # what is free stays


def test_what_is_reserved_falls_when_the_cache_is_emptied():
    def train(device):
        tensor = torch.empty(30 * MIB // 4, device=device)
        del tensor
        torch.cuda.empty_cache()
        yield torch.empty(5 * MIB // 4, device=device)[0]

    assert {count for _, count in predict(train, steps=1).reserved} == {0, 30 * MIB, 20 * MIB}


def test_where_memory_runs_out_what_is_reserved_ends_with_what_pytorch_could_not_give_back():
    def train(device):
        first, whole = (torch.empty(size * GIB // 4, device=device) for size in (3, 5))
        del first, whole
        part = torch.empty(2 * GIB // 4, device=device)  # of the segment of 3 GiB
        yield torch.empty(12 * GIB // 4, device=device)[0] + part[0]

    trace = predict(train)
    assert "2.00 GiB is allocated by PyTorch, and 1024.00 MiB is reserved" in trace.oom.message
    assert (trace.peak_reserved, trace.reserved[-1][1]) == (8 * GIB, 3 * GIB)


def test_a_block_counts_and_not_the_tensor_in_it():
    def train(device):
        piece = torch.empty(11 * MIB // 4, device=device)
        yield piece[0]

    trace = predict(train)
    assert trace.by_category == {"temporary": 11 * MIB, "workspace": MIB}  # a segment of 12 MiB, too small to split
    assert trace.peak_reserved == 12 * MIB


@pytest.mark.parametrize(
    "operate",
    [lambda rows: torch.logsumexp(rows, 1).sum(), lambda rows: rows[torch.empty(0, dtype=torch.long)].sum()],
    ids=["logsumexp", "index"],
)
def test_operators_on_nothing_need_nothing_beside_it(operate):
    def train(device):
        rows = torch.zeros((0, 5), device=device, requires_grad=True)
        operate(rows).backward()
        yield rows.grad.sum()

    assert predict(train).peak_allocated < MIB


def test_every_moment_is_whole_blocks():
    trace = predict(train_gpt, precision="bf16", gpu="A100-40GB")
    assert trace.allocated[0] % 512 == trace.peak_allocated % 512 == 0
    assert all(step.peak_allocated % 512 == 0 for step in trace.steps)
    failing = predict(train_pieces, gpu="T4", piece=1024 * MIB, count=30)
    assert all(min(values) >= 0 for values in (*trace.timeline.values(), *failing.timeline.values()))


def test_out_of_memory_in_cudas_own_words():
    trace = predict(train_pieces, gpu="T4", piece=1024 * MIB, count=30)
    card = find_card("T4")
    assert trace.oom.limit == card.room
    assert trace.oom.asked == 1024 * MIB
    assert trace.oom.in_use == 14 * 1024 * MIB
    assert trace.oom.message == (
        "CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total capacity of 14.56 GiB of which "
        "450.44 MiB is free. Including non-PyTorch memory, this process has 14.12 GiB memory in use. Of the allocated "
        "memory 14.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated. If reserved but "
        "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
        "fragmentation.  See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
        "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
    )
    place = "outside of forward, backward and optimizer at aten.empty"
    words = f"out of memory {place}: asked for 1.00 GiB with 14.0 GiB of 14.4 GiB in use"
    assert trace.sentence.startswith(words)
    assert len(trace.steps) == 1


def test_a_budget_takes_from_the_card():
    assert predict(train_pieces, budget="300 MiB").oom is not None
    assert predict(train_pieces, budget="900 MiB").oom is None
    too_much = predict(train_pieces, budget="100 GiB", gpu="L4", piece=1024 * MIB, count=30)
    assert too_much.oom.limit == find_card("L4").room
    assert "allowed" not in too_much.oom.message  # a fraction of 1 is none


def test_cached_blocks_are_given_back_before_memory_runs_out():
    def train(device):
        for piece in (200 * MIB, 300 * MIB, 400 * MIB):  # none fits into the one before, all together do not fit
            yield torch.empty(piece // 4, device=device).sum()

    trace = predict(train, budget="500 MiB")
    assert trace.oom is None
    assert trace.peak_reserved <= 500 * MIB


def test_a_card_that_is_full_frees_all_of_it_after_the_run():
    for _ in range(20):
        assert predict(train_pieces, gpu="T4", piece=1024 * MIB, count=30).oom.in_use == 14 * 1024 * MIB


def test_a_limit_for_splitting_follows_the_environment(monkeypatch):
    def train(device):
        large = torch.empty(16 * MIB, device=device)  # 64 MiB
        del large
        yield torch.empty(6 * MIB, device=device)[0]  # 24 MiB

    assert predict(train).peak_reserved == 64 * MIB
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb: 32, garbage_collection_threshold:0.8")
    assert predict(train).peak_reserved == (64 + 24) * MIB


@pytest.mark.parametrize(
    ("value", "message"), [("19", "give 20 or more"), ("much", "max_split_size_mb:much is not allowed: give a whole")]
)
def test_a_limit_that_pytorch_refuses_is_refused(monkeypatch, value, message):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", f"max_split_size_mb:{value}")
    with pytest.raises(BadValue, match=message):
        predict(train_pieces)


def test_the_new_name_of_the_settings_hides_the_old_one(monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "roundup_power2_divisions:4")
    assert predict(train_tensor, steps=1).peak_allocated == 5 * MIB
    assert predict(train_tensor, steps=1, size=9 * MIB).peak_allocated == 10 * MIB
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "")
    assert predict(train_tensor, steps=1, size=9 * MIB).peak_allocated == 9 * MIB


@pytest.mark.parametrize("setting", ["backend:cudaMallocAsync", "throw_on_cudamalloc_oom:True"])
def test_settings_that_are_not_followed_are_said(monkeypatch, setting):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", f"pinned_use_background_threads:True,{setting}")
    (note,) = predict(train_tensor, steps=2).notes  # in a third it has a leak
    assert note == f"{setting} is not followed: what is predicted is PyTorch's own allocator without it."
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "pinned_use_background_threads:True,backend:native")
    assert not predict(train_tensor, steps=2).notes


def train_tensor(device, *, size=5 * MIB, fraction=1.0):
    """Fills the card with tensors of a size."""
    if fraction < 1.0:
        torch.cuda.set_per_process_memory_fraction(fraction)
    held = []
    while True:
        held.append(torch.empty(size, dtype=torch.uint8, device=device))
        yield None


def test_what_did_not_fit_is_a_segment():
    trace = predict(train_tensor, steps=100, budget="50 MiB")
    assert trace.oom.asked == 20 * MIB
    assert trace.oom.limit == 50 * MIB
    assert trace.oom.in_use == 40 * MIB
    assert trace.oom.message.startswith(
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of"
    )
    assert "memory in use. 50.00 MiB allowed; Of the allocated memory 40.00 MiB is allocated" in trace.oom.message


def test_a_fraction_is_a_limit_and_the_rest_of_the_card_is_free():
    trace = predict(train_tensor, steps=20, size=2**30, fraction=0.5)
    assert trace.oom.limit == find_card("T4").capacity // 2
    assert trace.oom.in_use == 7 * 2**30
    assert "of which 7.44 GiB is free." in trace.oom.message
    assert " 7.28 GiB allowed; " in trace.oom.message


def test_a_fraction_in_the_settings_is_a_limit(monkeypatch):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "per_process_memory_fraction:0.25")
    assert predict(train_tensor, steps=20, size=2**30).oom.limit == find_card("T4").capacity // 4


def test_with_a_fraction_the_free_part_of_an_expandable_page_is_used_up_to_it(monkeypatch):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    trace = predict(train_tensor, steps=100, budget="50 MiB")
    assert (trace.oom.in_use, trace.peak_reserved) == (40 * MIB, 40 * MIB)


def test_expandable_segments_get_other_advice_where_pytorch_has_it(monkeypatch):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    endings = {}
    for newer in (False, True):
        monkeypatch.setattr("memlab.vgpu.memory._ADVISES_LESS", newer)
        endings[newer] = predict(train_tensor, steps=100, budget="50 MiB").oom.message.partition("but unallocated. ")[2]
    assert endings[False].startswith("If reserved but unallocated memory is large try setting")
    assert endings[True].startswith("expandable_segments is enabled. If instead the process is running out of virtual")


def test_a_loop_may_halve_its_batch_when_memory_runs_out():
    def train(device, *, batch=64):
        while True:
            try:
                loss = torch.empty(batch * 2**30, dtype=torch.uint8, device=device)[0]
            except torch.OutOfMemoryError:
                batch //= 2
                continue
            yield loss
            yield torch.cuda.memory_stats()["num_ooms"] + torch.cuda.memory_stats()["num_alloc_retries"]

    trace = predict(train, steps=2)
    assert trace.oom is None
    assert trace.peak_reserved == 8 * 2**30
    assert trace.losses[1] == 3 + 3


def test_what_a_loop_does_at_its_end_means_the_card():
    def train(device):
        held = torch.empty(5 * MIB, dtype=torch.uint8, device=device)
        try:
            while True:
                yield None
        finally:
            ends.append(torch.cuda.memory_allocated())
            torch.cuda.set_per_process_memory_fraction(1.0)
            del held

    ends = []
    assert predict(train, steps=2).oom is None
    assert ends == [5 * MIB]
