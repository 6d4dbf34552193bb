"""The response time of a panel when a slider is dragged, a key pressed or a card chosen, in a real browser.

The panels of notebooks 00 and 06, with GPT-2 small predicted. Nothing trains.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import nbformat
from playwright.sync_api import Locator, Page

from tests.browser.jupyter import browser_page, find_chromium, jupyterlab, run_all_cells

MOVES, SECONDS = 60, 3.0  # of a drag
REST = 12.0  # seconds in which nobody touches the panel
QUIET = 2500  # milliseconds without a new picture: the last one was the answer

SETUP = """
import torch
from memlab import Lab
from memlab.data import batches
from memlab.nets import GPT

def train(device, *, batch_size=8, checkpoint_every=0, precision="fp32", depth=12, width=768, heads=12, context=1024):
    model = GPT(depth=depth, width=width, heads=heads, context=context, checkpoint_every=checkpoint_every).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for tokens, targets in batches(batch_size, context):
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            loss = model(tokens.to(device), targets.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss

"""
LABS = {
    "00": (10, 'lab = Lab(train, batch_size=(1, 64), device="cpu")\nlab'),
    "06": (
        4,
        "lab = Lab(train, batch_size=(1, 32), checkpoint_every=(0, 12), precision=['fp32', 'bf16'], device='cpu')\nlab",
    ),
}
PICTURE = ".memlab-drawing"
# Keeps the moment of every new picture of memory, and of the last thing that a person did.
WATCH = """() => {
    const picture = () => document.querySelector('.memlab-stage')?.outerHTML;  // with its title
    let last = picture();
    window.memlabRedraws = [];
    new MutationObserver(() => {
        const now = picture();
        if (now && now !== last) { last = now; window.memlabRedraws.push(performance.now()); }
    }).observe(document.body, {subtree: true, childList: true, characterData: true});
    for (const kind of ['keydown', 'pointerup', 'change'])
        document.addEventListener(kind, () => { window.memlabActed = performance.now(); }, {capture: true});
}"""
POINTED = """() => {
    const chart = document.querySelector('.memlab-chart'), box = chart.getBoundingClientRect(), times = [];
    for (let i = 0; i < 300; i++) {
        const begun = performance.now(), x = box.left + 80 + i * (box.width - 100) / 300;
        chart.dispatchEvent(new PointerEvent('pointermove', {clientX: x, clientY: box.top + 90}));
        document.body.offsetHeight;
        times.push(performance.now() - begun);
    }
    return times;
}"""
REDRAWN = "([since, until]) => window.memlabRedraws.filter(t => t > since && t <= until)"
IS_QUIET = f"performance.now() - Math.max(window.memlabActed, ...window.memlabRedraws) > {QUIET}"


def figures() -> Iterator[tuple[str, str, str]]:
    """Rows of (what, reach, figure)."""
    if find_chromium():
        for notebook, (reach, lab) in LABS.items():
            for what, wanted, figure in _of_a_lab(SETUP + lab, reach):
                yield f"{notebook}, GPT-2 small: {what}", wanted, figure


def _of_a_lab(source: str, reach: int) -> Iterator[tuple[str, str, str]]:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as home:
        nbformat.write(notebook, Path(folder) / "bench.ipynb")
        with jupyterlab(Path(folder), Path(home)) as address, browser_page(1400, 900) as page:
            page.goto(address.format("bench.ipynb"))
            run_all_cells(page)
            page.locator(PICTURE).first.wait_for()
            page.evaluate(WATCH)
            yield from _answers(page, reach)


def _answers(page: Page, reach: int) -> Iterator[tuple[str, str, str]]:
    slider = page.get_by_role("slider").first
    yield "dragged as soon as it is shown", f"{reach} a second", _drag(page, slider, to_the_right=True)
    run_all_cells(page)  # a new panel
    page.get_by_text("Python 3 (ipykernel) | Busy").wait_for()
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    page.locator(PICTURE).first.wait_for()
    page.wait_for_timeout(1000 * REST)
    yield f"dragged after {REST:.0f} s of rest", f"{reach} a second", _drag(page, slider, to_the_right=True)
    yield "dragged back", f"{reach} a second", _drag(page, slider, to_the_right=False)
    yield "pointing at the chart", "16 ms", _pointing(page)
    slider.focus()
    yield "a key, to a value not seen before", "", _keys(page, "ArrowRight")
    yield "a key, to a value seen before", "at once", _keys(page, "ArrowLeft")
    menu = page.get_by_label("predict for")
    yield "another card", "", _cards(page, menu, ["L4", "A100-40GB", "H100", "V100"])
    yield "a card seen before", "at once", _cards(page, menu, ["L4", "A100-40GB", "H100", "V100"])


def _pointing(page: Page) -> str:
    """The browser's milliseconds for a move over the chart, layout included."""
    times = page.evaluate(POINTED)
    return f"{statistics.median(times):.1f} ms, longest {max(times):.1f}"


def _drag(page: Page, slider: Locator, to_the_right: bool) -> str:
    """From where the slider stands to its end, in small steps."""
    track = slider.locator("xpath=ancestor::*[contains(@class, 'noUi-base')]").bounding_box()
    handle = slider.bounding_box()
    y, x = handle["y"] + handle["height"] / 2, handle["x"] + handle["width"] / 2
    end = track["x"] + (track["width"] if to_the_right else 0)
    page.mouse.move(x, y)
    page.mouse.down()
    begun, since = time.monotonic(), page.evaluate("performance.now()")
    for move in range(1, MOVES + 1):
        page.mouse.move(x + (end - x) * move / MOVES, y)
        time.sleep(max(0.0, begun + SECONDS * move / MOVES - time.monotonic()))
    page.mouse.up()
    page.wait_for_function(IS_QUIET)
    released = page.evaluate("window.memlabActed")
    during = page.evaluate(REDRAWN, [since, released])
    after = page.evaluate(REDRAWN, [released, 1e12])
    times = [since, *during, released]
    gap = max(later - earlier for earlier, later in pairwise(times))
    rate = 1000 * len(during) / (released - since)
    last = f"{after[-1] - released:.0f} ms" if after else "none needed"
    return f"{rate:.1f} a second, longest gap {gap:.0f} ms; exact after release: {last}"


def _keys(page: Page, key: str, repetitions: int = 6) -> str:
    return _summary([_answer(page, lambda: page.keyboard.press(key)) for _ in range(repetitions)])


def _cards(page: Page, menu: Locator, cards: list[str]) -> str:
    options = {text.partition(":")[0]: text for text in menu.locator("option").all_text_contents()}
    return _summary([_answer(page, lambda card=card: menu.select_option(label=options[card])) for card in cards])


def _answer(page: Page, act) -> tuple[float, float]:
    """Milliseconds until the first new picture and the last one."""
    act()
    page.wait_for_function(IS_QUIET)
    acted = page.evaluate("window.memlabActed")
    redrawn = page.evaluate(REDRAWN, [acted, 1e12])
    return redrawn[0] - acted, redrawn[-1] - acted


def _summary(answers: list[tuple[float, float]]) -> str:
    first, last = ([answer[i] for answer in answers] for i in (0, 1))
    texts = (f"{statistics.median(times):.0f} ms ({min(times):.0f} to {max(times):.0f})" for times in (first, last))
    return "first picture {}, last {}".format(*texts)


if __name__ == "__main__":
    for row in figures():
        print("{:<60} {:<14} {}".format(*row), flush=True)
