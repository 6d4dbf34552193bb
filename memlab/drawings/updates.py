"""A drawing of an optimizer's updates: those that change a weight in bfloat16, and those that vanish in rounding."""

from collections.abc import Mapping

import torch

from memlab.errors import BadValue
from memlab.palette import BLUE, INK, ORANGE, PHASE_SHADE, QUIET_INK
from memlab.plots import SMALL, Picture, write_title

DRAWN = 1200  # points of each kind
COLORS = (ORANGE, BLUE, QUIET_INK)


def updates(weights: torch.Tensor, changes: Mapping[str, torch.Tensor], *, title: str = "") -> Picture:
    """Draw each weight's update over the weight's size, with half the gap to the next bfloat16 as a line.

    What is below the line is rounded away when the sum is rounded to the nearest bfloat16. Zeros are left out.

    Args:
        weights: that bfloat16 can hold, of any shape; float32.
        changes: updates of these weights, each of their shape, by the name to write.
        title: the sentence that says the same; by default the share of the first kind that vanishes.

    Raises:
        BadValue: an update is zero everywhere.
    """
    if still := [name for name, change in changes.items() if not (change != 0).any()]:
        raise BadValue(f"{still[0]!r} changes no weight: give updates of a step that moves some.")
    first = next(iter(changes))
    lost = {name: vanished(weights, change) for name, change in changes.items()}
    sentence = title or f"{first}: {lost[first]:.0%} of the updates vanish in bfloat16"
    picture = Picture(sentence, height=3.8)
    axes = picture.add_subplot()
    size = weights.detach().float().cpu().abs().flatten()
    low, high = float("inf"), 0.0
    for (name, change), color in zip(changes.items(), COLORS, strict=False):
        step = change.detach().float().cpu().abs().flatten()
        seen = (size > 0) & (step > 0)
        xs, ys = size[seen], step[seen]
        few = torch.linspace(0, len(xs) - 1, min(DRAWN, len(xs))).long()
        label = f"{name}: {lost[name]:.0%} vanish"
        axes.scatter(xs[few], ys[few], s=5, color=color, alpha=0.5, linewidths=0, label=label)
        low, high = min(low, xs.quantile(0.02).item()), max(high, xs.max().item())
    line = torch.logspace(torch.tensor(low).log2().item(), torch.tensor(high).log2().item(), 600, base=2)
    gap = half_gap(line)
    bottom = min(change.abs()[change != 0].quantile(0.02).item() for change in changes.values()) / 2
    axes.plot(line, gap, color=INK, linewidth=1.5, drawstyle="steps-post", label="half a gap of bfloat16")
    axes.fill_between(line, gap, bottom, color=PHASE_SHADE, step="post", zorder=0)
    top = max(change.abs().max().item() for change in changes.values())
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set(xlim=(low, high), ylim=(bottom, max(2 * top, gap.max().item())))
    axes.set_xlabel("size of the weight", fontsize=SMALL, color=QUIET_INK)
    axes.set_ylabel("size of the update", fontsize=SMALL, color=QUIET_INK)
    axes.spines[["top", "right"]].set_visible(False)
    write_title(axes, sentence, "each point is a weight; below the line, rounding to the nearest gives the old weight")
    picture.legend(loc="outside lower left", ncols=2, fontsize=SMALL, frameon=False, markerscale=3)
    return picture


def half_gap(numbers: torch.Tensor) -> torch.Tensor:
    """Return half the distance from each number to the next bfloat16, which has eight binary digits."""
    return 2.0 ** (numbers.abs().log2().floor() - 8)


def vanished(weights: torch.Tensor, change: torch.Tensor) -> float:
    """Return the share of the updates that leave their weight as it was, of those that are not zero."""
    moved = (weights.float() + change).to(torch.bfloat16) != weights.to(torch.bfloat16)
    return 1 - moved[change != 0].float().mean().item()
