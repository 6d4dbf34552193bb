"""The kiosk: a lab that is used in a browser, and what it keeps people from. ``make test-browser`` runs this."""

import json
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from tests.browser.axe import findings
from tests.browser.jupyter import browser_page, free_port, own_settings
from tests.browser.panel import Panel, panels
from tests.browser.walk import controls, open_all, unnamed, walk
from tests.environments import ROOT

pytestmark = pytest.mark.xdist_group("kiosk")  # one server for all

# Asks a kernel to write a file, and says what types of messages come back until it is idle or nothing comes.
RUN_CODE = """async ([kernel, code]) => {
  const socket = new WebSocket(`ws://${location.host}/api/kernels/${kernel}/channels`);
  const seen = [];
  await new Promise(done => { socket.onopen = done; });
  socket.onmessage = message => seen.push(JSON.parse(message.data).msg_type);
  const send = (msg_type, content) => socket.send(JSON.stringify({
    header: {msg_id: msg_type, username: '', session: 'mine', msg_type, version: '5.3', date: new Date().toISOString()},
    parent_header: {}, metadata: {}, content, channel: 'shell', buffers: []}));
  send('execute_request', {code, silent: false, store_history: false, user_expressions: {}, allow_stdin: false});
  send('kernel_info_request', {});
  for (let i = 0; i < 100 && !seen.includes('kernel_info_reply'); i++) await new Promise(on => setTimeout(on, 100));
  return seen;
}"""


@contextmanager
def kiosk(home, *options):
    """A kiosk with the lab of notebook 00. Yields its address, token and all."""
    command = [sys.executable, "-m", "tests.kiosk", "00", "--port", str(free_port()), *options]
    log = home / "kiosk.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | own_settings(home), stdout=output, stderr=output, start_new_session=True
        )
        try:
            for _ in range(600):
                if found := re.search(r"http://\S+token=\w+", log.read_text()):
                    break
                time.sleep(0.1)
            assert found, log.read_text()
            yield found[0]
        finally:
            server.terminate()
            server.wait(30)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with kiosk(tmp_path_factory.mktemp("kiosk"), "--kernels", "2") as address:
        yield address


@pytest.fixture(scope="module")
def page(address):
    with browser_page(1280, 900) as page:
        page.asked = []
        page.on("requestfinished", lambda request: page.asked.append(request.url))
        page.on("requestfailed", lambda request: page.asked.append(request.url) if request.failure != "csp" else None)
        page.goto(address)
        expect(panels(page)).to_have_count(1, timeout=120_000)
        yield page


def kernel_of(page):
    return json.loads(page.locator("#jupyter-config-data").text_content())["kernelId"]


def test_its_lab_is_used_from_the_keyboard_and_asks_no_other_host(page, address):
    panel = Panel(page)
    panel.move()
    panel.run()
    panel.shoot("kiosk")
    host = address.partition("?")[0]
    assert page.asked
    assert [url for url in page.asked if not url.startswith((host, "data:", "blob:"))] == []


def test_it_shows_one_lab_and_no_code(page):
    expect(page.get_by_role("heading", level=1)).to_contain_text("Start here")
    assert page.get_by_text("import").count() == 0


def test_it_runs_no_code_of_its_readers(page, tmp_path):
    file = tmp_path / "written"
    seen = page.evaluate(RUN_CODE, [kernel_of(page), f"open({str(file)!r}, 'w').write('mine')"])
    assert "kernel_info_reply" in seen  # the kernel heard what came after
    assert "execute_reply" not in seen
    assert not file.exists()


def test_it_hands_out_no_files(page, address):
    for name in ("00_start_here.ipynb", "logbook.jsonl", "../../../../etc/passwd"):
        assert page.request.get(address.replace("/?", f"/voila/files/{name}?")).status in (403, 404)


def test_a_screen_reader_can_use_it_in_light_and_dark(page, address):
    panel = Panel(page)
    open_all(panel)
    assert findings(page) == []
    page.goto(f"{address}&theme=dark")
    expect(panels(page)).to_have_count(1, timeout=120_000)
    open_all(panel)
    panel.shoot("kiosk_dark")
    assert findings(page) == []
    assert unnamed(panel) == []
    assert walk(panel) == list(range(len(controls(panel))))


def test_who_comes_when_all_places_are_taken_is_told_and_a_page_that_is_left_makes_room(page, address):
    browser = page.context.browser
    second, third = browser.new_page(), browser.new_page()
    second.goto(address)
    expect(panels(second)).to_have_count(1, timeout=120_000)
    assert third.goto(address).status == 503
    assert "All places are taken" in third.locator("body").inner_text()
    second.goto("about:blank")
    for _ in range(50):
        if third.goto(address).status == 200:
            return
        third.wait_for_timeout(200)
    raise AssertionError("the place of the page that was left is still taken")


def test_without_its_token_nobody_sees_it_and_with_it_nobody_sets_a_password(page, address):
    stranger = page.context.browser.new_page()
    stranger.goto(address.partition("?")[0])
    assert "/login" in stranger.url
    assert stranger.locator(".memlab").count() == 0
    expect(stranger.locator('input[type="password"]')).to_have_count(1)  # the token's; there is none for a new password


def test_a_page_that_nobody_touches_loses_its_kernel(page, tmp_path):
    left = page.context.browser.new_page()
    with kiosk(tmp_path, "--idle-seconds", "2") as address:
        left.goto(address)
        kernel = address.replace("/?", f"/api/kernels/{kernel_of(left)}?")
        for _ in range(300):
            if (status := left.request.get(kernel).status) == 404:
                break
            left.wait_for_timeout(200)
        assert status == 404, "its kernel still runs"
