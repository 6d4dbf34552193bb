"""Notebook 06 in a real JupyterLab, by keyboard, as a person would."""

import os
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.jupyter import browser_page, find_chromium, jupyterlab, run_all_cells
from tests.browser.panel import Panel

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "06_gradient_checkpointing.ipynb"
SCREENSHOTS = os.environ.get("MEMLAB_SCREENSHOTS")  # a folder, for whoever wants to look

if not find_chromium() and os.environ.get("CI"):
    pytest.fail("no Chromium on PATH: install Debian's package chromium", pytrace=False)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not find_chromium(), reason="no Chromium on PATH: install it to run the browser test"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder, home = tmp_path_factory.mktemp("notebooks"), tmp_path_factory.mktemp("jupyter")
    shutil.copy(NOTEBOOK, folder)
    with jupyterlab(folder, home) as address, browser_page(1600, 1000) as page:
        page.goto(address.format(NOTEBOOK.name))
        run_all_cells(page)
        page.get_by_text(re.compile(r"^Not yet\.")).wait_for(timeout=180_000)  # what the challenge says of its stub
        yield page


@pytest.fixture(autouse=True)
def _as_shown_first(page):
    """However the test before has left the panel: nothing runs, and controls and picture are as they began."""
    wait_until(page, lambda: waiting_cells(page) == 0)  # some are folded away
    stop_what_runs(page)
    if not panel(page).get_by_role("button", name="Reset", exact=True).is_visible():
        press(page, "More")
    press(page, "Reset")
    expect(panel(page).get_by_role("slider").first).to_have_attribute("aria-valuenow", re.compile("^8"))
    expect(panel(page).get_by_label("predict for")).to_have_value(re.compile("^T4"))
    expect(panel(page).get_by_label("budget")).to_have_value("")  # it would come while the next is typed
    wait_for_prediction(page, "GPT-2 small, predicted for a T4: ")


def waiting_cells(page: Page) -> int:
    return page.locator(".jp-InputPrompt").filter(has_text="*").count()


def panel(page: Page):
    return page.locator(".jp-OutputArea-output").filter(has=page.locator(".memlab-go"))


def status(page: Page, words: str):
    return panel(page).get_by_role("status").filter(has_text=re.compile(words))


def press(page: Page, name: str) -> None:
    panel(page).get_by_role("button", name=name, exact=True).focus()
    page.keyboard.press("Enter")


def shoot(page: Page, name: str) -> None:
    if SCREENSHOTS:
        panel(page).scroll_into_view_if_needed()
        page.screenshot(path=str(Path(SCREENSHOTS) / f"{name}.png"))


def focus_run(page: Page) -> None:
    panel(page).get_by_role("button", name="Run", exact=True).focus()


def type_budget(page: Page, text: str) -> None:
    panel(page).get_by_label("budget").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type(text)
    page.keyboard.press("Tab")


def stop_what_runs(page: Page) -> None:
    Panel(page).stop()
    expect(panel(page).get_by_role("button", name="Run", exact=True)).to_be_visible()


def run_to_the_end(page: Page, key: str) -> None:
    """With the slider moved by a key."""
    panel(page).get_by_role("slider").first.focus()
    page.keyboard.press(key)
    focus_run(page)
    page.keyboard.press("Enter")
    status(page, "Training").wait_for()
    status(page, r"Done after (\d+) of \1 steps\. Ready\.").wait_for()


def wait_for_prediction(page: Page, beginning: str) -> None:
    """Until the sentence begins so, and no other picture is on its way."""
    expect(panel(page).locator(".memlab-sentence")).to_have_text(re.compile(f"^{beginning}"))
    Panel(page).settle()


def loss_points(page: Page) -> int:
    """Return the number of steps that the loss curve shows; 0 where there is none, as before the first."""
    curve = panel(page).locator(".memlab-spark").first.locator("polyline.memlab-now")
    return sum(len(points.split()) for points in attributes(curve, "points"))


def attributes(locator: Locator, name: str) -> list[str]:
    """An attribute of all elements, at one moment: the picture may be drawn anew at the next."""
    return locator.evaluate_all("(elements, name) => elements.map(element => element.getAttribute(name))", name)


def wait_until(page: Page, condition, seconds: int = 60) -> None:
    for _ in range(10 * seconds):
        if condition():
            return
        page.wait_for_timeout(100)
    raise AssertionError("it did not happen in time")


def test_no_cell_fails(page):
    assert page.locator('[data-mime-type="application/vnd.jupyter.stderr"]').count() == 0
    assert page.locator(".jp-RenderedText").filter(has_text="Traceback").count() == 0


def test_a_run_by_keyboard_from_slider_to_stop(page):
    slider = panel(page).get_by_role("slider").first
    slider.focus()
    page.keyboard.press("End")  # the largest batch, for a run long enough to meddle with
    expect(panel(page).get_by_role("spinbutton", name="batch size, as a number")).to_have_value("12")

    focus_run(page)
    page.keyboard.press("Enter")
    status(page, "Training").wait_for()
    points = loss_points(page)
    wait_until(page, lambda: loss_points(page) != points)  # perhaps fewer: there may have been a run before
    expect(panel(page).get_by_text(re.compile("^measured on CPU"))).to_be_visible()
    facts = panel(page).locator(".memlab-facts").inner_text()
    assert re.search(r"predicted \(dashed\), without workspace: [\d.]+ MiB", facts)

    slider.focus()  # while it trains
    page.keyboard.press("Home")
    status(page, "For the next run: batch size 1").wait_for()
    shoot(page, "training")

    panel(page).get_by_role("button", name=re.compile(r"^Stop · \d+ of \d+ · ")).focus()
    page.keyboard.press("Enter")
    status(page, r"Stopped after \d+ of \d+ steps\. Ready\.").wait_for()
    shoot(page, "stopped")


def test_the_panel_is_ready_again_and_runs_to_the_end(page):
    run_to_the_end(page, "ArrowLeft")
    run_to_the_end(page, "Home")
    expect(panel(page).locator(".memlab-sentence")).to_contain_text("That is")
    shoot(page, "done")


def test_a_moved_slider_and_another_card_show_the_prediction_at_once(page):
    slider = panel(page).get_by_role("slider").first
    slider.focus()
    page.keyboard.press("ArrowRight")
    sentence = panel(page).locator(".memlab-sentence")
    expect(sentence).to_contain_text("GPT-2 small, predicted for a T4: peak")
    expect(panel(page).get_by_text(re.compile("^predicted for a T4"))).to_be_visible()
    before = sentence.inner_text()
    panel(page).get_by_label("predict for").focus()
    page.keyboard.press("h")  # by its first letter, as in any menu
    expect(sentence).to_contain_text("GPT-2 small, predicted for an H100: peak")
    assert sentence.inner_text() != before
    shoot(page, "predicted")


def test_a_run_is_seen_to_learn(page):
    page.evaluate(
        """() => {
            window.memlabMoments = new Set();
            const watch = () => {
                const line = document.querySelector('.memlab-cursor line');
                if (line) window.memlabMoments.add(line.getAttribute('x1'));
                window.memlabWatch = requestAnimationFrame(watch);
            };
            watch();
        }"""
    )
    run_to_the_end(page, "Home")
    assert page.evaluate("cancelAnimationFrame(window.memlabWatch); window.memlabMoments.size") > 3  # the cursor moved
    run = panel(page).locator(".memlab-run")
    assert 0 < float(run.locator(".memlab-loss").inner_text()) < 6
    said = run.locator(".memlab-sample").inner_text()
    assert "reads:" in said
    assert "guesses:" in said
    assert "writes:" in said
    assert re.search(r"peak [\d.]+ MiB in every step", run.inner_text())


def test_a_row_of_the_table_brings_its_settings_back(page):
    run_to_the_end(page, "ArrowRight")
    slider = panel(page).get_by_role("slider", name="batch size")
    slider.focus()
    page.keyboard.press("Home")
    row = panel(page).locator(".memlab-table tbody tr").filter(has_text="batch 9").filter(has_text="measured").first
    row.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(slider).to_have_attribute("aria-valuenow", re.compile("^9"))
    expect(panel(page).locator(".memlab-settings")).to_contain_text("batch 9")


def test_the_axis_stands_still_where_the_peak_falls_by_little(page):
    panel(page).get_by_label("model", exact=True).select_option("the one that Run trains")  # no card's line is near
    wait_for_prediction(page, "Predicted for a T4: ")
    number, grid = panel(page).locator(".memlab-number"), panel(page).locator(".memlab-chart .memlab-grid")
    expect(number).to_contain_text("MiB")
    before, heights = number.inner_text(), attributes(grid, "y1")
    assert len(heights) > 1
    panel(page).get_by_role("slider").first.focus()
    page.keyboard.press("ArrowLeft")
    expect(number).not_to_have_text(before)
    wait_for_prediction(page, "Predicted for a T4: ")
    expect(grid).to_have_count(len(heights))
    for line, height in zip(grid.all(), heights, strict=True):
        expect(line).to_have_attribute("y1", height)


def test_pointing_at_the_chart_asks_nobody(page):
    press(page, "Pin as A")
    chart = panel(page).locator(".memlab-chart")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
    expect(panel(page).locator(".memlab-answer")).to_contain_text("alive: ")
    expect(panel(page).locator(".memlab-answer li").first).to_contain_text("float32")
    expect(panel(page).locator(".memlab-code mark")).to_have_count(1)
    shoot(page, "asked")
    press(page, "Unpin A")


def test_it_is_presented_in_front_of_everything_else(page):
    press(page, "Present")
    shown = panel(page).locator(".memlab-present").bounding_box()
    assert (shown["x"], shown["y"], shown["width"], shown["height"]) == (0, 0, 1600, 1000)
    middle = page.evaluate(
        "!!document.elementFromPoint(800, 20).closest('.memlab')"
    )  # no menu of JupyterLab's above it
    assert middle
    panel(page).get_by_role("slider", name="batch size").focus()
    before = panel(page).locator(".memlab-settings").inner_text()
    page.keyboard.press("ArrowRight")
    expect(panel(page).locator(".memlab-settings")).not_to_have_text(before)
    shoot(page, "presented")
    page.keyboard.press("Escape")
    expect(panel(page).locator(".memlab-present")).to_have_count(0)


def test_bad_numbers_and_budgets_are_refused_in_a_sentence(page):
    box = panel(page).get_by_role("spinbutton", name="batch size, as a number")
    box.fill("1000")
    box.press("Enter")
    panel(page).get_by_role("alert").filter(has_text="batch size 1000 is out of range").wait_for()
    expect(box).to_have_value("8")
    type_budget(page, "lots")
    panel(page).get_by_role("alert").filter(has_text="'lots' is not a number of bytes").wait_for()


def test_a_budget_ends_a_run_out_of_memory(page):
    type_budget(page, "1 MiB")
    status(page, "From the next run on: a budget of 1.00 MiB").wait_for()
    focus_run(page)
    page.keyboard.press("Enter")
    status(page, "Out of memory after 1 of").wait_for()
    expect(panel(page).locator(".memlab-number")).to_have_text("out of memory")
    expect(panel(page).locator(".memlab-failed")).to_be_visible()
    shoot(page, "out_of_memory")
    type_budget(page, "none")
    status(page, "From the next run on: no budget").wait_for()


@pytest.mark.parametrize(("width", "beside"), [(1600, True), (700, False)])
def test_the_picture_stands_beside_the_controls_or_below_them_and_nothing_is_clipped(page, width, beside):
    page.set_viewport_size({"width": width, "height": 1000})
    try:
        panel(page).scroll_into_view_if_needed()
        run = panel(page).get_by_role("button", name="Run", exact=True).bounding_box()
        chart = panel(page).locator(".memlab-chart").bounding_box()
        outer = panel(page).bounding_box()
        assert (chart["x"] > run["x"] + run["width"]) is beside
        assert (chart["y"] > run["y"]) is not beside
        assert chart["x"] + chart["width"] <= outer["x"] + outer["width"] + 1
        shoot(page, f"wide_{width}")
    finally:
        page.set_viewport_size({"width": 1600, "height": 1000})


def test_after_a_kernel_restart_one_run_of_the_cells_brings_the_panel_back(page):
    page.get_by_role("menuitem", name="Kernel", exact=True).click()
    page.get_by_text("Restart Kernel…", exact=True).click()
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    run_all_cells(page)
    expect(status(page, "Ready: Run trains")).to_be_visible(timeout=120_000)
