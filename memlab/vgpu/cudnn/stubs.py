"""Libraries that cuDNN opens while it makes a plan, in a process without a card.

cuDNN's plans need neither a driver nor cuBLAS to be right about their workspaces, but it leaves out engines whose
library does not start: without cublasLt the 1x1 convolutions lose theirs, and MobileNetV2 comes out 9 to 18% too high.
These start, and do nothing. Of matrix products they say that one algorithm is there and needs no workspace.
"""

import ctypes
from collections.abc import Callable
from itertools import count
from typing import Any

from memlab.vgpu.cudnn import elf

Functions = dict[str, Callable[..., int]]

CUDA = (12, 13)  # the versions of CUDA that there is a cuDNN for
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_BLAS_VERSION = (CUDA, 1, 0)
_handles = count(1)


def load() -> list[Any]:
    """Load all of them; what is returned must be kept."""
    libraries = {"libcuda.so.1": _driver()}
    for version in CUDA:
        libraries |= {
            f"libcublasLt.so.{version}": _matrix_products(version),
            f"libnvrtc.so.{version}": _compiler(version),
        }
    return [part for name, functions in libraries.items() for part in elf.load(name, functions)]


def _nothing(*_: int) -> int:
    return 0


def _made(place: int, *_: int) -> int:
    """Writes a handle that nobody looks into where the first argument points."""
    ctypes.c_uint64.from_address(place).value = next(_handles)
    return 0


def _all(prefix: str, names: str, function: Callable[..., int]) -> Functions:
    return {prefix + name: function for name in names.split()}


def _matrix_products(cuda: int) -> Functions:
    def version(*_: int) -> int:
        return 10_000 * cuda

    def part_of_version(which: int, place: int, *_: int) -> int:
        ctypes.c_int.from_address(place).value = (cuda, 0, 0)[which & 3]
        return 0

    def algorithms(*arguments: int) -> int:
        results, found = arguments[8:10]
        # cublasLtMatmulHeuristicResult_t: the algorithm, its workspace, a status, the waves that it takes.
        ctypes.memset(results, 0, 64 + 8 + 4 + 4 + 16)
        ctypes.c_float.from_address(results + 64 + 8 + 4).value = 1.0
        ctypes.c_int.from_address(found).value = 1
        return 0

    parts = "MatmulDesc MatrixLayout MatmulPreference MatrixTransformDesc"
    made = " ".join(f"{part}Create" for part in parts.split())
    others = " ".join(
        f"{part}{verb}"
        for part in parts.split()
        for verb in ("Destroy", "SetAttribute", "GetAttribute", "Init_internal")
    )
    return {
        **_all("cublasLt", f"Create {made}", _made),
        **_all("cublasLt", f"Destroy Matmul MatrixTransform {others}", _nothing),
        "cublasLtGetVersion": version,
        "cublasLtGetProperty": part_of_version,
        "cublasLtMatmulAlgoGetHeuristic": algorithms,
    }


def _driver() -> Functions:
    """No device, as on any machine without one; but what cuDNN compiles for attention can be loaded."""
    text = ctypes.create_string_buffer(b"no device")

    def no_device(*_: int) -> int:
        return NO_DEVICE

    def version(place: int, *_: int) -> int:
        ctypes.c_int.from_address(place).value = 1000 * CUDA[-1]
        return 0

    def error_text(error: int, place: int, *_: int) -> int:
        ctypes.c_uint64.from_address(place).value = ctypes.addressof(text)
        return 0

    def attribute(place: int, which: int, *_: int) -> int:
        most_threads, registers = 0, 4  # CU_FUNC_ATTRIBUTE_
        ctypes.c_int.from_address(place).value = {most_threads: 1024, registers: 32}.get(which & 0xFFFFFFFF, 0)
        return 0

    return {
        **_all("cu", "Init GetExportTable GetProcAddress GetProcAddress_v2 DeviceGet DeviceGetCount", no_device),
        **_all("cu", "DevicePrimaryCtxRetain DeviceGetAttribute CtxGetCurrent CtxGetDevice StreamGetCtx", no_device),
        **_all("cu", "LibraryLoadData LibraryLoadFromFile LibraryGetKernel LibraryGetModule KernelGetFunction", _made),
        **_all("cu", "ModuleLoadData ModuleLoadDataEx ModuleLoadFatBinary ModuleGetFunction", _made),
        **_all("cu", "LibraryUnload ModuleUnload ModuleGetGlobal_v2 FuncSetAttribute KernelSetAttribute", _nothing),
        **_all("cu", "LaunchKernel LaunchKernelEx LaunchCooperativeKernel StreamSynchronize MemcpyDtoH_v2", _nothing),
        **_all("cu", "LinkCreate LinkCreate_v2 LinkAddData LinkAddData_v2 LinkAddFile_v2 LinkComplete", _nothing),
        **_all("cu", "LinkDestroy CtxPushCurrent CtxPopCurrent CtxGetLimit TensorMapEncodeTiled", _nothing),
        **_all("cu", "DevicePrimaryCtxRelease DevicePrimaryCtxReset OccupancyMaxPotentialClusterSize", _nothing),
        **_all("cu", "OccupancyMaxActiveBlocksPerMultiprocessor TensorMapReplaceAddress", _nothing),
        **_all("cu", "GetErrorString GetErrorName", error_text),
        **_all("cu", "FuncGetAttribute KernelGetAttribute", attribute),
        "cuDriverGetVersion": version,
    }


def _compiler(cuda: int) -> Functions:
    """Compiles everything to one byte."""

    def version(major: int, minor: int, *_: int) -> int:
        ctypes.c_int.from_address(major).value = cuda
        ctypes.c_int.from_address(minor).value = 0
        return 0

    def size(program: int, place: int, *_: int) -> int:
        ctypes.c_size_t.from_address(place).value = 1
        return 0

    def no_architectures(place: int, *_: int) -> int:
        ctypes.c_int.from_address(place).value = 0
        return 0

    def same_name(program: int, name: int, place: int, *_: int) -> int:
        ctypes.c_uint64.from_address(place).value = name
        return 0

    names = "CompileProgram DestroyProgram AddNameExpression GetPTX GetCUBIN GetLTOIR GetProgramLog"
    return {
        **_all("nvrtc", f"{names} GetSupportedArchs GetErrorString", _nothing),
        **_all("nvrtc", "GetPTXSize GetCUBINSize GetLTOIRSize GetProgramLogSize", size),
        "__nvrtcCPEx": _nothing,
        "nvrtcCreateProgram": _made,
        "nvrtcGetNumSupportedArchs": no_architectures,
        "nvrtcGetLoweredName": same_name,
        "nvrtcVersion": version,
    }
