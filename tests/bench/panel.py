"""The cost of the live panel and its response time, in a real JupyterLab with a real browser."""

import copy
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from playwright.sync_api import Page

from tests.browser.jupyter import browser_page, find_chromium, jupyterlab, run_all_cells

SETUP = """
import statistics, time, torch
from memlab import Lab
from memlab.data import batches
from memlab.lab import live
from memlab.nets import GPT
from memlab.sizes import SIZES

S = SIZES["cpu"]

def train(device, *, batch_size=S.batch_size):
    model = GPT(depth=S.depth, width=S.width, heads=S.heads, context=S.context).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, targets in batches(batch_size, S.context):
        loss = model(tokens.to(device), targets.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss

lab = Lab(train, batch_size=(1, 64), steps=30)
lab
"""
# The same lab, drawing and asking its model as always, or only for its first and last frame. That is between the steps.
SPEED = """
usual = live.SECONDS_PER_FRAME, live.STEPS_PER_SAMPLE

def seconds(per_frame, per_sample):
    live.SECONDS_PER_FRAME, live.STEPS_PER_SAMPLE = per_frame, per_sample
    begun = time.perf_counter()
    lab.run()
    return time.perf_counter() - begun

seconds(*usual)
ratios = []
for _ in range(7):
    drawn, bare = seconds(*usual), seconds(1e9, 10**9)
    ratios.append(bare / drawn)
print(f"SPEED {statistics.median(ratios):.4f} from {min(ratios):.4f} to {max(ratios):.4f}")
live.SECONDS_PER_FRAME, live.STEPS_PER_SAMPLE = usual
"""
# Notes the moment of a key or a click, and the moment when the words appear.
WATCH = """(words) => {
    const found = () => [...document.querySelectorAll('[role=status]')].some(e => e.textContent.includes(words));
    window.memlabBegun = window.memlabSeen = null;
    const begin = () => { window.memlabBegun = performance.now(); };
    document.addEventListener('keydown', begin, {capture: true, once: true});
    const observer = new MutationObserver(() => {
        if (window.memlabBegun && found()) { window.memlabSeen = performance.now(); observer.disconnect(); }
    });
    observer.observe(document.body, {subtree: true, childList: true, characterData: true});
}"""


def figures() -> Iterator[tuple[str, str, str]]:
    """The live plot's cost, in the kernel alone and with a browser on the same cores, and two answers."""
    cells = [nbformat.v4.new_code_cell(source) for source in (SETUP, SPEED)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
    executed = NotebookClient(copy.deepcopy(notebook), timeout=900).execute()
    yield ("speed with the live plot, of that without: no browser", "0.97", _speed(executed.cells[1].outputs[0].text))
    if find_chromium():
        yield from _in_a_browser(notebook)


def _in_a_browser(notebook: nbformat.NotebookNode) -> Iterator[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as home:
        nbformat.write(notebook, Path(folder) / "bench.ipynb")
        with jupyterlab(Path(folder), Path(home)) as address, browser_page(1400, 900) as page:
            page.goto(address.format("bench.ipynb"))
            run_all_cells(page)
            output = page.locator(".jp-OutputArea-output", has_text="SPEED ")
            output.wait_for(timeout=900_000)
            yield ("the same, a browser drawing on the same cores", "0.97", _speed(output.inner_text()))
            sliders, stops = _answers(page)
    yield ("slider moved while training, until it shows", "100 ms", _milliseconds(sliders))
    yield ("Stop pressed while training, until it shows", "100 ms", _milliseconds(stops))


def _speed(text: str) -> str:
    return text.removeprefix("SPEED ").strip()


def _answers(page: Page, repetitions: int = 8) -> tuple[list[float], list[float]]:
    slider = page.get_by_role("slider").first
    button = page.locator(".memlab-go").last
    sliders, stops = [], []
    for _ in range(repetitions):
        button.press("Enter")
        page.get_by_role("status").filter(has_text="Training").wait_for()
        slider.focus()
        sliders.append(_answer(page, "ArrowRight", "For the next run"))
        button.focus()
        stops.append(_answer(page, "Enter", "Stopp"))
        page.get_by_role("status").filter(has_text="Ready").wait_for()
    return sliders, stops


def _answer(page: Page, key: str, words: str) -> float:
    """Milliseconds from the key to the words."""
    page.evaluate(WATCH, words)
    page.keyboard.press(key)
    page.wait_for_function("window.memlabSeen !== null")
    return page.evaluate("window.memlabSeen - window.memlabBegun")


def _milliseconds(times: list[float]) -> str:
    return f"{statistics.median(times):.0f} ms, from {min(times):.0f} to {max(times):.0f}"
