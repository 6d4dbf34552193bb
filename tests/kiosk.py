"""``make kiosk NOTEBOOK=00``: the lab of one notebook as a page, for people who shall run no code of their own.

Voila serves the page. It gives a browser the outputs and the widgets of a kernel and takes nothing else from it: no
code, no files. Every page has a kernel of its own, which ends with it, or when nobody has touched it for a while.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import nbformat
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from tornado.web import HTTPError
from traitlets import Int
from traitlets.config import Config

from tests.notebooks.cells import ROOT, code_cells, needed, notebook_named

# Voila's pages ask other hosts for fonts: a kiosk must work without a network, and tell nobody who looks at it.
OWN_FILES_ONLY = "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; frame-ancestors 'self'"
FULL = "All places are taken. Close a page of the kiosk that nobody uses, or try again in some minutes."
ANYBODY = "Warning: there is no token, so whoever reaches this address can use the kiosk."
NETWORK = "Warning: the kiosk answers other machines too, and what it sends is not encrypted."


class FewKernels(AsyncMappingKernelManager):
    """No more kernels at a time than ``most``."""

    most = Int(10, config=True)

    def __init__(self, **options):
        super().__init__(**options)
        self._one_by_one = asyncio.Lock()

    async def start_kernel(self, **options):
        """Start one.

        Raises:
            HTTPError: there are as many as there may be.
        """
        async with self._one_by_one:
            if len(self) >= self.most:
                raise HTTPError(503, reason=FULL)
            return await super().start_kernel(**options)


def page(notebook: Path) -> nbformat.NotebookNode:
    """A notebook with the title and the question of another, its lab, and the cells that this needs."""
    whole = json.loads(notebook.read_text(encoding="utf-8"))
    title, question = "".join(whole["cells"][0]["source"]).split("\n\n")[:2]
    cells = code_cells(notebook)
    lab = next(cell for cell in cells if "Lab(" in cell)
    made = [new_markdown_cell(f"{title}\n\n{question}"), *map(new_code_cell, needed(cells, [lab]))]
    return new_notebook(cells=made, metadata={"kernelspec": whole["metadata"]["kernelspec"]})


def config(folder: Path, asked: argparse.Namespace) -> Config:
    """Return the settings for Voila, which leave out what its user has configured for other pages."""
    from voila.voila_identity_provider import VoilaIdentityProvider

    server = {
        "ip": asked.ip,
        "port": asked.port,
        "auto_token": not asked.no_token,
        "identity_provider_class": VoilaIdentityProvider,  # the other would let people set a password on this machine
        "config_file_paths": [str(folder)],
        "connection_dir_root": str(folder),
        "tornado_settings": {"headers": {"Content-Security-Policy": OWN_FILES_ONLY}, "disable_check_xsrf": True},
    }
    kernels = {
        "most": asked.kernels,
        "cull_connected": True,  # a page that stays open stays connected
        "cull_idle_timeout": asked.idle_seconds,
        "cull_interval": min(30, asked.idle_seconds),
    }
    pages = {"multi_kernel_manager_class": FewKernels, "allow_template_override": "NO"}
    return Config({"Voila": server, "VoilaConfiguration": pages, "FewKernels": kernels})


def warnings(asked: argparse.Namespace) -> list[str]:
    """Return the warnings for whoever starts the kiosk."""
    said = {NETWORK: asked.ip not in ("127.0.0.1", "localhost"), ANYBODY: asked.no_token}
    return [text for text, is_so in said.items() if is_so]


def main() -> None:
    """Serve the page until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tests.kiosk", description=__doc__)
    parser.add_argument("notebook", help="whose lab, as 00")
    parser.add_argument("--ip", default="127.0.0.1", help="where to listen; 0.0.0.0: for other machines too")
    parser.add_argument("--port", type=int, default=8866)
    parser.add_argument("--kernels", type=int, default=10, help="how many people at a time (default: 10)")
    parser.add_argument("--no-token", action="store_true", help="let everybody in")
    parser.add_argument("--idle-seconds", type=int, default=600, help="until a page that nobody touches ends")
    asked = parser.parse_args()
    from voila.app import Voila

    notebook = notebook_named(asked.notebook)
    for text in warnings(asked):
        print(text, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / notebook.name
        nbformat.write(page(notebook), file)
        os.environ |= {
            "MEMLAB_LOGBOOK": str(Path(folder) / "logbook.jsonl"),
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "notebooks"))),  # a lab imports what lies beside it
            "OMP_NUM_THREADS": "1",
        }
        Voila.launch_instance([str(file), "--no-browser"], config=config(Path(folder), asked))


if __name__ == "__main__":
    main()
