"""A real JupyterLab on this machine, and a real browser on it."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

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


def find_chromium() -> str | None:
    """The path of a Chromium or Chrome that is installed here."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


@contextmanager
def jupyterlab(folder: Path, home: Path) -> Iterator[str]:
    """JupyterLab on ``folder``, with settings of its own below ``home``. Yields its address, token and all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--ServerApp.port={port}"]
    command += ["--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={folder}", f"--IdentityProvider.token={token}"]
    log = home / "jupyterlab.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            command, env=os.environ | _own_settings(home), stdout=output, stderr=output, start_new_session=True
        )
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(server, f"{address}/api?token={token}", log)
            yield f"{address}/lab/tree/{{}}?token={token}&reset"
        finally:
            # The whole group, so that no kernel outlives a test that failed.
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(30)


@contextmanager
def browser_page(width: int, height: int) -> Iterator[Page]:
    """A page of a headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(CHROMIUM_OPTIONS))
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(60_000)
        try:
            yield page
        finally:
            browser.close()


def run_all_cells(page: Page) -> None:
    """Begin to run the whole notebook, from the menu."""
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()


def _own_settings(home: Path) -> dict[str, str]:
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
