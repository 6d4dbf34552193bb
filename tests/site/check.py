"""The faults of a built site: links that lead nowhere, pictures without a text, pages that are too heavy."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

MOST_BYTES = 2_000_000  # of a page, all that it loads included


class Page(HTMLParser):
    """The links, the loaded files and the names of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.unnamed_pictures = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        values = dict(attrs)
        self.ids |= {values[key] or "" for key in ("id", "name") if key in values}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"] or "")
        loaded = values.get("src") or (values.get("href") if tag == "link" and _is_loaded(values) else None)
        if loaded and not loaded.startswith("data:"):
            self.loads.append(loaded)
        if tag == "img" and not values.get("alt"):
            self.unnamed_pictures += 1


def _is_loaded(link: dict[str, str | None]) -> bool:
    return link.get("rel") in ("stylesheet", "icon", "preload")


def faults(site: Path) -> Iterator[str]:
    """Each fault in a line."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        if page.unnamed_pictures:
            yield f"{name}: {page.unnamed_pictures} pictures have no text"
        for link in page.links:
            if fault := _fault_of_link(path, link, pages):
                yield f"{name}: {fault}"
        if outside := [address for address in page.loads if urlsplit(address).netloc]:
            yield f"{name}: loads {outside[0]} from elsewhere"
        weight = path.stat().st_size + sum(_weight(path, address) for address in set(page.loads))
        if weight > MOST_BYTES:
            yield f"{name}: {weight:,} bytes with all that it loads, more than {MOST_BYTES:,}"


def _fault_of_link(path: Path, link: str, pages: dict[Path, Page]) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return ""
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.exists():
        return f"{link} leads nowhere"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
        return f"{link} names a place that is not there"
    return ""


def _weight(path: Path, address: str) -> int:
    file = (path.parent / unquote(urlsplit(address).path)).resolve()
    return file.stat().st_size if file.exists() else 0
