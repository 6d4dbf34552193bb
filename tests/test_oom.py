"""Out of memory: what is recognised, and what is said."""

import pytest
import torch

from memlab.categories import Phase
from memlab.oom import OutOfMemory, asked_bytes, cuda_message, is_out_of_memory

SAID = [
    ("CUDA out of memory. Tried to allocate 12.00 MiB. GPU 0 has a total capacity of 14.56 GiB.", 12 * 2**20),
    ("CUDA out of memory. Tried to allocate 512.00 KiB. GPU 0 has a total capacity of 14.56 GiB.", 512 * 2**10),
    ("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: "
     "you tried to allocate 96 bytes. Error code 12 (Cannot allocate memory)", 96),
    ("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call", None),
    ("CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY: out of memory", None),
    ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", None),
    ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", None),
]  # fmt: skip


@pytest.mark.parametrize(("message", "asked"), SAID)
def test_is_recognised_whoever_says_it(message, asked):
    assert is_out_of_memory(RuntimeError(message))
    assert asked_bytes(RuntimeError(message)) == asked


def test_the_exception_of_pytorch_is_enough():
    assert is_out_of_memory(torch.OutOfMemoryError("whatever it says"))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        ValueError("CUDA error: out of memory"),
        MemoryError(),
    ],
)
def test_other_errors_are_other_errors(error):
    assert not is_out_of_memory(error)


def test_the_sentence_says_what_and_where():
    failure = OutOfMemory(12 * 2**20, 2**20, 2**21, Phase.FORWARD, "blocks.0", "aten.mm")
    assert failure.sentence == (
        "out of memory in forward at blocks.0: asked for 12.0 MiB with 1.00 MiB of 2.00 MiB in use"
    )


def said(**changes):
    numbers = {"capacity": 2**30, "context": 2**28, "reserved": 2**29, "allocated": 2**28, "allowed": None}
    return cuda_message(12 * 2**20, **numbers | {"advice": "Try."} | changes)


def test_what_a_card_says_can_be_recognised_too():
    assert said() == (
        "CUDA out of memory. Tried to allocate 12.00 MiB. GPU 0 has a total capacity of 1024.00 MiB of which "
        "256.00 MiB is free. Including non-PyTorch memory, this process has 768.00 MiB memory in use. "
        "Of the allocated memory 256.00 MiB is allocated by PyTorch, and 256.00 MiB is reserved "
        "by PyTorch but unallocated. Try."
    )
    assert asked_bytes(torch.OutOfMemoryError(said())) == 12 * 2**20


def test_what_is_allowed_is_said_where_there_is_a_limit():
    assert "memory in use. 600.00 MiB allowed; Of the allocated" in said(allowed=600 * 2**20)
    assert "in use. 0 bytes allowed; Of the allocated memory 512 bytes is" in said(allowed=0, allocated=512)


@pytest.mark.parametrize(
    ("in_use", "message", "told"),
    [
        (100, "", ""),
        (99, "", " and the rest not free in one piece"),
        (99, said(reserved=120 * 2**20, allocated=99 * 2**20), " and 21.0 MiB reserved but unallocated"),
        (100, said(reserved=120 * 2**20, allocated=100 * 2**20), ""),
        (99, said(reserved=99 * 2**20, allocated=99 * 2**20), " and the rest not free in one piece"),
    ],
)
def test_a_failure_with_enough_free_bytes_says_why(in_use, message, told):
    oom = OutOfMemory(29 * 2**20, in_use * 2**20, 128 * 2**20, Phase.FORWARD, "blocks.0", "aten.mm", message)
    assert oom.has_enough_free == bool(told)
    assert oom.sentence.endswith(f" MiB of 128 MiB in use{told}")
