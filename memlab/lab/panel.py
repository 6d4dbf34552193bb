"""The panel: controls on the left, live pictures on the right, one sentence below."""

from collections.abc import Callable, Mapping
from concurrent import futures
from functools import partial
from html import escape
from typing import Any

import ipywidgets as widgets

from memlab.display import html
from memlab.errors import MemlabError
from memlab.lab.controls import LABEL_WIDTH, make_control
from memlab.lab.screen import Words
from memlab.lab.session import Session
from memlab.lab.words import run_name
from memlab.palette import LIMIT, QUIET_INK
from memlab.protocol import Train
from memlab.trace import Trace
from memlab.vgpu import CARDS

PATIENCE = 20.0  # seconds for the first prediction, which a panel appears with


class Lab:
    """Sliders on a ``train`` function, its memory predicted as they move and drawn while it trains.

    Show it by naming it at the end of a cell. A moved slider shows at once what a step would take on the card chosen
    in the menu, which need not be there. Run trains for real, Stop ends the run, at the latest after the step it is in;
    a slider moved meanwhile counts from the next run on. Where runs of this panel were recorded on other machines, a
    menu shows them again.

    Args:
        train: ``train(device, **settings)``, a generator that yields its loss once a step.
        steps: how many steps a run takes.
        device: ``"cpu"`` or ``"cuda"``; by default CUDA where there is one.
        budget: the budget to begin with, ``"15 GiB"`` or bytes. It limits what is measured; the card limits
            what is predicted.
        gpu: the card to begin with, one of ``memlab.vgpu.CARDS``.
        title: written above the panel; by default the name of ``train``.
        models: what is predicted in place of the model that Run trains, the first to begin with: by its name, the
            settings of ``train`` that make it, as in ``{"GPT-2 small": {"width": 768, "depth": 12}}``.
        **controls: a setting of ``train`` each. ``(1, 64)`` makes a slider, a list a menu, ``bool`` a
            box to tick; each begins at ``train``'s own default. ``world_size`` is no setting but how many ranks
            train (:func:`memlab.cluster.measure`): ``[1, 2, 4]`` makes a menu, ``(1, 1024)`` doubling steps.

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
        self._build("" if budget is None else str(budget))
        self.session.screen.on_change = self._show

    @property
    def title(self) -> str:
        """What is written above the panel."""
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

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if job := self.session.predict():
            futures.wait([job], PATIENCE)
        if self.session.prediction is not None:
            self._panel.still = html(self.session.prediction)
        display(self._panel)

    # Building

    def _build(self, budget: str) -> None:
        session = self.session
        self._controls = {
            name: make_control(choice, session.screen.settings[name]) for name, choice in session.choices.items()
        }
        for name, control in self._controls.items():
            control.on_change = partial(self._moved, name)
            control.on_refusal = session.refuse
        self._card_menu = _menu("predict for", list(CARDS), value=session.gpu)
        self._card_menu.observe(lambda change: session.choose_card(change["new"]), "value")
        self._model_menu = _menu("model", list(session.models), value=session.model)
        self._model_menu.layout.display = None if len(session.models) > 1 else "none"
        self._model_menu.observe(lambda change: session.choose_model(change["new"]), "value")
        self._budget_box = widgets.Text(
            budget,
            placeholder="none, or 15 GiB",
            continuous_update=False,
            description="budget",
            style={"description_width": LABEL_WIDTH},
            layout={"width": "auto"},
        )
        self._budget_box.observe(lambda change: session.choose_budget(change["new"]), "value")
        self._replay_menu = _menu("recorded", [("choose", None), *((run_name(run), run) for run in session.recorded)])
        self._replay_menu.layout.display = None if session.recorded else "none"
        self._replay_menu.observe(lambda change: self._replay_chosen(change["new"]), "value")
        self._texts = {name: widgets.HTML() for name in _MARKUP}
        for name in _MARKUP:
            self._show(name)
        body = widgets.HBox([self._left(), self._right()], layout={"flex_flow": "row wrap"})
        self._panel = _Panel([widgets.HTML(_header(session.title, session.device)), body], layout={"padding": "8px"})

    def _left(self) -> widgets.VBox:
        """The controls, the buttons, and two lines: what the run does, and what the learner's last move means."""
        run = widgets.Button(description="Run", button_style="success", layout={"flex": "1 1 0", "height": "36px"})
        stop = widgets.Button(description="Stop", layout={"flex": "1 1 0", "height": "36px"})
        run.on_click(lambda button: self._run_pressed())
        stop.on_click(lambda button: self.stop())
        controls = [control.widget for control in self._controls.values()]
        menus = [self._model_menu, self._card_menu, self._budget_box, self._replay_menu]
        buttons = widgets.HBox([run, stop], layout={"margin": "10px 0 6px 0"})
        return widgets.VBox(
            [*controls, *menus, buttons, self._texts["status"], self._texts["pending"], self._texts["note"]],
            layout={"flex": "1 1 330px", "max_width": "430px", "margin": "0 16px 8px 0"},
        )

    def _right(self) -> widgets.VBox:
        """The pictures and their sentence: beside the controls where there is room, else below them."""
        pictures = [self._texts[name] for name in ("memory", "progress", "sentence")]
        for picture in pictures:
            picture.layout = widgets.Layout(width="100%", margin="0")
        return widgets.VBox(pictures, layout={"flex": "3 1 460px", "min_width": "0"})

    # What happens. Callbacks run in the kernel's own thread, so they only set values or queue a run.

    def _show(self, name: str) -> None:
        """Bring the widgets up to date with an attribute of the screen."""
        value = getattr(self.session.screen, name)
        if name in self._texts:
            self._texts[name].value = _MARKUP[name](value)
        elif name == "settings":
            for setting, control in self._controls.items():
                control.value = value[setting]
        elif name == "recorded":
            self._replay_menu.value = value if value in self.session.recorded else None

    def _moved(self, name: str) -> None:
        self.session.choose(name, self._controls[name].value)

    def _run_pressed(self) -> None:
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


class _Panel(widgets.VBox):
    """The panel's outermost box. Where no widget can be shown, as in a saved notebook, ``still`` is, or a text."""

    still = ""  # HTML

    def _repr_mimebundle_(self, **chosen: Any) -> dict[str, Any]:
        still = {"text/html": self.still} if self.still else {}
        return {**super()._repr_mimebundle_(**chosen), **still}

    def __repr__(self) -> str:
        return "A memlab Lab: run this notebook in Jupyter to move its sliders, or call run() on it."


def _menu(description: str, options: list[Any], **chosen: Any) -> widgets.Dropdown:
    style, layout = {"description_width": LABEL_WIDTH}, {"width": "auto"}
    return widgets.Dropdown(options=options, description=description, style=style, layout=layout, **chosen)


def _header(title: str, device: str) -> str:
    style = "display:flex;flex-wrap:wrap;justify-content:space-between;align-items:baseline"
    source = f'<span style="color:{QUIET_INK}">Run measures on {escape(device)}</span>'
    return f'<div style="{style}"><h3 style="margin:4px 0">{escape(title)}</h3>{source}</div>'


def _line(words: Words) -> str:
    if not words.text:
        return ""
    role, color = ("alert", LIMIT) if words.alert else ("status", QUIET_INK)
    return f'<div role="{role}" style="line-height:1.4;color:{color}">{escape(words.text)}</div>'


def _quietly(text: str) -> str:
    # Without a role: it changes with every move, and is not to be read out each time.
    return f'<div style="line-height:1.4;min-height:1.4em;color:{QUIET_INK}">{escape(text)}</div>'


def _box(text: str) -> str:
    style = "background:#F6F8FA;border-radius:6px;padding:8px 12px;line-height:1.5;font-size:15px;color:#222"
    return f'<div style="{style}">{escape(text)}</div>'


_MARKUP: dict[str, Callable[..., str]] = {
    "memory": str,
    "progress": str,
    "sentence": _box,
    "status": _line,
    "pending": _quietly,
    "note": _line,
}
