"""A script, wherever a ``train`` function is taken."""

from pathlib import Path
from typing import Any

from memlab.script.child import ask
from memlab.script.command import Command
from memlab.trace import Trace


class Script(Command):
    """A script that ``memlab.predict``, ``measure`` and ``sweep`` take where they take a ``train`` function.

    ``predict(Script("train.py", "--amp"), gpu="T4", batch_size=32)`` runs ``train.py --amp --batch-size=32``, in a
    process of its own, not one line of it changed. That process ends with the last step asked for. Of a prediction
    nothing is left: what the script writes is thrown away, it reaches no network and starts no other program:
    one that it asks something (git, nvidia-smi) is not there.

    Args:
        path: of the file.
        *arguments: what stands behind it on a command line.

    Raises:
        BadValue: there is no such file, or it is no Python.
    """

    def predict(
        self,
        *,
        gpu: str = "T4",
        world_size: int | None = None,
        global_rank: int = 0,
        steps: int = 3,
        budget: str | int | None = None,
        snapshot: str | Path | None = None,
        until: str | None = None,
        chosen: float | str | None = None,
        **settings: Any,
    ) -> Trace:
        """Predict the script, as :func:`memlab.predict` does; ``world_size`` is what ``torchrun`` would tell it.

        ``until="evaluation"`` or ``"saved"``: after its steps the script runs on until it has evaluated or saved.

        Raises:
            BadTrain: it made no step.
            Refused: it cannot do without what a prediction does not give.
            ScriptFailed: it raised something of its own.
            MemlabError: as :func:`memlab.predict`.
        """
        ranks, script = (world_size, global_rank), self.with_options(**settings)
        options: dict[str, Any] = {"snapshot": snapshot, "until": until, "chosen": chosen}
        return ask(script, gpu=gpu, ranks=ranks, steps=steps, budget=budget, **options).trace

    def want(
        self, *, gpu: str, steps: int, budget: int | None, chosen: float | str | None = None, **settings: Any
    ) -> Trace:
        """As :meth:`predict`, but nothing that it prints is seen, and None is a card with all the memory that it wants.

        Raises:
            BadTrain, ScriptFailed, MemlabError: as :meth:`predict`.
        """
        script, is_endless = self.with_options(**settings), budget is None
        options: dict[str, Any] = {"chosen": chosen, "is_endless": is_endless, "is_quiet": True}
        return ask(script, gpu=gpu, steps=steps, budget=budget, **options).trace

    def measure(
        self, *, steps: int = 3, device: str | None = None, budget: str | int | None = None, **settings: Any
    ) -> Trace:
        """Measure the script, as :func:`memlab.measure` does; ``device`` is what the script trains on.

        Raises:
            BadTrain, ScriptFailed, MemlabError: as :meth:`predict`.
        """
        return ask(self.with_options(**settings), device=device, steps=steps, budget=budget).trace
