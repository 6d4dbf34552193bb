"""A function operation by operation: the tensors that it writes, and those of them that autograd keeps."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile

from memlab.drawings.boxes import address, draw_box
from memlab.palette import INK
from memlab.plots import SMALL, Picture, write_title
from memlab.tracking.internals import TorchDispatchMode

Function = Callable[[torch.Tensor], torch.Tensor]
ROW = 0.62  # inches


class Written(NamedTuple):
    """The tensors of one call of a function: its input, then each tensor as large as it, and which of them are kept."""

    names: tuple[str, ...]
    kept: frozenset[int]


def operations(functions: Mapping[str, Function], x: torch.Tensor, *, title: str) -> Picture:
    """Draw a box for the input and for each tensor that forward writes, filled if autograd keeps it until backward.

    Args:
        functions: of one tensor, elementwise, by the name to write beside each; compiled ones too.
        x: what each is given.
        title: the sentence that says the same.
    """
    found = {name: written_by(function, x) for name, function in functions.items()}
    picture = Picture(title, height=1.0 + ROW * len(found))
    axes = picture.add_subplot()
    longest = max(len(one.names) for one in found.values())
    for row, (name, one) in enumerate(found.items()):
        axes.text(-0.7, row, name, ha="right", va="center", fontsize=SMALL, color=INK)
        for place, operation in enumerate(one.names):
            filled = place in one.kept
            draw_box(axes, place - 0.44, place + 0.44, row, is_kept=filled, height=0.6)
            color = "white" if filled else INK
            axes.text(place, row, operation, ha="center", va="center", fontsize=SMALL, color=color)
        told = f"writes {len(one.names) - 1}, keeps {len(one.kept)}"
        axes.text(longest - 0.3, row, told, va="center", fontsize=SMALL, color=INK, fontweight="bold")
    axes.set(xlim=(-2.4, longest + 2.2), ylim=(len(found) - 0.5, -0.5), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    note = "a box is a tensor: the input x, then what each operation of forward writes; filled: kept for backward"
    write_title(axes, title, note)
    return picture


def written_by(function: Function, x: torch.Tensor) -> Written:
    """Run a function, and return what it writes and what of that autograd keeps."""
    x = x.detach().clone().requires_grad_()
    saved: list[torch.Tensor] = []
    seen = _Outputs(x)
    is_compiled = hasattr(function, "_torchdynamo_orig_callable")  # a mode would make it run uncompiled

    def note(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.detach())
        return tensor.detach()

    if is_compiled:
        function(x)  # compiles
    with saved_tensors_hooks(note, lambda tensor: tensor):
        if is_compiled:
            seen.outputs.append(("kernel", function(x)))
        else:
            with seen:
                function(x)
    names = ["x", *(name for name, _ in seen.outputs)]
    if is_compiled:
        names[1:] = ["kernel"] * _large_allocations(function, x)
    addresses = [address(x), *(address(tensor) for _, tensor in seen.outputs)]
    kept = {address(tensor) for tensor in saved if tensor.numel() == x.numel()}
    return Written(tuple(names), frozenset(place for place, one in enumerate(addresses) if one in kept))


class _Outputs(TorchDispatchMode):
    """Keeps each new tensor as large as ``x``, with the name of the operation that wrote it."""

    def __init__(self, x: torch.Tensor):
        super().__init__()  # type: ignore[no-untyped-call]
        self.outputs: list[tuple[str, torch.Tensor]] = []
        self.numel = x.numel()
        self.known = {address(x)}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if isinstance(output, torch.Tensor) and output.numel() == self.numel and address(output) not in self.known:
            self.known.add(address(output))
            self.outputs.append((str(func).split(".")[1], output))
        return output


def _large_allocations(function: Function, x: torch.Tensor) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        function(x)
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    ours = [event for event in events if event.device_type().name.lower() == x.device.type]
    return sum(event.nbytes() >= x.nbytes for event in ours)
