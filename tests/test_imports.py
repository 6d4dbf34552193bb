"""The order of imports: downward only, never in a circle; torch and each heavy package at home."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "memlab"
WITHOUT_TORCH = ("categories.py", "oom.py", "explaining.py", "trace.py", "units.py", "errors.py", "files.py")
HOMES = {
    "matplotlib": ("plots.py", "segment_plots.py", "drawings/"),
    "ipywidgets": "lab/",
    "anywidget": "lab/",
    "ipykernel": "kernels/",
}


def imported(source: str) -> set[str]:
    """The top-level packages that a module imports, at its top or inside its functions."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def offences(name: str, source: str) -> list[str]:
    """The imports in the module ``name`` (its path below memlab/) that the house does not allow."""
    packages = imported(source)
    wrong = [heavy for heavy, home in HOMES.items() if heavy in packages and not name.startswith(home)]
    if name in WITHOUT_TORCH and "torch" in packages:
        wrong.append("torch")
    return wrong


MODULES = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


@pytest.mark.parametrize("name", MODULES)
def test_each_package_is_imported_only_at_home(name):
    assert offences(name, MODULES[name]) == []


@pytest.mark.parametrize(
    ("name", "source", "offence"),
    [
        ("units.py", "import torch", "torch"),
        ("trace.py", "def load():\n    from torch import nn", "torch"),
        ("run.py", "import matplotlib.pyplot as plt", "matplotlib"),
        ("cli/lab.py", "from ipywidgets import HTML", "ipywidgets"),
        ("display.py", "def html():\n    import anywidget", "anywidget"),
    ],
)
def test_the_check_finds_an_offence(name, source, offence):
    assert offences(name, source) == [offence]


def test_the_check_allows_each_package_its_home():
    assert offences("plots.py", "import matplotlib") == []
    assert offences("lab/panel.py", "import ipywidgets, torch") == []
    assert offences("lab/picture.py", "import anywidget") == []


def loaded_by(statement: str) -> set[str]:
    """The heavy packages that a fresh Python has loaded after ``statement``."""
    heavy = {"torch", "matplotlib", "ipywidgets", "anywidget", "numpy"}
    report = f"import sys\n{statement}\nprint(*(sys.modules.keys() & {heavy}))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import memlab",
        "import memlab.trace, memlab.oom, memlab.explaining, memlab.units, memlab.errors, memlab.files",
        "import memlab.cli",
        "import memlab.vgpu",
        "import memlab.script.plan, memlab.script.net",
        "import memlab.testing",
    ],
)
def test_a_light_import_loads_nothing_heavy(statement):
    assert loaded_by(statement) == set()


def test_a_figure_of_a_saved_trace_needs_no_torch():
    assert loaded_by("import memlab.plots") == {"matplotlib", "numpy"}


def test_the_measurement_of_loaded_packages_works():
    assert "numpy" in loaded_by("import numpy")


# The rooms of the house, files and folders of the package, the lowest first: each may import from those before it.
ROOMS = (
    *("tracebacks", "errors", "patching", "turns", "versions", "units", "text", "categories", "oom", "explaining"),
    *("trace", "alive", "files", "garbage", "forked", "shipped", "palette", "logbook", "sizes", "protocol"),
    *("data", "nets", "techniques", "finetuning"),
    *("allocator", "snapshots", "tracking", "devices", "vgpu", "run", "fitting", "script", "cluster"),
    *(
        "plots",
        "segment_plots",
        "rank_plots",
        "drawings",
        "display",
        "lab",
        "kernels",
        "testing",
        "cli",
        "__main__",
        "__init__",
    ),
)
MOST_LINES = 600  # one matter in one file, rather than one in many


def room(name: str) -> str:
    """The room that a file is in: ``"vgpu"`` for ``"vgpu/mode.py"``."""
    return name.partition("/")[0].removesuffix(".py")


def target(module: str, files: Iterable[str]) -> str | None:
    """The file of a module of the package, None where there is none."""
    path = "/".join(module.split(".")[1:])
    return next((file for file in (f"{path}.py", f"{path}/__init__.py".lstrip("/")) if file in files), None)


def arrows(modules: Mapping[str, str]) -> dict[str, set[str]]:
    """Each file of the package, and the files of the package that it imports, at its top or inside its functions."""
    return {
        name: {file for module in memlab_modules(source, modules) if (file := target(module, modules))}
        for name, source in modules.items()
    }


def memlab_modules(source: str, files: Iterable[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "memlab")
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "memlab names what it imports from memlab.* on"
            if node.module.partition(".")[0] == "memlab":
                names = (f"{node.module}.{alias.name}" for alias in node.names)
                yield from (name if target(name, files) else node.module for name in names)


def upward(graph: Mapping[str, set[str]]) -> list[str]:
    """The arrows from a room to one that stands above it."""
    return [
        f"{name} imports {file}"
        for name, files in graph.items()
        for file in sorted(files)
        if ROOMS.index(room(file)) > ROOMS.index(room(name))
    ]


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Files that import each other in a circle; none if there is no circle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_every_file_has_a_room():
    assert {room(name) for name in MODULES} <= set(ROOMS)


def test_imports_point_downward():
    assert upward(arrows(MODULES)) == []


def test_no_files_import_each_other_in_a_circle():
    assert circle(arrows(MODULES)) == []


def test_no_file_is_long():
    lengths = {name: source.count("\n") for name, source in MODULES.items()}
    assert {name: length for name, length in lengths.items() if length >= MOST_LINES} == {}


def test_the_checks_find_what_they_look_for():
    modules = {
        "units.py": "def f():\n    from memlab.lab.panel import Lab",
        "lab/__init__.py": "from memlab.lab import panel",
        "lab/panel.py": "import memlab.lab.words, torch",
        "lab/words.py": "from memlab.lab import Lab",
    }
    graph = arrows(modules)
    assert graph["lab/__init__.py"] == {"lab/panel.py"}
    assert graph["lab/words.py"] == {"lab/__init__.py"}
    assert upward(graph) == ["units.py imports lab/panel.py"]
    assert set(circle(graph)) == {"lab/__init__.py", "lab/panel.py", "lab/words.py"}
    assert circle({"units.py": {"errors.py"}}) == []
