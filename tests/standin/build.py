"""Builds the stand-ins for the CUDA libraries of the PyTorch that this Python has, once for each version.

Every symbol that PyTorch's own libraries import from a CUDA library is exported by a stand-in of that library's name.
What the C files in ``libraries/`` define is theirs; the rest are functions that return 0.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib import metadata
from pathlib import Path

LIBRARIES = Path(__file__).with_name("libraries")
SITE = Path(sysconfig.get_paths()["purelib"])
NVIDIA = SITE / "nvidia"
TORCH = SITE / "torch" / "lib"  # torch itself is not imported: that takes seconds
# Libraries whose symbols carry no version that would name them, by the beginnings of their symbols.
UNVERSIONED = {
    "libcublasLt.so.13": r"cublasLt",
    "libnvrtc.so.13": r"(__)?nvrtc[A-Z]",
    "libcusparseLt.so.0": r"cusparseLt",
    "libnccl.so.2": r"nccl|pnccl",
    "libcufile.so.0": r"cuFile",
    "libnvshmem_host.so.3": r"nvshmem",
    "libcuda.so.1": r"cu[A-Z](?!File)\w",
    "libnvidia-ml.so.1": r"nvml[A-Z]",
}
# Which C file makes which library, and with which definitions.
SOURCES = {
    "libcudart.so": ("cudart.c", ()),
    "libcuda.so": ("driver.c", ()),
    "libcublas.so": ("cublas.c", ("-DBLAS",)),
    "libcublasLt.so": ("cublas.c", ()),
    "libcudnn.so": ("cudnn.c", ()),
    "libcufft.so": ("cufft.c", ()),
    "libnccl.so": ("nccl.c", ()),
    "libnvidia-ml.so": ("nvml.c", ()),
    "libnvrtc.so": ("nvrtc.c", ()),
}
DRIVER_FUNCTION = r"\bcu[A-Z]\w+(?=\()|(?<=\s)cu[A-Z]\w+_v\d\b"  # in cuda.h
SYSTEM = r"(lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|gomp|torch.*|c10.*|shm|caffe2_nvrtc)(\.|$)|ld-linux)"
FLAGS = ["-O2", "-g", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers"]
FLAGS += ["-D__CUDA_FP16_H__", "-D__CUDA_BF16_H__"]  # C++ that is not needed here


class NoStandIn(Exception):
    """The stand-ins cannot be built on this machine, or for this Python's PyTorch."""


def cache() -> Path:
    """Return the folder for what is built and installed: ``MEMLAB_CACHE``, else ``~/.cache/memlab``."""
    return Path(os.environ.get("MEMLAB_CACHE") or Path.home() / ".cache" / "memlab")


def built() -> Path:
    """The folder of the stand-ins, built now if they are not yet there.

    Raises:
        NoStandIn: they cannot be.
    """
    check_tools()
    check_torch()
    sources = [*sorted([Path(__file__), *LIBRARIES.rglob("*.[ch]")]), *others()]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    folder = cache() / f"standin-{metadata.version('torch')}-{digest}"
    if not folder.exists():
        cache().mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(dir=cache()))
        build(making)
        try:
            making.rename(folder)  # whole or not at all
        except OSError:  # another process was first
            shutil.rmtree(making)
    return folder


def check_tools() -> None:
    """Raise NoStandIn, in a sentence, on a machine that cannot build the stand-ins."""
    if sys.platform != "linux":
        raise NoStandIn(f"the stand-in needs Linux, and this is {sys.platform}.")
    if missing := [tool for tool in ("gcc", "nm", "readelf") if not shutil.which(tool)]:
        raise NoStandIn(f"the stand-in is compiled and {missing[0]} is not here: install gcc and binutils.")


def check_torch() -> None:
    """Raise NoStandIn, in a sentence, without a CUDA build of torch."""
    if not (TORCH / "libtorch_cuda.so").exists():
        raise NoStandIn(f"{sys.executable} has no CUDA build of torch: run make test-cuda, which installs one.")


def run(*command: str | Path) -> str:
    """Return the output of a command.

    Raises:
        NoStandIn: it fails.
    """
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NoStandIn(f"{command[0]} failed, so there is no stand-in:\n{done.stderr}")
    return done.stdout


def others() -> list[Path]:
    """Libraries that call CUDA beside PyTorch's own, as other packages bring them: ``STANDIN_LIBRARIES``."""
    return [Path(library) for library in os.environ.get("STANDIN_LIBRARIES", "").split(os.pathsep) if library]


def header(name: str) -> Path:
    """A header of NVIDIA's wheels."""
    return next(NVIDIA.glob(f"*/include/{name}"))


def build(folder: Path) -> None:
    """Build all stand-ins into ``folder``, and list them in ``preload``."""
    found = imports()
    for library in sorted(found, key=lambda name: (not name.startswith("libcudart."), name)):
        build_library(folder, library, found[library])
    build_driver_for_cudnn(folder / "nodriver")
    (folder / "preload").write_text(" ".join(sorted(found)))


def imports() -> dict[str, dict[str, str]]:
    """For each CUDA library that torch wants: its symbols, each with its version or ``""``."""
    wanted, needed = wanted_by_torch()
    libraries: dict[str, dict[str, str]] = {name: {} for name in needed if not re.match(SYSTEM, name)}
    for name, version in wanted.items():
        if library := library_of(name, version, libraries):
            libraries[library][name] = version
    return libraries


def wanted_by_torch() -> tuple[dict[str, str], set[str]]:
    """The symbols that torch's libraries import, each with its version or ``""``, and the libraries that they name."""
    wanted: dict[str, str] = {}
    needed = {"libnvidia-ml.so.1"}  # opened when it is wanted, not linked
    for library in (*sorted(TORCH.glob("*.so")), *others()):
        needed |= set(re.findall(r"NEEDED.*\[(.*?)\]", run("readelf", "-d", library)))
        for symbol in re.findall(r"\b[Uw] (\S+)", run("nm", "-D", "--undefined-only", library)):
            name, _, version = symbol.partition("@")
            wanted[name] = version
    return dict.fromkeys(wanted_by_name(), "") | wanted, needed


def wanted_by_name() -> set[str]:
    """Symbols that are looked up by name, not imported."""
    text = (TORCH / "libc10_cuda.so").read_bytes()
    names = {name.decode() for name in re.findall(rb"\0((?:cu|nvml)[A-Z][A-Za-z0-9_]{4,60})(?=\0)", text)}
    names |= set(re.findall(DRIVER_FUNCTION, header("cuda.h").read_text()))  # by Triton
    names |= set(re.findall(r"\bcublasLt\w+(?=\()", header("cublasLt.h").read_text()))  # by cuDNN
    names |= set(re.findall(r"\bnvrtc[A-Z]\w+(?=\()", header("nvrtc.h").read_text()))
    return names | {"__nvrtcCPEx"}  # the header does not have it


def library_of(name: str, version: str, libraries: dict[str, dict[str, str]]) -> str | None:
    """Return the library that has a symbol, or None."""
    if version in libraries:
        return version
    if version and version != "NVSHMEM":
        return None
    return next((library for library in libraries if re.match(UNVERSIONED.get(library, "$"), name)), None)


def build_library(folder: Path, library: str, symbols: dict[str, str]) -> None:
    """Write and compile one stand-in."""
    source, defines = SOURCES.get(library[: library.index(".so") + 3], (None, ()))
    objects, own = [], set()
    if source:
        objects = [folder / f"{library}.o"]
        includes = [f"-I{path}" for path in (LIBRARIES, *sorted(NVIDIA.glob("*/include")))]
        run("gcc", *FLAGS, *defines, *includes, "-c", LIBRARIES / source, "-o", objects[0])
        own = set(re.findall(r" [TDB] (\S+)", run("nm", objects[0])))
    empty = folder / f"{library}.c"
    lines = ["long standin_unknown(const char *name, int times);"]
    for name in sorted(set(symbols) - own):
        lines.append(f'long {name}(void) {{ static int times; return standin_unknown("{name}", times++); }}')
    empty.write_text("\n".join(lines) + "\n")
    command = ["gcc", *FLAGS, "-shared", f"-Wl,-soname,{library}", "-o", folder / library, empty, *objects]
    run(*command, *link_flags(folder, library, symbols), "-ldl", "-lpthread")


def link_flags(folder: Path, library: str, symbols: dict[str, str]) -> list[str | Path]:
    """The version that a library's symbols carry, and the stand-in for cudart, which holds what all share."""
    flags: list[str | Path] = []
    if version := next((version for version in symbols.values() if version), ""):
        script = folder / f"{library}.map"
        script.write_text(f"{version} {{ global: *; }};\n")
        flags.append(f"-Wl,--version-script={script}")
    if not library.startswith("libcudart.so"):
        flags += [next(folder.glob("libcudart.so.*[0-9]")), "-Wl,-rpath,$ORIGIN"]
    return flags


def build_driver_for_cudnn(folder: Path) -> None:
    """The libcuda of cuDNN's namespace: ``nodriver.c``, and every other function of the driver that the header has."""
    folder.mkdir()
    flags = [*FLAGS, "-shared", "-Wl,-soname,libcuda.so.1", f"-I{header('cuda.h').parent}"]
    run("gcc", *flags, "-c", LIBRARIES / "nodriver.c", "-o", folder / "own.o")
    own = set(re.findall(r" T (\S+)", run("nm", folder / "own.o")))
    names = set(re.findall(DRIVER_FUNCTION, header("cuda.h").read_text())) - own
    (folder / "rest.c").write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in sorted(names)))
    run("gcc", *flags, "-o", folder / "libcuda.so.1", folder / "own.o", folder / "rest.c")
