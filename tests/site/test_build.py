"""The input of Sphinx: every picture with its text, live panels in place of saved ones, guesses to be made."""

import json
import re
from html import unescape

from memlab import Guess
from tests.notebooks.cells import LINK, NOTEBOOKS, ROOT
from tests.publish import CELL_ID
from tests.site.build import TEXTS, front, shown, themed


def code(name, *outputs):
    return {"cell_type": "code", "id": name, "metadata": {}, "source": "", "outputs": list(outputs)}


def text(source):
    return {"cell_type": "markdown", "id": "text", "metadata": {}, "source": [source]}


def displayed(**data):
    return {"output_type": "display_data", "metadata": {}, "data": data}


def panel(html, *, has_runs=True):
    return {"html": html, "has_runs": has_runs}


def html(cell):
    return [output["data"]["text/html"] for output in cell["outputs"]]


def test_a_picture_has_its_sentence_and_a_panel_is_live():
    picture = displayed(**{"image/png": "AA==\n", "text/plain": ['peak "1 GiB"']})
    notebook = shown({"cells": [code("a", picture), code("b", picture)]}, {"b": panel("<div>live</div>")})
    first, second = notebook["cells"]
    assert html(first) == ['<img alt="peak &quot;1 GiB&quot;" src="data:image/png;base64,AA==">']
    assert html(second) == ["<div>live</div>"]


def test_nothing_is_installed():
    assert shown({"cells": [code(CELL_ID), code("a")]}, {})["cells"] == [code("a")]


def test_what_a_notebook_folds_is_folded_on_its_page():
    hidden = code("a") | {"metadata": {"jupyter": {"source_hidden": True}}}
    first, second = shown({"cells": [hidden, code("b")]}, {})["cells"]
    assert first["metadata"]["tags"] == ["hide-input"]
    assert "tags" not in second["metadata"]


def test_what_a_page_does_not_have_is_not_spoken_of():
    cells = [text("Press **Run**. Run the next cell."), code("b")]
    for has_runs, left in ((True, "Press **Run**. "), (False, "")):
        notebook = shown({"cells": json.loads(json.dumps(cells))}, {"b": panel("", has_runs=has_runs)})
        assert notebook["cells"][0]["source"] == left


def test_a_guess_is_made_where_the_notebook_asks_and_its_answer_is_shown_there():
    guess = Guess("How much <is> it?", tolerance=0.1)
    asks = displayed(**{"text/markdown": guess._repr_markdown_()})
    told = displayed(**guess.reveal(1000)._repr_mimebundle_())
    other = displayed(**{"text/markdown": "A table."})
    first, second, third = shown({"cells": [code("a", other), code("b", asks), code("c", told)]}, {})["cells"]
    assert first["outputs"] == [other]
    assert third["outputs"] == []
    (made,) = html(second)
    assert json.loads(unescape(re.search('data-guess="([^"]*)"', made)[1])) == guess.to_plain()
    assert "<p><b>How much &lt;is&gt; it?</b></p>" in made  # without JavaScript
    assert "Guess first" not in made


def test_a_guess_without_a_box_is_made_where_it_is_told():
    told = displayed(**Guess("Which?", choices=["a", "b"]).reveal("b")._repr_mimebundle_())
    (cell,) = shown({"cells": [code("a", told)]}, {})["cells"]
    assert "data-guess=" in html(cell)[0]


def test_the_front_page_begins_with_a_live_panel_and_the_lessons_come_first():
    page = front("<div>live</div>")
    assert "```{raw} html\n<div>live</div>\n```" in page
    assert "panel.png" not in page
    assert "panel.png" in front("")
    parts = re.findall(r":caption: (\w+)\n\n(.*?)\n```", page, re.DOTALL)
    assert [name for name, _ in parts] == ["Lessons", "Guides", "Reference"]
    assert parts[0][1].startswith("notebooks/00_start_here\nnotebooks/01_")
    assert parts[2][1].startswith("api\n")


def test_panels_are_dark_where_the_site_is_and_look_as_it_does():
    *before, chosen, given = themed().splitlines()
    assert 'body[data-theme="dark"] .memlab { --memlab-ink:' in chosen
    assert given.startswith("@media (prefers-color-scheme: dark)")
    assert "--memlab-ground:var(--color-background-primary)" in "".join(before)
    assert ".memlab-chart" in "".join(before)
    assert "<" not in themed()


def test_every_link_of_a_text_leads_to_a_page_of_the_site():
    """Or Sphinx warns, and the build ends."""
    pages = [ROOT / name for name in TEXTS]
    links = [
        (page.relative_to(ROOT).as_posix(), (page.parent / target).resolve())
        for page in pages
        if page.suffix == ".md"
        for target in LINK.findall(page.read_text(encoding="utf-8"))
    ]
    assert links
    assert [(page, target) for page, target in links if target not in (*pages, *NOTEBOOKS)] == []
