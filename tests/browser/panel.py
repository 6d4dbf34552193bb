"""A lab's panel on a page, used as a person uses it: from the keyboard."""

import os
import re
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

SCREENSHOTS = os.environ.get("MEMLAB_SCREENSHOTS")  # a folder, for whoever wants to look
SLIDERS = '.memlab-left [role="slider"], .ui-slider-handle'  # ipywidgets 8 and 7
PREDICTED = re.compile(r"^predicted for an? ")
PREDICTING = re.compile("^Predicting ")
ENDED = re.compile(r"(Stopped|Done|Out of memory) after \d+ of \d+ steps\. Ready\.")
GO = ".memlab-go"  # the button that begins a run, and ends it
STOP = re.compile("^Stop")
SOON = 120_000  # milliseconds, on a busy machine


class Panel:
    """One of the panels of a page, in any front end: the first, or another by its ``place``."""

    def __init__(self, page: Page, place: int = 0):
        self.page = page
        self.box = panels(page).nth(place)

    def control(self) -> Locator:
        """The last slider, which mostly costs least to move; the first menu where there is none."""
        sliders = self.box.locator(SLIDERS)
        return sliders.last if sliders.count() else self.box.get_by_role("combobox").first

    def press(self, name: str) -> None:
        """Press a button."""
        self.box.get_by_role("button", name=name, exact=True).focus()
        self.page.keyboard.press("Enter")

    def move(self) -> None:
        """Move a control by a key, see what is predicted then, and move it back."""
        before = self.settings()
        there, back = ("ArrowLeft", "ArrowRight") if _is_at_end(self.control()) else ("ArrowRight", "ArrowLeft")
        self.choose(there)
        self.page.keyboard.press(back)
        expect(self.heading()).to_have_text(before, timeout=SOON)

    def choose(self, key: str) -> None:
        """Move a control by this key, and see what is predicted then."""
        before = self.settings()
        self.control().focus()
        self.page.keyboard.press(key)
        expect(self.heading()).not_to_have_text(before, timeout=SOON)
        expect(self.box.get_by_text(PREDICTED)).to_be_visible(timeout=SOON)
        self.settle()

    def settle(self) -> None:
        """Wait until no other picture is on its way."""
        expect(self.box.get_by_text(PREDICTING)).to_have_count(0, timeout=SOON)

    def settings(self) -> str:
        """Return the text of the heading when no other picture is on its way."""
        self.settle()
        return self.heading().inner_text()

    def heading(self) -> Locator:
        """The settings above the picture."""
        return self.box.locator(".memlab-settings b").first

    def run(self) -> None:
        """Run until a step has been measured and drawn, then stop, if the run has not ended by itself."""
        self.press("Run")
        expect(self.box.get_by_text(re.compile("^measured on "))).to_be_visible(timeout=SOON)
        self.stop()
        expect(self.box.get_by_role("status").filter(has_text=ENDED)).to_be_visible(timeout=SOON)

    def stop(self) -> None:
        """End a run, if one is going on. The picture's button "Stop predicting" is another, and shown after 2 s."""
        if self.box.locator(GO).filter(has_text=STOP).count():
            self.box.locator(GO).focus()
            self.page.keyboard.press("Enter")

    def shoot(self, name: str) -> None:
        """A picture of the page, for whoever asked for it."""
        if SCREENSHOTS:
            self.box.scroll_into_view_if_needed()
            self.page.screenshot(path=str(Path(SCREENSHOTS) / f"{name}.png"))


def panels(page: Page) -> Locator:
    """All panels of a page."""
    return page.locator(".memlab").filter(has=page.locator(GO))


def _is_at_end(control: Locator) -> bool:
    if control.evaluate("control => control.tagName") == "SELECT":
        return bool(control.evaluate("menu => menu.selectedIndex === menu.options.length - 1"))
    now = control.get_attribute("aria-valuenow")
    return now is not None and now == control.get_attribute("aria-valuemax")
