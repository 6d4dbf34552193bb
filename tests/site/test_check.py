"""Each fault of a page is found, and a page without one passes."""

import pytest

from tests.site.check import MOST_BYTES, Page, faults


@pytest.fixture
def site(tmp_path):
    def site(body):
        (tmp_path / "there.html").write_text('<p id="place">here</p>', encoding="utf-8")
        (tmp_path / "index.html").write_text(f"<body>{body}</body>", encoding="utf-8")
        return list(faults(tmp_path))

    return site


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="gone.html">x</a>', "gone.html leads nowhere"),
        ('<a href="there.html#gone">x</a>', "names a place that is not there"),
        ('<a href="#gone">x</a>', "names a place that is not there"),
        ('<img src="there.html">', "1 pictures have no text"),
        ('<script src="https://elsewhere/x.js"></script>', "from elsewhere"),
        ("x" * MOST_BYTES, "more than 2,000,000"),
    ],
)
def test_a_fault_is_found(site, body, fault):
    (found,) = site(body)
    assert found.startswith("index.html: ")
    assert fault in found


def test_a_good_page_passes(site):
    body = '<h2 id="a">A</h2><a href="there.html#place">x</a><a href="#a">x</a><a href="https://elsewhere/">x</a>'
    assert site(body + '<img alt="a picture" src="data:image/png;base64,AA==">') == []


def test_what_is_loaded_counts(tmp_path):
    (tmp_path / "heavy.js").write_text("x" * MOST_BYTES)
    (tmp_path / "index.html").write_text('<script src="heavy.js"></script>')
    (found,) = faults(tmp_path)
    assert "index.html: 2,0" in found


def test_what_a_page_has():
    page = Page('<link rel="stylesheet" href="a.css"><link rel="canonical" href="b"><img alt="c" src="data:x">')
    assert (page.loads, page.links, page.unnamed_pictures) == (["a.css"], [], 0)
