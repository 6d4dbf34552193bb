"""What axe-core finds serious on the pages of a built site, light and dark."""

from collections.abc import Iterator
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe

from tests.browser.jupyter import browser_page

BAD = ("serious", "critical")


def findings(site: Path) -> Iterator[str]:
    """Each serious finding in a line."""
    with browser_page(1280, 900) as page:
        for path in sorted(site.rglob("*.html")):
            for theme in ("light", "dark"):
                page.goto(path.as_uri())
                page.evaluate("theme => { document.body.dataset.theme = theme; }", theme)
                for found in Axe().run(page).response["violations"]:
                    if found["impact"] in BAD:
                        where = found["nodes"][0]["html"][:120]
                        yield f"{path.relative_to(site)}, {theme}: {found['impact']}: {found['help']}: {where}"
