"""``memlab doctor``: what this machine has, what will not work on it, and what to do about that."""

import argparse
import importlib
import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from memlab.units import format_bytes

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PACKAGES = ("memlab", "torch", "numpy", "matplotlib", "ipywidgets", "jupyterlab")
_BF16_CAPABILITY = (8, 0)  # Ampere; older cards run bfloat16 by emulation, slowly
_TRITON_CAPABILITY = (7, 0)  # Volta; torch.compile's GPU code needs Triton, and Triton needs this


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One CUDA device; ``memory`` in bytes."""

    name: str
    capability: tuple[int, int]
    memory: int


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The hardware and software found on a machine. ``versions`` has None for a package that is not installed."""

    python: str
    versions: Mapping[str, str | None]
    requirements: tuple[str, ...] = ()
    torch_error: str = ""
    cuda_build: bool = False
    nvidia_driver: bool = False
    gpus: tuple[Gpu, ...] = ()
    cpu_threads: int = 1
    ram: int | None = None
    compiler: str | None = None
    python_headers: bool = True
    triton: bool = False
    backends: tuple[str, ...] = ()
    no_virtual_gpu: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the report; ``problem`` says what will not work and what to do, or is empty."""

    subject: str
    value: str
    problem: str = ""
    fatal: bool = False


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the ``doctor`` command."""
    parser = subparsers.add_parser("doctor", help="say what this machine has and what will not work on it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the report; 1 if memlab cannot work here at all, else 0."""
    report = findings(look())
    for finding in report:
        print(f"{finding.subject:<14} {finding.value}")
    problems = [finding for finding in report if finding.problem]
    print("\nWill not work here:" if problems else "\nEverything works here.")
    for finding in problems:
        print(f"- {finding.subject}: {finding.problem}")
    return int(any(finding.fatal for finding in report))


def look() -> Facts:
    """The facts about the Python and the machine that this runs on."""
    return Facts(
        python=platform.python_version(),
        versions={name: _version(name) for name in PACKAGES},
        requirements=tuple(metadata.requires("memlab") or ()) if _version("memlab") else (),
        nvidia_driver=shutil.which("nvidia-smi") is not None,
        cpu_threads=os.cpu_count() or 1,
        ram=_ram(),
        compiler=shutil.which(_compiler_name()),
        python_headers=Path(sysconfig.get_path("include"), "Python.h").exists(),
        triton=importlib.util.find_spec("triton") is not None,
        **_torch_facts(),
    )


def findings(facts: Facts) -> list[Finding]:
    """The report, in the order in which it is read."""
    lines = [Finding(subject="Python", value=facts.python)]
    lines += [_package(name, facts) for name in facts.versions]
    lines.append(_cpu(facts))
    if _torch_works(facts):
        lines += [*_cuda(facts), _virtual_gpu(facts), _bf16(facts), _compile(facts), _distributed(facts)]
    return lines


def _torch_works(facts: Facts) -> bool:
    return facts.versions["torch"] is not None and not facts.torch_error


def _package(name: str, facts: Facts) -> Finding:
    version, wanted = facts.versions[name], _wanted(name, facts.requirements)
    bounds = f"{wanted.name}{wanted.specifier}" if wanted else name
    install = "python -m pip install -e ." if name == "memlab" else f'python -m pip install "{bounds}"'
    fatal = name == "torch"
    if version is None and name == "jupyterlab":
        problem = f"memlab lab needs it, other front ends for notebooks do without; run {install}"
        return Finding(subject=name, value="not installed", problem=problem)
    if version is None:
        return Finding(subject=name, value="not installed", problem=f"not installed; run {install}", fatal=fatal)
    if name == "torch" and facts.torch_error:
        problem = f"does not import ({facts.torch_error}); install it again as PyTorch's install page says"
        return Finding(subject=name, value=version, problem=problem, fatal=True)
    if wanted and not wanted.specifier.contains(version, prereleases=True):
        problem = f"{version} is not among the versions that memlab works with; run {install}"
        return Finding(subject=name, value=version, problem=problem, fatal=fatal)
    return Finding(subject=name, value=version)


def _wanted(name: str, requirements: tuple[str, ...]) -> "Requirement | None":
    from packaging.requirements import Requirement

    return next((wanted for text in requirements if (wanted := Requirement(text)).name == name), None)


def _cpu(facts: Facts) -> Finding:
    ram = "unknown" if facts.ram is None else format_bytes(facts.ram)
    return Finding(subject="CPU", value=f"{facts.cpu_threads} threads, RAM {ram}")


def _cuda(facts: Facts) -> Iterator[Finding]:
    if not facts.gpus:
        yield Finding(subject="CUDA", value="none", problem=_why_no_cuda(facts))
    for index, gpu in enumerate(facts.gpus):
        value = f"{gpu.name}, capability {_dotted(gpu.capability)}, {format_bytes(gpu.memory)}"
        yield Finding(subject=f"CUDA {index}", value=value)


def _why_no_cuda(facts: Facts) -> str:
    on_cpu = "memlab measures on the CPU, where its numbers are bytes of live tensor storages"
    if not facts.nvidia_driver:
        return f"no NVIDIA GPU found, so {on_cpu}; for a GPU's numbers predict them, or use a machine with one"
    if not facts.cuda_build:
        return f"this PyTorch is built without CUDA, so {on_cpu}; install a CUDA build as PyTorch's install page says"
    return f"PyTorch cannot use the GPU, so {on_cpu}; look at nvidia-smi, the driver and CUDA_VISIBLE_DEVICES"


def _virtual_gpu(facts: Facts) -> Finding:
    problem = facts.no_virtual_gpu
    return Finding(subject="virtual GPU", value="no" if problem else "yes: memlab.predict works", problem=problem)


def _bf16(facts: Facts) -> Finding:
    old = [gpu for gpu in facts.gpus if gpu.capability < _BF16_CAPABILITY]
    if old:
        problem = (
            f"{old[0].name} (capability {_dotted(old[0].capability)}) only emulates bfloat16, slowly; "
            f'use precision="fp16", or a card of capability {_dotted(_BF16_CAPABILITY)} or newer'
        )
        return Finding(subject="bf16", value="emulated", problem=problem)
    return Finding(subject="bf16", value="yes" if facts.gpus else "yes, on the CPU; its speed says nothing of a GPU")


def _compile(facts: Facts) -> Finding:
    problem = _why_no_compile(facts)
    return Finding(subject="torch.compile", value="no" if problem else f"yes, with {facts.compiler}", problem=problem)


def _why_no_compile(facts: Facts) -> str:
    if facts.compiler is None:
        return "no C++ compiler found; install g++ (Linux), Xcode's command line tools (macOS) or MSVC (Windows)"
    if not facts.python_headers:
        return "Python.h is missing, and compiled code includes it; install python3-dev"
    if facts.gpus and not facts.triton:
        return "Triton is not installed, and code for the GPU needs it; run python -m pip install triton"
    if any(gpu.capability < _TRITON_CAPABILITY for gpu in facts.gpus):
        return f"Triton needs a GPU of capability {_dotted(_TRITON_CAPABILITY)} or newer; run without torch.compile"
    return ""


def _distributed(facts: Facts) -> Finding:
    value = ", ".join(facts.backends) or "none"
    problem = ""
    if not facts.backends:
        problem = "this PyTorch is built without torch.distributed; install one from PyTorch's install page"
    elif "nccl" not in facts.backends:
        problem = "no nccl, so several processes run on the CPU with gloo; several GPUs need PyTorch for CUDA on Linux"
    return Finding(subject="distributed", value=value, problem=problem)


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _torch_facts() -> dict[str, Any]:
    try:
        torch = importlib.import_module("torch")
    except (ImportError, OSError) as error:  # OSError: a shared library of torch is missing
        return {"torch_error": str(error)}
    available = torch.cuda.is_available()
    return {
        "cuda_build": torch.version.cuda is not None,
        "gpus": tuple(_gpu(torch, index) for index in range(torch.cuda.device_count() if available else 0)),
        "backends": _backends(torch),
        "no_virtual_gpu": _why_no_virtual_gpu(),
    }


def _why_no_virtual_gpu() -> str:
    from memlab.errors import NoVirtualGpu

    try:
        from memlab.vgpu.assembly import register  # this too fails where PyTorch lacks a name

        register()
    except NoVirtualGpu as error:
        return str(error).rstrip(".")
    return ""


def _gpu(torch: ModuleType, index: int) -> Gpu:
    card = torch.cuda.get_device_properties(index)
    return Gpu(name=card.name, capability=(card.major, card.minor), memory=card.total_memory)


def _backends(torch: ModuleType) -> tuple[str, ...]:
    distributed = torch.distributed
    if not distributed.is_available():
        return ()
    present = {"gloo": distributed.is_gloo_available(), "nccl": distributed.is_nccl_available()}
    return tuple(name for name, there in present.items() if there)


def _compiler_name() -> str:
    """The compiler that torch.compile would call on this system."""
    return os.environ.get("CXX") or {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")


def _ram() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None
