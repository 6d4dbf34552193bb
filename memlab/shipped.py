"""The notebooks that come with memlab, and the loops that their ranks import; copying them to a learner's folder."""

import hashlib
import importlib
import json
from pathlib import Path

from memlab.errors import BadValue, NotWritten
from memlab.files import make_folder, write_atomically

# Kept in the learner's folder: the SHA-256 of each notebook as it was copied. A file that no longer
# has its sum was edited.
MANIFEST = ".memlab.json"


def shipped_folder() -> Path:
    """Return the folder of the notebooks: inside the installed package, or beside it in a clone."""
    package = Path(__file__).resolve().parent
    installed = package / "notebooks"
    return installed if installed.is_dir() else package.parent / "notebooks"


def copy_notebooks(source: Path, target: Path) -> list[str]:
    """Bring ``target`` up to date with ``source``; return the names of the edited files, which are kept.

    Raises:
        BadValue: ``target`` is inside of ``source``.
        NotWritten: when ``target`` cannot be written, or a link in it leads out of it; no file in it is lost or half
            written.
    """
    if source.resolve() in target.resolve().parents:
        raise BadValue(f"{target} is inside of {source}, where memlab's own notebooks are: choose a folder elsewhere.")
    make_folder(target)
    sums = _read_manifest(target)
    edited = []
    _check_inside(target, MANIFEST)
    for name in _names(source):
        _check_inside(target, name)
        data = (source / name).read_bytes()
        new, present = _sum(data), _sum_of_file(target / name)
        if present not in (None, new, sums.get(name)):
            edited.append(name)
            continue
        if present != new:
            write_atomically(target / name, data)
        sums[name] = new
    write_atomically(target / MANIFEST, json.dumps({"sha256": sums}, indent=1))
    return edited


def bring_loops(target: Path) -> None:
    """Put the loops of ranks beside a notebook that came alone; files that are there stay.

    Raises:
        NotWritten: when ``target`` cannot be written, or a link in it leads out of it.
    """
    for loop in (shipped_folder() / "ranks").glob("*.py"):
        if not (target / "ranks" / loop.name).exists():
            _check_inside(target, f"ranks/{loop.name}")
            write_atomically(target / "ranks" / loop.name, loop.read_bytes())
    importlib.invalidate_caches()  # so that Python looks into a folder that is new


def _check_inside(target: Path, name: str) -> None:
    if target.resolve() not in (target / name).resolve().parents:
        raise NotWritten(f"{target / name} leads out of {target} by a link and was not written: remove the link.")


def is_copy(folder: Path) -> bool:
    """Return True if the notebooks were copied to this folder before."""
    return (folder / MANIFEST).is_file()


def _names(source: Path) -> list[str]:
    files = (path.relative_to(source) for pattern in ("*.ipynb", "*.py") for path in source.rglob(pattern))
    # Jupyter keeps its own copies in .ipynb_checkpoints.
    return sorted(file.as_posix() for file in files if not any(part.startswith(".") for part in file.parts))


def _read_manifest(target: Path) -> dict[str, str]:
    """The sums of the last copy; none when unreadable, and then every differing file counts as edited."""
    try:
        return dict(json.loads((target / MANIFEST).read_bytes())["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _sum_of_file(path: Path) -> str | None:
    try:
        return _sum(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError:
        return "unreadable"  # equal to no sum, so it counts as edited


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
