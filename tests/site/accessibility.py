"""The serious findings of axe-core on the pages of a built site, light and dark."""

from collections.abc import Iterator
from pathlib import Path

from tests.browser.axe import findings as findings_of_page
from tests.browser.jupyter import browser_page


def findings(site: Path) -> Iterator[str]:
    """Each serious finding in a line."""
    with browser_page(1280, 900) as page:
        for path in sorted(site.rglob("*.html")):
            page.goto(path.as_uri())
            for theme in ("light", "dark"):
                page.evaluate("theme => { document.body.dataset.theme = theme; }", theme)
                yield from (f"{path.relative_to(site)}, {theme}: {found}" for found in findings_of_page(page))
