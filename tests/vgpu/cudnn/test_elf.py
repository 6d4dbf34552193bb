"""A shared library written by Python, loaded and called."""

import ctypes
import platform
import subprocess
import sys

import pytest

from memlab.vgpu.cudnn import elf

here = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the machine code is for Linux on x86-64"
)


@here
def test_who_opens_the_name_calls_python():
    kept = elf.load("libmemlab-test.so.1", {"add": lambda a, b, *_: a + b, "seven": lambda *_: 7})
    library = ctypes.CDLL("libmemlab-test.so.1")
    assert library.add(1, 2) == 3
    assert library.seven() == 7
    assert kept


@here
def test_two_libraries_do_not_mix():
    kept = [elf.load(f"libmemlab-test.so.{n}", {"number": lambda *_, n=n: n}) for n in (2, 3)]
    assert [ctypes.CDLL(f"libmemlab-test.so.{n}").number() for n in (2, 3)] == [2, 3]
    assert kept


@here
def test_all_stubs_can_be_loaded_and_called():
    # In a process of its own: in this one somebody else may look for a driver.
    code = """
import ctypes
from memlab.vgpu.cudnn import stubs
kept = stubs.load()
blas, driver, compiler = (ctypes.CDLL(name) for name in ("libcublasLt.so.13", "libcuda.so.1", "libnvrtc.so.12"))
handle, found, size = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_size_t()
assert blas.cublasLtCreate(ctypes.byref(handle)) == 0 and handle.value
results = (ctypes.c_ubyte * 96)(*[255] * 96)
nothing = [ctypes.c_void_p()] * 7
assert blas.cublasLtMatmulAlgoGetHeuristic(*nothing, 1, results, ctypes.byref(found)) == 0
assert found.value == 1 and bytes(results[64:76]) == bytes(12)
assert driver.cuInit(0) == stubs.NO_DEVICE
assert compiler.nvrtcGetPTXSize(None, ctypes.byref(size)) == 0 and size.value == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_bytes_are_an_elf_file_of_that_name():
    data = elf.shared_object("libx.so.1", ["one", "two"])
    assert data[:4] == b"\x7fELF"
    assert b"\0libx.so.1\0" in data
