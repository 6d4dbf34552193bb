"""A panel as a page: it needs no Python, for every picture on it was predicted beforehand."""

from memlab.lab.page.grid import Axis, Grid, choose_axes, predict_grid
from memlab.lab.page.html import fragment, page

__all__ = ["Axis", "Grid", "choose_axes", "fragment", "page", "predict_grid"]
