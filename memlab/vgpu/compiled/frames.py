"""The frames that one prediction compiles."""

import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from memlab.patching import Patches
from memlab.text import message
from memlab.vgpu.compiled import internals, tracing
from memlab.vgpu.compiled.graphs import Graphs
from memlab.vgpu.current_prediction import Prediction
from memlab.vgpu.internals import disable_modes

_MEMLAB = Path(__file__).parents[2]
_MACHINERY = tuple(str(_MEMLAB / name) for name in (f"tracking{os.sep}", f"vgpu{os.sep}", "patching.py"))
_GRAPHS = "triton.cudagraphs"
# What a clock decides on a card: settings of Inductor, with the sentence that says so.
_LEFT_OUT = {
    "max_autotune": "Autotuning is left out, because a clock on the card decides it: the code is predicted as "
    "compiled with mode='default'.",
}
_LEFT_OUT |= dict.fromkeys(("max_autotune_gemm", "max_autotune_pointwise"), _LEFT_OUT["max_autotune"])


class Frames:
    """Compiles the frames of one prediction for its card, and forgets them when it is over.

    Args:
        prediction: to whose ``undo`` it belongs.
        seeing: makes the context in which the prediction sees operators.
        tracker: follows the storages of the card.
    """

    def __init__(self, prediction: Prediction, seeing: Callable[[], AbstractContextManager[None]], tracker: Any):
        self._prediction = prediction
        self._tracker = tracker
        self._tracing = Patches(lambda: tracing.changes(prediction, seeing))
        self._compilers: dict[int, tuple[Any, _Compiler]] = {}  # by the reader's, which is kept beside
        self._codes: set[CodeType] = set()
        self._backends: list[tuple[Any, Callable[..., Any]]] = []  # the reader's, and that for the card
        self._sizes: Any = None  # which sizes have changed so far, by the place of the code
        prediction.undo.callback(self._forget)

    def compiler(self, readers: Any) -> Any:
        """Return what compiles for the card, in the place of what would compile for the reader's machine."""
        known = self._compilers.get(id(readers))
        if known is None:
            known = self._compilers[id(readers)] = readers, _Compiler(self, readers)
        return known[1]

    def compile(self, compiler: Callable[..., Any], frame: FrameType, *rest: Any) -> Any:
        """One frame, by Dynamo.

        Raises:
            Unsupported: the graph breaks, where the compiler allows no break.
        """
        self._codes.add(frame.f_code)
        with self._in_this_prediction():
            try:
                return compiler(frame, *rest)
            except (internals.BackendCompilerFailed, internals.InternalTorchDynamoError) as error:
                reason = message(getattr(error, "inner_exception", error)).splitlines()[0].partition(". ")[0]
                self._prediction.note(
                    f"{frame.f_code.co_qualname} could not be compiled for the card, so it is predicted as it is "
                    f"written, which is mostly an upper bound: {reason}"
                )
                return internals.skipped()

    def backend(self, readers: Any) -> Callable[..., Any]:
        """The reader's backend under another identity, by which Dynamo tells what is compiled for the card."""
        for known, ours in self._backends:
            if known == readers:  # as those of all layers that are compiled with the same settings
                return ours
        compile_graph = readers
        if isinstance(readers, internals.InductorBackend):
            compile_graph = partial(internals.compile_fx.compile_fx, config_patches=self._settings(readers.config))
        self._backends.append((readers, lambda graph, inputs: compile_graph(graph, inputs)))
        return self._backends[-1][1]

    def _settings(self, readers: Mapping[str, Any]) -> dict[str, Any]:
        """Inductor's settings, without those that a prediction leaves out."""
        if self._prediction.graphs is None and readers.get(_GRAPHS, internals.inductor_setting(_GRAPHS)):
            self._prediction.graphs = Graphs(self._prediction, self._tracker)
        for name, sentence in _LEFT_OUT.items():
            if readers.get(name, internals.inductor_setting(name)):
                self._prediction.note(sentence)
        return {**readers, **dict.fromkeys(_LEFT_OUT, False)}

    @contextmanager
    def _in_this_prediction(self) -> Iterator[None]:
        """As in a process that has compiled for this prediction alone, with the card."""
        with internals.frame_lock, ExitStack() as context:
            before, internals.pgo._CODE_STATE = internals.pgo._CODE_STATE, self._sizes
            context.enter_context(tracing.settings())
            context.enter_context(self._tracing)
            context.enter_context(disable_modes())
            try:
                with tracing.for_the_card():
                    yield
            finally:
                self._sizes, internals.pgo._CODE_STATE = internals.pgo._CODE_STATE, before

    def note_break(self, error: internals.Unsupported) -> None:
        """Tell of a break of a graph that ``fullgraph=True`` forbids."""
        stack = error.real_stack or [traceback.FrameSummary("an unknown place", 0, "")]
        place = f"{Path(stack[-1].filename).name}:{stack[-1].lineno}"
        self._prediction.note(
            f"torch.compile(fullgraph=True) raises an error at {place}, because the graph breaks there: "
            f"{message(error).splitlines()[0]}. It is predicted as with fullgraph=False."
        )

    def _forget(self) -> None:
        for code in self._codes:
            internals.forget(code, [ours for _, ours in self._backends])
        self._codes.clear()
        self._compilers.clear()


class _Compiler:
    """Called by Dynamo with each frame that something compiled runs."""

    def __init__(self, frames: Frames, readers: Any):
        self._frames = frames
        backend = frames.backend(internals.innermost_backend(readers))
        self._torchdynamo_orig_backend = internals.compiler_for(backend)  # by which C++ tells compiled frames apart
        whole = internals.wants_whole_graphs(readers)
        self._of_whole_graphs = internals.compiler_of_whole_graphs(backend) if whole else None

    def __call__(self, frame: FrameType, *rest: Any) -> Any:
        if frame.f_code.co_filename.startswith(_MACHINERY):
            return internals.skipped()
        if self._of_whole_graphs is not None:
            try:
                return self._frames.compile(self._of_whole_graphs, frame, *rest)
            except internals.Unsupported as error:
                self._frames.note_break(error)
                self._of_whole_graphs = None
        return self._frames.compile(self._torchdynamo_orig_backend, frame, *rest)
