"""``memlab lab``: copy the notebooks to a folder and open JupyterLab on it."""

import argparse
import os
import sys
import warnings
from pathlib import Path

from memlab.errors import MemlabError
from memlab.files import resolved
from memlab.kernels.shared import environment, shared_processes
from memlab.shipped import copy_notebooks, is_copy, shipped_folder

DEFAULT = Path("memlab-notebooks")
FIRST = "00_start_here.ipynb"
QUIET = ("--log-level=ERROR", "--LabApp.log_level=ERROR")  # the address is said nevertheless
SETTINGS = (
    Path(__file__).parent / "jupyter"
)  # defaults of JupyterLab's: it asks for no news. A reader's own settings win.


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the ``lab`` command."""
    parser = subparsers.add_parser("lab", help="copy the notebooks to a folder and open JupyterLab on it")
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="FOLDER",
        help=f"where to copy them (default: {DEFAULT}, or the current folder or the one above if it has them already); "
        "a notebook that you have edited is never replaced",
    )
    parser.add_argument("--no-browser", action="store_true", help="print JupyterLab's address and open no browser")
    parser.add_argument("--port", type=int, help="the port to listen on, on this machine only")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Copy, then run JupyterLab until it is stopped."""
    source = shipped_folder()
    folder = args.folder or _here(source) or DEFAULT
    if resolved(folder) != source:
        for name in copy_notebooks(source, folder):
            print(f"Kept your edited {folder / name}; to get memlab's version, rename yours and run this again.")
        print(f"The notebooks are in {folder.resolve()}")
    print("Jupyter runs until Ctrl-C is pressed here.", flush=True)  # before what Jupyter says itself
    _run_jupyterlab(jupyter_options(folder, port=args.port, browser=not args.no_browser))
    return 0


def _here(source: Path) -> Path | None:
    """The folder that we are in, or the one above, if it has the notebooks."""
    here = resolved(Path())
    return next((folder for folder in (here, here.parent) if is_copy(folder) or folder == source), None)


def jupyter_options(folder: Path, *, port: int | None = None, browser: bool = True) -> list[str]:
    """JupyterLab's command-line options: this machine only, its token left on."""
    options = ["--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={folder.resolve()}", *QUIET]
    if (folder / FIRST).exists():
        options.append(f"--LabApp.default_url=/lab/tree/{FIRST}")
    if port is not None:
        options.append(f"--ServerApp.port={port}")
    if not browser:
        options.append("--no-browser")
    # In a container everybody is root, and Jupyter would refuse to start.
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--allow-root")
    return options


def _run_jupyterlab(options: list[str]) -> None:
    """In this process, so that Ctrl-C and other signals reach Jupyter, which then stops its kernels."""
    try:
        from jupyterlab.labapp import LabApp
    except ImportError as error:
        raise MemlabError(
            f"JupyterLab does not start in {sys.executable} ({error}): "
            'install it there with python -m pip install "jupyterlab>=4,<5".'
        ) from error
    with environment(_surroundings()), shared_processes(), warnings.catch_warnings(record=True):
        LabApp.launch_instance(options)  # warnings are kept for nobody: they are about Jupyter's own code


def _surroundings() -> dict[str, str]:
    """The environment of Jupyter and of its kernels, whose threads share the cores with a browser."""
    settings = os.pathsep.join(filter(None, [str(SETTINGS), os.environ.get("JUPYTER_CONFIG_PATH")]))
    return {"JUPYTER_CONFIG_PATH": settings, "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive")}
