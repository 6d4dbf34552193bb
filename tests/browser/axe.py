"""The serious findings of axe-core on a page."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

BAD = ("serious", "critical")


def findings(page: Page, where: str | None = None) -> list[str]:
    """Each serious finding in a line, on the page or in the elements that a CSS selector names."""
    violations = Axe().run(page, context=where).response["violations"]
    return [
        f"{found['impact']}: {found['help']}: {node['html'][:120]}"
        for found in violations
        if found["impact"] in BAD
        for node in found["nodes"]
    ]
