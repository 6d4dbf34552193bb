"""A walk through a lab's panel by the Tab key, with all open that its buttons bring up."""

import re
from io import BytesIO
from itertools import pairwise

import numpy as np
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from tests.browser.panel import SOON, Panel

CONTROLS = "button, input, select, textarea, a[href], [role=slider], [contenteditable=true], [tabindex='0']"
KIND = "control => control.getAttribute('role') || control.type"
STATE = "control => control.getAttribute('aria-valuenow') ?? `${control.value} ${control.checked}`"
# Keys that change it, and that undo each other.
KEYS = {
    "slider": ("ArrowRight", "ArrowLeft"),
    "select-one": ("ArrowDown", "ArrowUp"),
    "checkbox": ("Space", "Space"),
    "number": ("ArrowUp", "ArrowDown"),
    "text": ("1", "Backspace"),
}
TRIES = 3  # of a control, a second apart
MARGIN = 6  # pixels around a control in which its focus may show
CONTRAST = 3  # of what changes with the focus: https://www.w3.org/TR/WCAG22/#focus-appearance
# Where the control stands that has the focus, its place among those of the panel that can be seen; -1: none of them.
FOCUSED = (
    "(box, all) => [...box.querySelectorAll(all)].filter(c => c.checkVisibility()).indexOf(document.activeElement)"
)


def open_all(panel: Panel) -> None:
    """The small menu with a budget, the code and the links, two rows in the table of runs, and settings pinned as A."""
    box, page = panel.box, panel.page
    panel.press("More")
    box.get_by_role("textbox", name="budget").fill("15 GiB")
    page.keyboard.press("Enter")
    panel.press("Keep")
    panel.choose("ArrowRight")
    panel.press("Keep")
    expect(box.get_by_role("table", name=re.compile("^Runs and predictions"))).to_be_visible(timeout=SOON)
    box.get_by_role("button", name="Code", exact=True).focus()
    page.keyboard.press("Space")
    expect(box.get_by_role("textbox", name="code")).to_have_value(re.compile("import"), timeout=SOON)
    panel.press("Pin as A")
    panel.press("Save")
    expect(box.get_by_role("link")).to_have_count(3, timeout=SOON)


def operate(panel: Panel) -> list[str]:
    """Use every slider, menu, box and field by its keys, there and back; those that do not answer."""
    return [_name(control) for control in controls(panel) if not _answers_in_time(control)]


def _answers_in_time(control: Locator) -> bool:
    """A message of the kernel's, about the control before, may set this one back while its keys are pressed."""
    for _ in range(TRIES):
        if _answers(control):
            return True
        control.page.wait_for_timeout(1000)
    return False


def _answers(control: Locator) -> bool:
    keys = KEYS.get(control.evaluate(KIND))
    if keys is None:
        return True  # a button, or what is only read
    control.focus()
    for there, back in (keys, keys[::-1]):
        before = control.evaluate(STATE)
        control.page.keyboard.press(there)
        if control.evaluate(STATE) != before:
            control.page.keyboard.press(back)
            return control.evaluate(STATE) == before
    return False


def save_all(panel: Panel) -> list[str]:
    """Follow the links by Enter; the names of the files that come."""
    saved = []
    for link in panel.box.get_by_role("link").all():
        link.focus()
        with panel.page.expect_download() as download:
            panel.page.keyboard.press("Enter")
        saved.append(download.value.suggested_filename)
    return saved


def unnamed(panel: Panel) -> list[str]:
    """The controls without a name for a screen reader."""
    return [name for control in controls(panel) if '"' not in (name := _name(control))]


def unseen(panel: Panel) -> list[str]:
    """The controls that do not show it when they have the focus."""
    return [_name(control) for control in controls(panel) if not shows_focus(control)]


def _name(control: Locator) -> str:
    """Role and name, as in ``- slider "batch size"``."""
    return control.aria_snapshot().partition("\n")[0]


def controls(panel: Panel) -> list[Locator]:
    """All that can be operated and seen, as they follow each other on the page."""
    return [control for control in panel.box.locator(CONTROLS).all() if control.is_visible()]


def walk(panel: Panel) -> list[int]:
    """The places of the controls to which Tab leads, from the first of them until it leaves the panel."""
    controls(panel)[0].focus()
    places = []
    while (place := panel.box.evaluate(FOCUSED, CONTROLS)) >= 0 and place not in places:
        places.append(place)
        panel.page.keyboard.press("Tab")
    return places


def goes_down(panel: Panel) -> bool:
    """Return True if each control stands below the one before it, or beside it on the right."""
    places = list(map(Locator.bounding_box, controls(panel)))
    return all(_follows(earlier, later) for earlier, later in pairwise(places))


def _follows(earlier: dict, later: dict) -> bool:
    is_below = later["y"] + later["height"] / 2 > earlier["y"] + earlier["height"] / 2 - 10
    return is_below or later["x"] >= earlier["x"] + earlier["width"] - 10


def shows_focus(control: Locator) -> bool:
    """Return True if the focus of a control is visible: enough pixels change, and by enough."""
    page = control.page
    control.scroll_into_view_if_needed()
    control.focus()
    page.keyboard.press("Shift")  # the last thing that was used is the keyboard
    place = control.bounding_box()
    clip = {
        "x": place["x"] - MARGIN,
        "y": place["y"] - MARGIN,
        "width": place["width"] + 2 * MARGIN,
        "height": place["height"] + 2 * MARGIN,
    }
    focused = _luminance(page, clip)
    control.evaluate("control => control.blur()")
    ratio = (focused + 0.05) / (_luminance(page, clip) + 0.05)
    changed = int((np.maximum(ratio, 1 / ratio) >= CONTRAST).sum())
    return changed >= place["width"] + place["height"]


def _luminance(page: Page, clip: dict) -> np.ndarray:
    page.wait_for_timeout(200)  # transitions
    picture = Image.open(BytesIO(page.screenshot(clip=clip, caret="hide"))).convert("RGB")
    part = np.asarray(picture) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return linear @ np.array([0.2126, 0.7152, 0.0722])
