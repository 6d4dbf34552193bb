"""Call stacks in a snapshot: whose line asked for the memory, and in which part of a step."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from memlab.categories import Phase

Frames = Sequence[dict[str, Any]]  # the innermost first; with stacks="all" those of C++ are among them

_PYTHON = re.compile(r"\.pyw?$|^<")  # a file, or a cell; frames of C++ have a source, a library, nothing or "??"
_PYTORCH = re.compile(
    r"-packages/torch/|/torch/((nn|optim|autograd|utils|cuda|distributed|amp|fx|_\w+)/|(functional|_\w+)\.py$)"
)
_INSTALLED = re.compile(r"(site|dist)-packages/|/lib(64)?/python\d|^[A-Za-z]:/.*/[Ll]ib/|^<frozen ")
_PACKAGE = re.compile(r"-packages/(\w+)/")
_NODE = re.compile(r"torch::autograd::(?:generated::)?(\w+)::apply")
# What a frame says of the allocation, by "file:function" of Python or the function's name in C++.
_SIGNS = {
    "optimizer": re.compile(r"/optim(izers?)?/.*\.py:"),
    "zero_grad": re.compile(r"\.py:zero_grad$"),
    "weight": re.compile(
        r"/torch/nn/modules/.*:(_apply|convert|__init__|reset_parameters|to_empty)$|\.py:from_pretrained$"
    ),
    "checkpoint": re.compile(r"/utils/checkpoint\.py:"),
    "workspace": re.compile(r"[wW]orkspace"),
    "accumulate": re.compile(r"AccumulateGrad"),
    "engine": re.compile(r"autograd::Engine::"),
    # Known tensors of a network, by the operator that makes one or reads it.
    "logits": re.compile(r"[:_](log_softmax|nll_loss|cross_entropy)|^aten\W+_?(log_softmax|nll_loss)"),
    "softmax results": re.compile(r"(\.py:|::|^|^aten\W+)_?softmax(_int)?(::|$|\.)"),
}
_KINDS = ("logits", "softmax results")
UNRECORDED = "not recorded"


@dataclass(frozen=True)
class Stack:
    """An allocation's call stack, and what that tells of it.

    Attributes:
        place: the reader's own line, and the library's under it; or the node of the backward pass.
        line: the same without what another version may call differently: the reader's own line, or the backward pass.
        phase: of the step; :data:`memlab.categories.Phase.OTHER` where no stack was recorded.
        signs: what else its frames say.
        kind: ``"logits"``, ``"softmax results"`` or nothing.
    """

    place: str
    line: str
    phase: Phase
    signs: frozenset[str] = frozenset()

    @property
    def kind(self) -> str:
        """The known tensor that its operator makes, or nothing."""
        return next((kind for kind in _KINDS if kind in self.signs), "")


ENGINE = Stack("backward pass", "backward pass", Phase.BACKWARD)
_NONE = Stack(UNRECORDED, UNRECORDED, Phase.OTHER)


@dataclass(frozen=True, slots=True)
class _Frame:
    """One frame: its line as text, empty for one of C++; whose it is; what it says."""

    line: str
    is_torch: bool
    is_installed: bool
    node: str
    told: Phase | None
    signs: frozenset[str]


def reader() -> Callable[[Frames], Stack]:
    """A function that reads stacks; a snapshot has the same frame, and the same stack, many times."""
    stacks: dict[tuple[int, ...], Stack] = {}
    known: dict[int, _Frame] = {}

    def look(frame: dict[str, Any]) -> _Frame:
        if (read := known.get(id(frame))) is None:
            read = known[id(frame)] = _look(str(frame["filename"]), int(frame["line"]), str(frame["name"]))
        return read

    def read(frames: Frames) -> Stack:
        key = tuple(map(id, frames))
        if (stack := stacks.get(key)) is None:
            stack = stacks[key] = _read([look(frame) for frame in frames])
        return stack

    return read


def _look(filename: str, line: int, name: str) -> _Frame:
    file = filename.replace("\\", "/")
    is_python = line > 0 and bool(_PYTHON.search(file))
    said = f"{file}:{name}" if is_python else name
    node = _NODE.search(name)
    return _Frame(
        _line(file, line, name) if is_python else "",
        bool(_PYTORCH.search(file)),
        bool(_INSTALLED.search(file)),
        node[1] if node else "",
        Phase(file) if not line and file in set(Phase) else None,
        frozenset(sign for sign, pattern in _SIGNS.items() if pattern.search(said)),
    )


def _line(file: str, line: int, name: str) -> str:
    path = PurePosixPath(file)
    package = _PACKAGE.search(file)
    place = f"cell {path.stem}" if path.parent.name.startswith("ipykernel_") else path.name
    place = f"{package[1]}/{place}:{line}" if package else f"{place}:{line}"
    return place if name.startswith("<") else f"{place} in {name}"


def _read(frames: Sequence[_Frame]) -> Stack:
    if not frames:
        return _NONE
    python = [frame for frame in frames if frame.line]
    signs = frozenset().union(*(frame.signs for frame in frames))
    told = frames[1].told if len(frames) > 1 else None  # there a prediction's own snapshot says it
    phase = told or _phase(python, signs)
    place, line = _places(frames, python, phase, is_predicted=told is not None)
    return Stack(place, line, phase, signs)


def _phase(python: Sequence[_Frame], signs: frozenset[str]) -> Phase:
    if "optimizer" in signs:
        return Phase.OPTIMIZER
    # On a GPU the backward pass has a thread of its own, in which no line of the reader's stands below PyTorch's.
    return Phase.BACKWARD if "engine" in signs or not python or python[-1].is_torch else Phase.FORWARD


def _places(frames: Sequence[_Frame], python: Sequence[_Frame], phase: Phase, is_predicted: bool) -> tuple[str, str]:
    others = [frame for frame in python if not frame.is_torch]
    own = next((frame.line for frame in others if not frame.is_installed), "")
    library = others[0].line if others and others[0].is_installed else ""
    if phase is Phase.BACKWARD and (is_predicted or not own):
        node = next((frame.node for frame in frames if frame.node), "")
        return ", ".join(filter(None, (f"{ENGINE.place} {node}".strip(), library))), ENGINE.line
    if own:
        return f"{own} via {library}" if library else own, own
    return library or "PyTorch itself", library or "PyTorch itself"
