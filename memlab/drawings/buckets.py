"""When DDP sends its buckets: each as soon as backward has filled it."""

from collections.abc import Sequence

from memlab.palette import CATEGORY_COLORS, INK, LIMIT, QUIET_INK
from memlab.plots import SMALL, Picture, check_some, write_title
from memlab.trace import Category
from memlab.units import byte_ticks, format_bytes

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
    (all_ready, _), total = filled[-1], sum(count for _, count in filled)
    begin = 0
    for row, (ready, count) in enumerate(filled):
        hidden, end = ready < all_ready, begin + count
        axes.barh(row, count, 0.7, begin, color=CATEGORY_COLORS[Category.COMMUNICATION], alpha=0.85)
        axes.annotate(
            f"{format_bytes(count)} sent" + ("" if hidden else ", backward is over"),
            (end, row),
            (18, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL,
            color=INK if hidden else LIMIT,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            arrowprops={"arrowstyle": "<-", "color": INK if hidden else LIMIT},
        )
        begin = end
    axes.axvline(total, color=QUIET_INK, linestyle=":", linewidth=1)
    axes.set(xlim=(0, 1.4 * total), ylim=(len(filled) - 0.4, -0.6))
    ticks = [(count, text) for count, text in byte_ticks(total) if count <= total]
    axes.set_xticks([count for count, _ in ticks], [text for _, text in ticks], fontsize=SMALL)
    axes.set_xlabel("gradients that backward has ready", fontsize=SMALL, color=QUIET_INK)
    axes.set_yticks(range(len(filled)), [f"bucket {row}" for row in range(len(filled))], fontsize=SMALL)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    write_title(axes, title, "a bar: the gradients that fill a bucket; then it is sent while backward goes on")
    return picture
