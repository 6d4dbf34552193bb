"""The axes of a step: one beside the other for several runs, all with one scale of time."""

from matplotlib.axes import Axes

from memlab.palette import INK, QUIET_INK
from memlab.plots import SMALL, Picture
from memlab.trace import Trace
from memlab.units import format_seconds


def frame_step(axes: Axes, name: str, trace: Trace, longest: float) -> None:
    """Write a run's name and peak above its axes and its time below them, and end them at the ``longest`` step."""
    axes.set(xlim=(0, longest), xticks=[])
    axes.set_title(f"{name}: peak {trace.peak_text}", loc="left", fontsize=SMALL, color=INK)
    clock = "estimated" if trace.source == "predicted" else "measured"
    axes.set_xlabel(f"{format_seconds(trace.seconds[-1])} a step, {clock}", fontsize=SMALL, color=QUIET_INK)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)


def draw_legend_below(picture: Picture, axes: Axes, note: str) -> None:
    """Name the colours of these axes below the picture, under a note."""
    picture.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower left",
        ncols=3,
        title=note,
        alignment="left",
        fontsize=SMALL,
        title_fontsize=SMALL,
        frameon=False,
    )
