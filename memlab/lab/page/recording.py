"""Runs of a panel that its page plays again."""

from dataclasses import replace
from typing import Any

from memlab.lab.session import Session
from memlab.lab.words import summary


def record(session: Session, **settings: Any) -> dict[str, Any]:
    """Run the panel's own model for real, and keep of it what a page needs to play it.

    Returns:
        ``settings`` of the controls; ``shown``, the measured step; ``run``, how far it came; ``samples``, the number
        of a step and what the model said from there on; ``xrayed``, of each step whether it was; ``sentence``.

    Raises:
        Exception: as :meth:`memlab.Lab.run`.
    """
    screen, samples = session.screen, [(0, "")]

    def changed(name: str) -> None:
        if name == "run" and screen.run is not None and screen.run["sample"] != samples[-1][1]:
            samples.append((len(screen.run["losses"]), screen.run["sample"]))

    before = {name: getattr(screen, name) for name in ("on_change", "settings", "model")}
    screen.on_change = changed
    try:
        trace = session.run(**settings)
    finally:  # the panel is as it was
        for name, value in before.items():
            setattr(screen, name, value)
    assert screen.view is not None
    assert screen.run is not None
    view = replace(screen.view, recorded=True)
    return {
        "settings": screen.settings | settings,
        "shown": view.to_plain(),
        "run": screen.run | {"name": f"recorded run, {view.heading}", "earlier": []},
        "samples": samples,
        "xrayed": [step.xrayed for step in trace.steps],
        "sentence": summary(trace, [], view.outline),
    }
