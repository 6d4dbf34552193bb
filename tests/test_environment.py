"""environment.yml and pyproject.toml ask for the same things, and constraints.txt pins all of them."""

import re
import tomllib
from pathlib import Path

import memlab
from memlab.versions import CHECKED_TORCH

ROOT = Path(__file__).parents[1]
CONDA_NAMES = {"torch": "pytorch", "playwright": "playwright-python"}
NAME_AND_BOUNDS = re.compile(r"([\w.-]+)\s*([<>=!~].*)?")


def read(text: str) -> tuple[str, frozenset[str]]:
    """``"jupyterlab >=4,<5"`` as its name and its set of bounds."""
    name, bounds = NAME_AND_BOUNDS.fullmatch(text.strip()).groups()
    return name, frozenset((bounds or "").replace(" ", "").split(",")) - {""}


def conda_lines(text: str) -> list[tuple[str, str]]:
    """Each dependency of an environment file and the comment behind it."""
    lines = (line.partition("#") for line in text.partition("dependencies:")[2].splitlines())
    return [(before.strip(" -"), comment.strip()) for before, _, comment in lines if before.strip(" -")]


def conda_dependencies(text: str) -> dict[str, frozenset[str]]:
    return dict(read(line) for line, _ in conda_lines(text) if line not in ("pip", "pip:", "e ."))


def project_dependencies(text: str) -> dict[str, frozenset[str]]:
    project = tomllib.loads(text)["project"]
    wanted = [f"python{project['requires-python']}", *project["dependencies"]]
    extras = project["optional-dependencies"]
    wanted += [*extras["lab"], *(line for line in extras["test"] if line != "memlab[lab]")]
    return {CONDA_NAMES.get(name, name): bounds for name, bounds in map(read, wanted)}


def test_both_files_ask_for_the_same():
    conda = conda_dependencies((ROOT / "environment.yml").read_text())
    assert conda == project_dependencies((ROOT / "pyproject.toml").read_text())


def test_a_difference_would_be_seen():
    text = (ROOT / "environment.yml").read_text()
    project = project_dependencies((ROOT / "pyproject.toml").read_text())
    for changed in (text.replace("pytorch >=2.11", "pytorch >=2.10"), re.sub(r".*\bnumpy .*\n", "", text)):
        assert changed != text
        assert conda_dependencies(changed) != project


def test_each_line_says_what_needs_it():
    for line, comment in conda_lines((ROOT / "environment.yml").read_text()):
        assert comment or line == "pip:", f"environment.yml does not say what needs {line}"


def test_the_files_that_the_lines_name_exist():
    for line, comment in conda_lines((ROOT / "environment.yml").read_text()):
        for path in re.findall(r"(?:memlab|tests|notebooks)/[\w/.]*", comment):
            assert (ROOT / path).exists(), f"environment.yml: {line} is for {path}, which does not exist"


def test_memlab_itself_is_installed_from_the_clone():
    assert re.search(r"- pip:\n\s+- -e \.", (ROOT / "environment.yml").read_text())


def test_constraints_pin_every_dependency_within_its_bounds():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {read(line)[0] for line in lines if re.fullmatch(r"[\w.-]+==[\w.]+", line)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["lab"], *extras["test"], *extras["models"]]
    wanted = {read(line)[0] for line in lines if line != "memlab[lab]"}
    assert pinned == wanted


VERSIONS = re.compile(r"\d+\.\d+\.\d+(?:, \d+\.\d+\.\d+)+ and \d+\.\d+\.\d+")


def bounds_of_checked(versions: tuple[str, ...]) -> frozenset[str]:
    """From the first version that was checked to before the minor version after the last."""
    (first_major, first_minor), (major, minor) = (versions[end].split(".")[:2] for end in (0, -1))
    return frozenset({f">={first_major}.{first_minor}", f"<{major}.{int(minor) + 1}"})


def test_torch_is_bounded_by_the_versions_that_were_checked():
    project = project_dependencies((ROOT / "pyproject.toml").read_text())
    assert project["pytorch"] == bounds_of_checked(CHECKED_TORCH)
    assert bounds_of_checked(("2.11.0", "2.16.1")) == {">=2.11", "<2.17"}


def test_everybody_names_the_same_checked_versions():
    wanted = f"{', '.join(CHECKED_TORCH[:-1])} and {CHECKED_TORCH[-1]}"
    pages = {
        path: " ".join(path.read_text(encoding="utf-8").split())
        for kind in ("*.py", "*.md")
        for path in (ROOT / "memlab").rglob(kind)
    }
    told = [(path.name, found) for path, page in pages.items() for found in VERSIONS.findall(page)]
    assert [(name, found) for name, found in told if found != wanted] == []
    assert f"torch=={CHECKED_TORCH[1]}\n" in (ROOT / "constraints.txt").read_text()
    assert f"TORCH ?= {CHECKED_TORCH[-1]}\n" in (ROOT / "Makefile").read_text()


def test_the_citation_and_the_changes_are_of_this_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()
    assert memlab.__version__ == version
