"""What Sphinx is given: every picture with its text, live panels in the place of saved ones, dark colours."""

from tests.publish import CELL_ID
from tests.site.build import shown, themed


def code(name, *outputs):
    return {"cell_type": "code", "id": name, "source": "", "outputs": list(outputs)}


def displayed(**data):
    return {"output_type": "display_data", "metadata": {}, "data": data}


def test_a_picture_has_its_sentence_and_a_panel_is_live():
    picture = displayed(**{"image/png": "AA==\n", "text/plain": ['peak "1 GiB"']})
    notebook = shown({"cells": [code("a", picture), code("b", picture)]}, {"b": "<div>live</div>"})
    first, second = (cell["outputs"][0]["data"]["text/html"] for cell in notebook["cells"])
    assert first == '<img alt="peak &quot;1 GiB&quot;" src="data:image/png;base64,AA==">'
    assert second == "<div>live</div>"


def test_links_lead_to_pages_and_nothing_is_installed():
    linked = displayed(**{"text/markdown": "see [06](06_gradient_checkpointing.ipynb)"})
    (cell,) = shown({"cells": [code(CELL_ID), code("a", linked)]}, {})["cells"]
    assert cell["outputs"][0]["data"]["text/markdown"] == "see [06](06_gradient_checkpointing.html)"


def test_panels_are_dark_where_the_site_is():
    chosen, given = themed().splitlines()[-2:]
    assert 'body[data-theme="dark"] .memlab { --memlab-ink:' in chosen
    assert given.startswith("@media (prefers-color-scheme: dark)")
