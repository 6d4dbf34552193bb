"""Panels of a built site used as readers use them: from a folder, without a network, by keyboard and by touch."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Locator, Page

from tests.browser.jupyter import browser_page
from tests.site.points import grids

SCREEN, PHONE = (1280, 900), (390, 844)


def unusable(pages: Sequence[Path]) -> Iterator[str]:
    """Yield the faults of the first panel of each of these pages, a line each."""
    with browser_page(*SCREEN) as first:
        for size in (SCREEN, PHONE):
            with first.context.browser.new_context(
                viewport={"width": size[0], "height": size[1]}, has_touch=True, offline=True
            ) as context:
                for path in pages:
                    yield from (f"{path.name}, {size[0]} pixels: {fault}" for fault in _faults(context, path, size))


def _faults(context: BrowserContext, path: Path, size: tuple[int, int]) -> Iterator[str]:
    grid = grids(path)[0]
    moved = next(place for place, axis in enumerate(grid["axes"]) if axis["kind"] == "slider")
    expected = at_the_end(grid, moved)
    page = context.new_page()
    page.goto(path.as_uri())
    slider = page.locator(".memlab[data-grid]").first.get_by_role(
        "slider", name=grid["axes"][moved]["label"], exact=True
    )
    (_tap if size == PHONE else _press)(page, slider)
    if (said := _sentence(page)) != expected:
        yield f"the slider's end says {said!r}, not {expected!r}"
    again = context.new_page()
    again.goto(page.url)
    if (said := _sentence(again)) != expected:
        yield f"its address says {said!r}, not {expected!r}"
    if (width := page.evaluate("document.documentElement.scrollWidth")) > size[0]:
        yield f"the page is {width} pixels wide"


def at_the_end(grid: Mapping[str, Any], moved: int) -> str:
    """The sentence with one control at its last place, and the others where they begin."""
    number = 0
    for place, axis in enumerate(grid["axes"]):
        last = len(axis["values"]) - 1
        number = number * (last + 1) + (last if place == moved else axis["start"])
    return grid["sentences"][number]


def _press(page: Page, slider: Locator) -> None:
    slider.focus()
    page.keyboard.press("End")


def _tap(page: Page, slider: Locator) -> None:
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2)


def _sentence(page: Page) -> str:
    return page.locator(".memlab-sentence").first.inner_text()
