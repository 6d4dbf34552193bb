"""The options of a script, and which of them may save memory: by their names, before it is tried.

An option is what a script takes on its command line, a constant of its source, or an argument in a call of its source
(:mod:`memlab.script.keywords`).
"""

import argparse
import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BATCH = r"batch|^bs$"
_PLAIN = (bool, int, float, str)
# Names of numbers that bytes go with, the most telling first; and of those that only look so.
_SIZES = (
    *(_BATCH, "block|seq|context|length|max_len|tokens", "image|img|crop|resolution|size"),
    *("layer|depth|block", "width|hidden|dim|embd|embed|channel|head|rank|features"),
)
_EVALUATION = r"eval|test|valid"
_OTHERS = r"min_|seed|epoch|iter|step|worker|log|save|print|freq|interval|warmup|port|world|gpu|vocab|dropout|every"
_HALF = r"amp$|fp16|bf16|half|mixed|autocast"
_SWITCHES = rf"{_HALF}|checkpointing|recompute|offload|8bit|compile"
_PRECISIONS = ("bf16", "bfloat16", "fp16", "float16", "16-mixed", "amp")


@dataclass(frozen=True)
class Option:
    """An option of a script and the value that it had.

    Attributes:
        flag: as in ``"--batch-size"``; of a constant or an argument, its name.
        value: a number, text, True or False, or None.
        is_switch: it stands alone, and is off without.
        choices: what it may be, if only that.
        place: the line of the source that has the value, as in ``"train.py:12"``; ``""`` on the command line.
        written: what stands there, with braces for the value, as in ``"DataLoader(..., batch_size={})"``.
        evaluates: an argument of what is used without gradients.
    """

    flag: str
    value: Any = None
    is_switch: bool = False
    choices: tuple[str, ...] = ()
    place: str = ""
    written: str = ""
    evaluates: bool = False

    @property
    def name(self) -> str:
        """As a setting is named: ``"batch_size"``."""
        return self.flag.lstrip("-").replace("-", "_").lower()

    @property
    def is_of_evaluation(self) -> bool:
        """True if it is known, or named, as one that changes nothing in the training."""
        return self.evaluates or re.search(_EVALUATION, self.name) is not None

    @property
    def is_of_batch(self) -> bool:
        """True if it is named as the size of a batch."""
        return re.search(_BATCH, self.name) is not None

    @property
    def key(self) -> str:
        """Its line and its name, where it is in the source."""
        return f"{self.place} {self.flag}"

    def word(self, value: Any) -> str:
        """Return the argument on the command line for this value; ``""`` for a switch that is off."""
        if self.is_switch and isinstance(value, bool):
            return self.flag if value else ""
        return f"{self.flag}={value}"

    def told(self, value: Any) -> str:
        """Tell how it gets this value: the argument on the command line, or the line of the source."""
        if not self.place:
            return f"{self.flag} {value}"
        return f"{self.place}: {self.written.replace('{}', repr(value))}"


def follow_parsers() -> list[Option]:
    """From now on, in this process: a list that fills with each option that ``argparse`` parses."""
    options: list[Option] = []
    parse = argparse.ArgumentParser.parse_known_args

    @functools.wraps(parse)
    def parsed(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        result = parse(parser, *args, **kwargs)
        options[:] = [_of_action(action, result[0]) for action in parser._actions if action.option_strings]
        return result

    argparse.ArgumentParser.parse_known_args = parsed  # type: ignore[assignment]
    return options


def _of_action(action: argparse.Action, parsed: argparse.Namespace) -> Option:
    value = getattr(parsed, action.dest, None)
    flag = max(action.option_strings, key=len)
    choices = tuple(map(str, action.choices or ()))
    return Option(flag, value if isinstance(value, _PLAIN) else None, action.nargs == 0, choices)


def of_constants(path: Path, values: Mapping[str, Any]) -> list[Option]:
    """The constants at the top of a script, which some let ``--name=value`` set, with the values that they had."""
    names = (target.id for target, *_ in _constants(path.read_bytes()) if isinstance(target, ast.Name))
    return [Option(f"--{name}", values[name]) for name in names if isinstance(values.get(name), _PLAIN)]


def in_constants(path: Path) -> list[Option]:
    """The constants of a script's source, at the top and in classes; see :func:`with_constants`."""
    return [
        Option(target.id, node.value, place=f"{path.name}:{node.lineno}", written=f"{_left(target, kind)} = {{}}")
        for target, node, kind in _constants(path.read_bytes())
        if isinstance(target, ast.Name) and isinstance(node, ast.Constant) and isinstance(node.value, _PLAIN)
    ]


def _left(target: ast.Name, kind: ast.expr | None) -> str:
    """The left side of the line: a dataclass has fields only with their types."""
    return target.id if kind is None else f"{target.id}: {ast.unparse(kind)}"


def with_constants(path: Path, values: Mapping[str, Any]) -> ast.Module:
    """The source of a script in which constants have other values, by the keys of their options."""
    tree = ast.parse(path.read_bytes(), str(path))
    for target, node, _ in _constants(tree):
        key = f"{path.name}:{node.lineno} {getattr(target, 'id', '')}"
        if isinstance(node, ast.Constant) and key in values:
            node.value = values[key]
    return tree


def _constants(source: bytes | ast.Module) -> Iterator[tuple[ast.expr, ast.expr, ast.expr | None]]:
    """Each name that gets a value at the top of a script, or in a class there, with the value and its type."""
    tree = source if isinstance(source, ast.Module) else ast.parse(source)
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    for node in [*tree.body, *(inner for class_ in classes for inner in class_.body)]:
        if isinstance(node, ast.Assign):
            yield from ((target, node.value, None) for target in node.targets)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield node.target, node.value, node.annotation


def in_source(path: Path) -> Iterator[Option]:
    """The options that a file gives to ``add_argument``, as far as they can be read without running it."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            names = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            actions = [ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg == "action"]
            yield from (Option(name, is_switch="'store_true'" in actions) for name in names if name.startswith("--"))


def is_in_half(options: Iterable[Option]) -> bool:
    """Return True if a switch for 16 bits is on: another one is refused beside it, or changes nothing."""
    switches = (option for option in options if not option.is_of_evaluation and re.search(_HALF, option.name))
    return any(option.value is True for option in switches)


def leaner(options: list[Option], *, evaluates: bool = False) -> list[tuple[Option, Any]]:
    """Options that may take fewer bytes with another value, and that value, the most promising first.

    Where memory runs out in an evaluation, those of the evaluation come first, and else none of them.
    """
    if is_in_half(options):
        options = [option for option in options if not re.search(_HALF, option.name)]
    own = [option for option in options if option.is_of_evaluation]
    ranked = [(rank, option, value) for option in options if option not in own for rank, value in _leaner(option)]
    if evaluates:
        ranked += [(-1, option, value) for option in own for _, value in _leaner(option)]
    return [(option, value) for _, option, value in sorted(ranked, key=lambda item: item[0])]


def _leaner(option: Option) -> Iterator[tuple[int, Any]]:
    name, value = option.name, option.value
    if isinstance(value, bool):
        if not value and re.search(_SWITCHES, name):
            yield 1, True
    elif isinstance(value, int) and value >= 2 and not re.search(_OTHERS, name):
        found = (place for place, words in enumerate(_SIZES) if re.search(words, name))
        yield from ((2 * place, value // 2) for place in list(found)[:1])
    elif re.search("dtype|precision", name) and str(value) not in _PRECISIONS:
        yield from ((1, choice) for choice in _PRECISIONS if choice in option.choices)
