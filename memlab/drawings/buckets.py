"""When DDP sends its buckets: each as soon as backward has filled it."""

from collections.abc import Sequence

from memlab.palette import CATEGORY_COLORS, INK, LIMIT, QUIET_INK
from memlab.plots import SMALL, Picture, check_some, write_title
from memlab.trace import Category
from memlab.units import format_bytes

ROW = 0.24  # inches


def buckets(filled: Sequence[tuple[int, int]], *, title: str) -> Picture:
    """Draw how backward fills one bucket after the other, and which of them is sent when backward is over.

    Args:
        filled: of each bucket, in the order in which they are sent, how many gradients were ready when it was full, and
            its bytes. The last one ends backward.
        title: the sentence that says the same.

    Raises:
        BadValue: when there is no bucket.
    """
    check_some(filled)
    picture = Picture(title, height=1.4 + ROW * len(filled))
    axes = picture.add_subplot()
    end = filled[-1][0]
    begin = 0
    for row, (ready, count) in enumerate(filled):
        hidden = ready < end
        color = CATEGORY_COLORS[Category.COMMUNICATION]
        axes.barh(row, ready - begin, 0.7, begin, color=color, alpha=0.85)
        axes.annotate(
            f"{format_bytes(count)} sent" + ("" if hidden else ", backward is over"),
            (ready, row),
            (18, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL,
            color=INK if hidden else LIMIT,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            arrowprops={"arrowstyle": "<-", "color": INK if hidden else LIMIT},
        )
        begin = ready
    axes.axvline(end, color=QUIET_INK, linestyle=":", linewidth=1)
    axes.set(xlim=(0, 1.4 * end), ylim=(len(filled) - 0.4, -0.6))
    ticks = range(0, end, max(1, end // 5))
    axes.set_xticks([*ticks], [str(tick) for tick in ticks], fontsize=SMALL)
    axes.set_xlabel(f"gradients that backward has ready, of {end}", fontsize=SMALL, color=QUIET_INK)
    axes.set_yticks(range(len(filled)), [f"bucket {row}" for row in range(len(filled))], fontsize=SMALL)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    write_title(axes, title, "a bar: where in backward a bucket fills; then it is sent while backward goes on")
    return picture
