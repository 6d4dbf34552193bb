"""The panel: controls on the left, live pictures on the right, one sentence below."""

import threading
from collections.abc import Callable, Mapping
from concurrent import futures
from functools import partial
from typing import Any

import ipywidgets as widgets

from memlab.errors import MemlabError
from memlab.lab.accessibility import access
from memlab.lab.controls import LABEL_WIDTH, explain, make_control
from memlab.lab.elements import box, button, header, line, menu, quietly, show
from memlab.lab.export import picture, still
from memlab.lab.picture import Picture
from memlab.lab.questions import questions
from memlab.lab.registry import forget, watch
from memlab.lab.rows import table
from memlab.lab.session import Session
from memlab.lab.small_menu import SmallMenu
from memlab.lab.source import source
from memlab.lab.style import style
from memlab.lab.words import run_name
from memlab.protocol import Train
from memlab.trace import Trace
from memlab.units import format_bytes
from memlab.vgpu import CARDS, find_card

PATIENCE = 20.0  # seconds for the first prediction, which a panel appears with
WITHOUT_WIDGETS = "A memlab Lab: run this notebook in Jupyter to move its sliders, or call run() on it."


class Lab:
    """Sliders on a ``train`` function, its memory predicted as they move and drawn while it trains.

    Show it by naming it at the end of a cell. A moved slider shows at once what a step would take on the card chosen
    in the menu, which need not be there. Run trains for real, Stop ends the run, at the latest some seconds later; a
    slider moved meanwhile counts from the next run on. What was predicted before is shown again at once, until a cell
    runs: it may change what ``train`` does. What lies between is shown nearly, and says so, until it is predicted.
    While nothing happens, what may be chosen next is predicted, for at most 15 seconds after each move, unless others
    want all cores of the machine. Where runs of this panel were recorded on other machines, a menu shows them again.

    Args:
        train: ``train(device, **settings)``, a generator that yields its loss once a step.
        steps: how many steps a run takes.
        device: ``"cpu"`` or ``"cuda"``; by default CUDA where there is one.
        budget: the budget to begin with, ``"15 GiB"`` or bytes. It limits what is measured; the card limits
            what is predicted.
        gpu: the card to begin with, one of ``memlab.vgpu.CARDS`` or described, ``"24 GiB sm_86"``.
        title: written above the panel; by default the name of ``train``.
        models: what is predicted in place of the model that Run trains, the first to begin with: by its name, the
            settings of ``train`` that make it, as in ``{"GPT-2 small": {"width": 768, "depth": 12}}``.
        **controls: a setting of ``train`` each. ``(1, 64)`` makes a slider, a list a menu, ``bool`` a
            box to tick; each begins at ``train``'s own default. ``world_size`` is no setting but how many ranks
            train (:func:`memlab.cluster.measure`): ``[1, 2, 4]`` makes a menu, ``(1, 1024)`` doubling steps. Beside it
            ``global_rank=["first", "last"]`` is a menu of which of them is on show.

    Raises:
        BadTrain, BadValue: what cannot be put on a panel, at once.
    """

    def __init__(
        self,
        train: Train,
        /,
        *,
        steps: int = 40,
        device: str | None = None,
        budget: str | int | None = None,
        gpu: str = "T4",
        title: str | None = None,
        models: Mapping[str, Mapping[str, Any]] | None = None,
        **controls: Any,
    ):
        self.session = Session(
            train, controls, steps=steps, device=device, budget=budget, gpu=gpu, title=title, models=models
        )
        session = self.session
        self._first = (dict(session.screen.settings), session.model, session.gpu, session.budget)
        # A run and its learner may change the screen at once: what is newest must be drawn last.
        self._drawing = threading.RLock()
        session.screen.on_change = self._show

    def __getattr__(self, name: str) -> Any:
        # The widgets are made when one is asked for: ipywidgets keeps each, also of a panel that nobody ever shows.
        if name not in _WIDGETS:
            raise AttributeError(f"a Lab has no attribute {name!r}", name=name, obj=self)
        self._build()
        return getattr(self, name)

    @property
    def title(self) -> str:
        """Return the text above the panel."""
        return self.session.title

    @property
    def trace(self) -> Trace | None:
        """The trace of the last run that finished or was stopped, None before the first."""
        return self.traces[-1] if self.traces else None

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The last three runs, those that the charts show, the newest last."""
        return self.session.traces

    def run(self, **settings: Any) -> Trace:
        """Train with the controls as they stand, ``settings`` changed first, and wait for the trace.

        Does without a browser. Ctrl-C stops the run and is raised again; the steps so far stay in
        ``trace``. A run that is going on is stopped before.

        Raises:
            BadValue: a setting that is unknown or outside its control's range; nothing is changed then.
            Exception: whatever ``train`` raises.
        """
        return self.session.run(**settings)

    def replay(self, trace: Trace) -> None:
        """Show a run that was recorded before, perhaps on another machine: its pictures, and where it ran.

        Raises:
            MemlabError: a run is going on.
        """
        self.session.replay(trace)

    def stop(self) -> None:
        """Ask the run, or the prediction, that is going on to end."""
        self.session.stop()

    def close(self) -> None:
        """End what goes on and take the panel off the page; its runs stay in ``traces``.

        A cell that makes a panel and runs again closes the one that it made before.
        """
        forget(self)
        self.session.close()
        if "_panel" in vars(self):
            _close(self._panel)

    def _ipython_display_(self) -> None:
        if job := self.session.predict():
            futures.wait([job], PATIENCE)
        if self._panel.comm is None:
            self._build()  # it was closed
        screen = self.session.screen
        saved = {"text/html": still(screen.view, screen.sentence)} if screen.view is not None else {}
        self._draw_still()  # until the browser has loaded what draws
        watch(self)
        show(self._panel, WITHOUT_WIDGETS, saved)

    # Building

    def _build(self) -> None:
        session = self.session
        self._controls = {
            name: make_control(choice, session.screen.settings[name]) for name, choice in session.choices.items()
        }
        for name, control in self._controls.items():
            control.on_change = partial(self._moved, name)
            control.on_refusal = session.refuse
        self._build_menus()
        self._small_menu = SmallMenu(session, [self._budget_box, self._replay_menu], self._reset)
        self._texts = {name: widgets.HTML() for name in _MARKUP}
        self._picture = Picture(self._wished)
        self._picture.code = source(session.train)
        self._still = widgets.HTML()
        self._still.add_class("memlab-still")
        self._is_used = False  # somebody has moved something: there is a browser
        body = widgets.HBox([self._left(), self._right()])
        body.add_class("memlab-body")
        top = widgets.HTML(style() + access("memlab") + header(session.title, session.device))
        self._panel = widgets.VBox([top, body])
        self._panel.add_class("memlab")
        for name in (*_MARKUP, "view", "run", "settings", "rows", "model", "gpu", "action"):  # last: a run may go on
            self._show(name)

    def _build_menus(self) -> None:
        session = self.session
        known = CARDS | {session.gpu: find_card(session.gpu)}  # which may be one that is only described
        # Without what most of the longer names begin with, so that the menu has room for the rest.
        cards = [(f"{name.removeprefix('RTX ')}: {format_bytes(card.room)}", name) for name, card in known.items()]
        tip = "The card that predictions are for, and what PyTorch can have of it"
        self._card_menu = menu("predict for", cards, tip, value=session.gpu)
        self._card_menu.observe(lambda change: self._used(session.choose_card, change["new"], session.gpu), "value")
        self._model_menu = menu("model", list(session.models), "The model on show", value=session.model)
        self._model_menu.layout.display = None if len(session.models) > 1 else "none"
        self._model_menu.observe(lambda change: self._used(session.choose_model, change["new"], session.model), "value")
        self._budget_box = widgets.Text(
            session.budget,
            placeholder="none, or 15 GiB",
            continuous_update=False,
            description="budget",
            style={"description_width": LABEL_WIDTH},
            layout={"width": "auto"},
        )
        explain(self._budget_box, "A run that needs more memory than this runs out of it; empty for no budget")
        self._budget_box.observe(lambda change: session.choose_budget(change["new"]), "value")
        runs = [("choose", None), *((run_name(run), run) for run in session.recorded)]
        self._replay_menu = menu("recorded", runs, "Runs of this panel on other machines, to look at")
        self._replay_menu.layout.display = None if session.recorded else "none"
        self._replay_menu.observe(lambda change: self._replay_chosen(change["new"]), "value")

    def _left(self) -> widgets.VBox:
        """The controls, the buttons, what the run does and what the last move means, and a small menu."""
        self._go = button("Run", f"Train {self.session.steps} steps with these settings", self._go_pressed)
        look = self._go.layout  # changed, not replaced: ipywidgets would keep the other one
        look.flex, look.height, look.margin = None, "40px", "8px 2px"
        self._go.add_class("memlab-go")
        keep = button(
            "Keep", "Give the prediction on show a row in the table of runs", self.session.screen.keep, small=True
        )
        controls = [control.widget for control in self._controls.values()]
        buttons = widgets.HBox([keep, self._small_menu.opener])
        said = [self._texts[name] for name in ("status", "pending", "note")]
        menus = (self._model_menu, self._card_menu)
        left = widgets.VBox([*controls, *menus, self._go, buttons, *said, self._small_menu.box])
        left.add_class("memlab-left")
        return left

    def _right(self) -> widgets.VBox:
        """The picture; where the browser cannot draw it, a still one and the sentence."""
        self._texts["sentence"].add_class("memlab-still")
        right = widgets.VBox([self._picture, self._still, self._texts["sentence"]])
        right.add_class("memlab-right")
        return right

    # What happens. Callbacks run in the kernel's own thread, so they only set values or queue a run.

    def _show(self, name: str) -> None:
        """Bring the widgets, where there are any, up to date with an attribute of the screen."""
        if "_panel" not in vars(self):
            return
        with self._drawing:
            self._draw(name)
        value = getattr(self.session.screen, name)
        if name == "settings":
            for setting, control in self._controls.items():
                control.value = value[setting]
        elif name == "model":
            self._model_menu.value = value
        elif name == "gpu":
            self._card_menu.value = value
        elif name == "recorded":
            self._replay_menu.value = value if value in self.session.recorded else None

    def _draw(self, name: str) -> None:
        screen = self.session.screen
        value = getattr(screen, name)
        if name in self._texts:
            self._texts[name].value = _MARKUP[name](value)
        if name in ("view", "nearly", "workspace"):
            self._picture.shown = screen.picture()
        if name in ("view", "rows"):  # the view has the budget, within which a row is the best
            self._small_menu.follow()
            self._picture.rows = table(screen.rows, screen.view.budget if screen.view else None)
        if name in ("pending", "nearly"):
            self._picture.stale = bool(screen.pending) and screen.nearly is None
        elif name == "run":
            self._picture.run = value
        elif name == "action":
            self._go.description = value
        elif name == "sentence":
            self._picture.sentence = value
            if self._is_used and not self._picture.is_alive:
                self._draw_still()

    def _draw_still(self) -> None:
        screen = self.session.screen
        if screen.view is not None and screen.nearly is None:
            self._still.value = picture(screen.view).html()

    def _wished(self, wish: Mapping[str, Any]) -> None:
        """A reader has asked the picture for something that the kernel does."""
        if "bring_back" in wish:
            self.session.bring_back(wish["bring_back"])
        elif "stop" in wish:
            self.session.stop()
        elif "questions" in wish:
            self._picture.questions = questions()

    def _used(self, choose: Callable[[Any], None], value: Any, chosen: Any) -> None:
        if value != chosen:  # else the session has moved it, and nobody need be there
            self._is_used = True
            choose(value)

    def _reset(self) -> None:
        settings, model, gpu, budget = self._first
        for name, control in self._controls.items():
            control.value = settings[name]
        self._model_menu.value, self._card_menu.value, self._budget_box.value = model, gpu, budget

    def _moved(self, name: str) -> None:
        session = self.session
        self._used(partial(session.choose, name), self._controls[name].value, session.screen.settings[name])

    def _go_pressed(self) -> None:
        self._is_used = True
        if self.session.busy:
            self.session.stop()
            return
        try:
            self.session.start()
        except MemlabError as refusal:
            self.session.refuse(refusal)

    def _replay_chosen(self, trace: Trace | None) -> None:
        if trace is None or trace is self.session.screen.recorded:
            return
        try:
            self.replay(trace)
        except MemlabError as refusal:
            self._replay_menu.value = None
            self.session.refuse(refusal)


def _close(widget: widgets.Widget) -> None:
    for part in (*getattr(widget, "children", ()), getattr(widget, "layout", None), getattr(widget, "style", None)):
        if part is not None:
            _close(part)
    widget.close()


_WIDGETS = {
    *("_controls", "_card_menu", "_model_menu", "_budget_box", "_replay_menu", "_small_menu", "_texts", "_panel"),
    *("_picture", "_still", "_go"),
}
_MARKUP: dict[str, Callable[..., str]] = {"sentence": box, "status": line, "pending": quietly, "note": line}
