"""What may import what: torch stays out of the plain modules, and each heavy package has one home."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "memlab"
WITHOUT_TORCH = ("categories.py", "oom.py", "trace.py", "units.py", "errors.py", "files.py")
HOMES = {"matplotlib": "plots.py", "ipywidgets": "lab/"}


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
    ],
)
def test_the_check_finds_an_offence(name, source, offence):
    assert offences(name, source) == [offence]


def test_the_check_allows_each_package_its_home():
    assert offences("plots.py", "import matplotlib") == []
    assert offences("lab/panel.py", "import ipywidgets, torch") == []


def loaded_by(statement: str) -> set[str]:
    """The heavy packages that a fresh Python has loaded after ``statement``."""
    report = f"import sys\n{statement}\nprint(*(sys.modules.keys() & {{'torch', 'matplotlib', 'ipywidgets', 'numpy'}}))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import memlab",
        "import memlab.trace, memlab.oom, memlab.units, memlab.errors, memlab.files",
        "import memlab.cli",
        "import memlab.vgpu",
    ],
)
def test_a_light_import_loads_nothing_heavy(statement):
    assert loaded_by(statement) == set()


def test_a_figure_of_a_saved_trace_needs_no_torch():
    assert loaded_by("import memlab.plots") == {"matplotlib", "numpy"}


def test_the_measurement_of_loaded_packages_works():
    assert "numpy" in loaded_by("import numpy")
