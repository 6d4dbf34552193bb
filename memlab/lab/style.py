"""The panel's colours as CSS variables, so that its pictures and words follow the notebook's theme, light or dark.

A front end says by an attribute or a class of its page which of the two it shows; one that says nothing is taken as
light. Ground and text change together, so they can be read wherever they stand.
"""

from collections.abc import Mapping

from memlab.lab.browser import browser_file
from memlab.palette import DARK, LIGHT

# JupyterLab, Notebook 7 and Voila; VS Code; Colab.
_DARK_PAGES = ('[data-jp-theme-light="false"]', ".vscode-dark", ".vscode-high-contrast", 'html[theme="dark"]')


def color(name: str) -> str:
    """A colour of the palette, for SVG and CSS: as the theme has it, else the light one."""
    return f"var(--memlab-{name},{LIGHT[name]})"


def style() -> str:
    """The ``<style>`` that a panel needs once; its outermost element has the class ``memlab``."""
    dark = ", ".join(f"{page} .memlab" for page in _DARK_PAGES)
    colors = f".memlab{{{variables(LIGHT)}}}{dark}{{{variables(DARK)}}}"
    return f"<style>{colors}{browser_file('panel.css')}</style>"


def variables(colors: Mapping[str, str]) -> str:
    """The CSS variables of a palette."""
    return "".join(f"--memlab-{name}:{value};" for name, value in colors.items())
