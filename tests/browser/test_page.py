"""A panel without Python, opened from a folder in a real browser and used from the keyboard and by touch."""

import os

import pytest

from memlab import Lab, predict
from memlab.lab.page import choose_axes, page, predict_grid
from memlab.lab.page.grid import point
from memlab.units import format_bytes
from tests.browser.jupyter import browser_page, find_chromium
from tests.lab.loops import train

pytestmark = pytest.mark.skipif(
    not find_chromium() and not os.environ.get("CI"), reason="there is no Chromium to drive"
)


@pytest.fixture(scope="module")
def session():
    return Lab(train, batch_size=(1, 64), optimizer=["SGD", "Adam"], compiled=bool, title="Try it").session


@pytest.fixture(scope="module")
def address(session, tmp_path_factory):
    file = tmp_path_factory.mktemp("site") / "lab.html"
    file.write_text(page(predict_grid(session, choose_axes(session, ["T4", "H100"], most=24))), encoding="utf-8")
    return file.as_uri()


@pytest.fixture(scope="module")
def browser():
    with browser_page(1280, 720) as opened:
        yield opened


def sentence(browser):
    return browser.locator(".memlab-sentence").inner_text()


def peak(gpu, **settings):
    return f"peak {format_bytes(predict(train, gpu=gpu, **settings).peak_allocated)}"


def test_it_draws_what_was_predicted(browser, address, session):
    browser.goto(address)
    drawn = browser.locator(".memlab-picture").first
    drawn.wait_for()
    picture, _ = point(session, {"batch_size": 8, "optimizer": "SGD", "compiled": False, "gpu": "T4"})
    wanted = browser.evaluate(
        "text => { const box = document.createElement('div'); box.innerHTML = text; return box.innerHTML; }", picture
    )
    assert drawn.inner_html() == wanted


def test_it_answers_to_the_keyboard(browser, address):
    browser.goto(address)
    slider = browser.get_by_role("slider", name="batch size")
    slider.focus()
    browser.keyboard.press("End")
    assert peak("T4", batch_size=64) in sentence(browser)
    assert slider.get_attribute("aria-valuetext") == "64"
    browser.get_by_role("combobox", name="optimizer").select_option("Adam")
    assert peak("T4", batch_size=64, optimizer="Adam") in sentence(browser)
    browser.get_by_role("combobox", name="predict for").select_option("H100")
    assert "H100" in sentence(browser)
    assert browser.locator(".memlab-picture svg").count() > 0


def test_the_address_carries_the_settings(browser, address):
    browser.goto("about:blank")
    browser.goto(f"{address}#lab-try-it?batch_size=64&optimizer=Adam&gpu=H100")
    browser.locator(".memlab-sentence").wait_for()
    assert peak("H100", batch_size=64, optimizer="Adam") in sentence(browser)
    browser.get_by_role("slider", name="batch size").focus()
    browser.keyboard.press("Home")
    assert "batch_size=1&optimizer=Adam" in browser.url


def test_an_odd_address_is_where_it_begins(browser, address):
    browser.goto("about:blank")
    browser.goto(f"{address}#lab-try-it?batch_size=63&optimizer=%3Cb%3E")
    browser.locator(".memlab-sentence").wait_for()
    assert peak("T4", batch_size=8) in sentence(browser)


def test_it_answers_to_touch_on_a_small_screen(browser, address):
    context = browser.context.browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, offline=True)
    page = context.new_page()
    page.goto(address)
    slider = page.get_by_role("slider", name="batch size")
    box = slider.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2)
    assert peak("T4", batch_size=64) in sentence(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()
