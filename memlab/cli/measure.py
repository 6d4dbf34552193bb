"""``memlab measure FILE:FUNCTION key=value ...``: measure a ``train`` function from a file."""

import argparse
import ast
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from memlab.errors import BadValue
from memlab.files import write_atomically
from memlab.units import format_bytes

if TYPE_CHECKING:
    from memlab.trace import Trace


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the ``measure`` command."""
    parser = subparsers.add_parser(
        "measure",
        help="measure a train function from a file",
        usage="memlab measure FILE:FUNCTION [key=value ...] [--steps N] [--device D] [--budget SIZE] [--json FILE]",
        description="Train for real and print the peak memory and what it is made of. "
        "Out of memory is a result like any other, with exit status 0.",
    )
    parser.add_argument("target", metavar="FILE:FUNCTION", help="as in loop.py:train")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="passed on to the function")
    # Two plain steps after three X-rayed ones, so that there is a speed to report.
    parser.add_argument("--steps", type=_read_value, default=5, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--device", metavar="D", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--budget", metavar="SIZE", help='more than this, such as "15 GiB", is out of memory')
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the trace there")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, print, save. What ``train`` itself raises comes out with its traceback."""
    from memlab.run import Run

    train = load_function(args.target)
    settings = read_settings(args.settings)
    # Not measure(**settings): Run refuses steps=9 as a setting like any other that train lacks.
    with Run(train, settings, steps=args.steps, device=args.device, budget=args.budget) as running:
        for _ in running:
            pass
    trace = running.trace()
    print("\n".join(report(args.target, trace)))
    if args.json is not None:
        write_atomically(args.json, trace.to_json())
        print(f"The trace is in {args.json}")
    return 0


def load_function(target: str) -> Callable:
    """The function that ``FILE:FUNCTION`` names. The file runs as an import, its folder on ``sys.path``.

    Raises:
        BadValue: it names no Python file, one that raises an error of its own, or one without that function.
    """
    file, colon, name = target.rpartition(":")
    if not (colon and file and name):
        raise BadValue(f"{target!r} does not name a function: give FILE:FUNCTION, as in loop.py:train.")
    module = _load(_check_file(Path(file)))
    if not hasattr(module, name):
        functions = ", ".join(key for key, value in vars(module).items() if _defined_in(module, value))
        raise BadValue(f"{file} has no function {name!r}: give one that it defines ({functions or 'it has none'}).")
    return getattr(module, name)


def read_settings(words: Sequence[str]) -> dict[str, Any]:
    """``["batch_size=8", "precision=bf16"]`` as keyword arguments: Python literals, anything else as text.

    Raises:
        BadValue: for a word that is not ``key=value``.
    """
    settings = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not (equals and key.isidentifier()):
            raise BadValue(f"{word!r} is not a setting: give key=value, as in batch_size=8.")
        settings[key] = _read_value(text)
    return settings


def report(target: str, trace: "Trace") -> Iterator[str]:
    """The lines that say what a run took."""
    given = ", ".join(f"{key}={value!r}" for key, value in trace.settings.items())
    yield f"{target.rpartition(':')[2]}({given}) on {trace.device}"
    yield ""
    for category, count in trace.by_category.items():
        yield _row(category, count, trace.peak_allocated)
    yield _row("peak", trace.peak_allocated, trace.peak_allocated or 1)
    yield ""
    yield f"{'steps':<22}{len(trace.steps)}"
    yield f"{'seconds a step':<22}{_seconds(trace)}"
    yield f"{'loss':<22}{_losses(trace)}"
    yield f"{'flops of a step':<22}{trace.flops:,}"
    yield ""
    yield f"{trace.sentence[0].upper()}{trace.sentence[1:]}."
    if trace.peak_reserved is None:
        yield "A CPU has no allocator that counts, so these are bytes of live tensor storages."


def _read_value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):  # all that its documentation names
        return text


def _check_file(path: Path) -> Path:
    if path.suffix == ".ipynb":
        raise BadValue(f"{path} is a notebook: copy the train function to a .py file and give that.")
    if path.suffix != ".py":
        raise BadValue(f"{path} is not a Python file: give FILE:FUNCTION, where FILE ends in .py.")
    if not path.is_file():
        raise BadValue(f"{path} is not there (looked in {Path.cwd()}): give the path of a Python file.")
    return path


def _load(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.parent.resolve()))  # as `python FILE` does
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BadValue(
            f"{path} does not load ({type(error).__name__}: {error}): run python {path} to see where, and mend it."
        ) from error
    return module


def _defined_in(module: ModuleType, value: object) -> bool:
    return inspect.isfunction(value) and value.__module__ == module.__name__


def _row(name: str, count: int, whole: int) -> str:
    return f"{name:<22}{format_bytes(count):>9}{count / whole:>7.0%}"


def _seconds(trace: "Trace") -> str:
    seconds = trace.seconds_per_step
    return "unknown, every step was X-rayed" if seconds is None else f"{seconds:.3g} (median of the plain steps)"


def _losses(trace: "Trace") -> str:
    losses = [loss for loss in trace.losses if loss is not None]
    return f"{losses[0]:.4g} to {losses[-1]:.4g}" if losses else "none"
