"""A panel as a page: it needs no Python, for every picture on it was predicted beforehand."""

from memlab.lab.page.grid import Axis, Grid, Point, choose_axes, combinations, point, predict_grid
from memlab.lab.page.html import form, fragment, page
from memlab.lab.page.recording import record

__all__ = ["Axis", "Grid", "Point", "choose_axes", "combinations", "form", "fragment", "page", "point", "predict_grid"]
__all__ += ["record"]
