"""A real JupyterLab on this machine, or another front end of Jupyter, and a real browser on it."""

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Page, expect, sync_playwright

# A closed network must not be asked for updates; a container's root must be let in.
CHROMIUM_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT = 60_000  # milliseconds: a busy machine is not a failure
expect.set_options(timeout=WAIT)


class FrontEnd(NamedTuple):
    """A server of notebooks: the module that Python runs, what it calls its options, where it shows a notebook."""

    module: str
    application: str
    folder: str
    token: str
    page: str


LAB = FrontEnd("jupyterlab", "ServerApp", "ServerApp.root_dir", "IdentityProvider.token", "lab/tree/{}?reset&")
NOTEBOOK = LAB._replace(module="notebook", page="notebooks/{}?")
CLASSIC = FrontEnd("notebook", "NotebookApp", "NotebookApp.notebook_dir", "NotebookApp.token", "notebooks/{}?")


def find_chromium() -> str | None:
    """The path of a Chromium or Chrome that is installed here."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


@contextmanager
def serve(front_end: FrontEnd, folder: Path, home: Path, python: str | Path = sys.executable) -> Iterator[str]:
    """A front end on ``folder``, with settings of its own below ``home``.

    Yields the address of a notebook, token and all, with a place for its name.
    """
    port = free_port()
    token = secrets.token_hex(16)
    module, application, *names, page = front_end
    command = [str(python), "-m", module, "--no-browser", "--allow-root", f"--{application}.port={port}"]
    command += [f"--{application}.ip=127.0.0.1", f"--{names[0]}={folder}", f"--{names[1]}={token}"]
    log = home / "jupyter.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            command, env=os.environ | own_settings(home), stdout=output, stderr=output, start_new_session=True
        )
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(server, f"{address}/api?token={token}", log)
            yield f"{address}/{page}token={token}"
        finally:
            # The whole group, so that no kernel outlives a test that failed.
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(30)


jupyterlab = partial(serve, LAB)


def free_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def browser_page(width: int, height: int) -> Iterator[Page]:
    """A page of a headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(CHROMIUM_OPTIONS))
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(WAIT)
        try:
            yield page
        finally:
            browser.close()


def run_all_cells(page: Page) -> None:
    """Begin to run the whole notebook, from the menu, in JupyterLab or Notebook 7."""
    idle = page.get_by_text("Python 3 (ipykernel) | Idle").or_(page.locator(".jp-NotebookKernelStatus-fade:empty"))
    idle.wait_for(state="attached")
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()


def wait_for_all_cells(page: Page, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Until no cell waits any more: all of them wait as soon as they are asked to run. Do something ``meanwhile``."""
    waiting = page.locator(".jp-InputPrompt").filter(has_text="*")
    waiting.first.wait_for(state="attached")
    meanwhile()
    expect(waiting).to_have_count(0, timeout=300_000)


def save(page: Page, file: Path) -> dict:
    """Save the notebook that is open, and return the content of its file."""
    before = file.stat().st_mtime_ns
    page.keyboard.press("Control+s")
    for _ in range(600):
        if file.stat().st_mtime_ns != before:
            with suppress(ValueError):  # half of it is written
                return json.loads(file.read_text(encoding="utf-8"))
        page.wait_for_timeout(100)
    raise AssertionError(f"{file.name} was not saved")


def shut_kernels_down(page: Page, address: str) -> None:
    """End all kernels of a server, as its menu does: the next notebook has the memory."""
    base, token = re.fullmatch(r"(http://[^/]+).*[?&](token=.*)", address).groups()
    for session in page.request.get(f"{base}/api/sessions?{token}").json():
        page.request.delete(f"{base}/api/sessions/{session['id']}?{token}")


def own_settings(home: Path) -> dict[str, str]:
    """Environment variables with which a server knows nothing of the settings that people have here."""
    # JupyterLab would ask whether it may fetch news, over the panel, and take cells out of sight off the page.
    _change_setting(home, "apputils-extension/notification", {"fetchNews": "false", "checkForUpdates": False})
    _change_setting(home, "notebook-extension/tracker", {"windowingMode": "none"})
    names = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    }
    return {name: str(home / folder) for name, folder in names.items()}


def _change_setting(home: Path, name: str, values: dict) -> None:
    file = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(values))


def _wait_for(server: subprocess.Popen, address: str, log: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}") from None
            time.sleep(0.2)
