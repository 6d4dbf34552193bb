"""The panel's colours as CSS variables, so that its pictures and words follow the notebook's theme, light or dark.

A front end says by an attribute or a class of its page which of the two it shows; one that says nothing is taken as
light. Ground and text change together, so they can be read wherever they stand.
"""

from collections.abc import Mapping

from memlab.palette import DARK, LIGHT

# JupyterLab, Notebook 7 and Voila; VS Code; Colab.
_DARK_PAGES = ('[data-jp-theme-light="false"]', ".vscode-dark", ".vscode-high-contrast", 'html[theme="dark"]')

# Charts beside the controls, or above them where there is no room for both; not so wide that lines are hard to read.
_LAYOUT = """
.memlab{max-width:1240px;padding:8px}
.memlab .memlab-body{display:flex;flex-flow:row wrap-reverse;align-items:flex-end;gap:8px 20px}
.memlab .memlab-left{flex:1 1 340px;min-width:300px}
.memlab .memlab-right{flex:3 1 470px;min-width:0}
.memlab .jupyter-button.mod-success{background:var(--memlab-good);color:var(--memlab-ground)}
.memlab .memlab-left :focus-visible{outline:2px solid var(--memlab-link)!important;outline-offset:1px}
"""


def color(name: str) -> str:
    """A colour of the palette, for SVG and CSS: as the theme has it, else the light one."""
    return f"var(--memlab-{name},{LIGHT[name]})"


def style() -> str:
    """The ``<style>`` that a panel needs once; its outermost element has the class ``memlab``."""
    dark = ", ".join(f"{page} .memlab" for page in _DARK_PAGES)
    colors = f".memlab{{{variables(LIGHT)}}}{dark}{{{variables(DARK)}}}"
    return f"<style>{colors}{_LAYOUT}</style>"


def variables(colors: Mapping[str, str]) -> str:
    """The CSS variables of a palette."""
    return "".join(f"--memlab-{name}:{value};" for name, value in colors.items())
