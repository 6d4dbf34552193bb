"""The options of a script, and which of them may save memory: by their names, before it is tried."""

import argparse
import ast
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PLAIN = (bool, int, float, str)
# Names of numbers that bytes go with, the most telling first; and of those that only look so.
_SIZES = (
    *("batch", "block|seq|context|length|max_len|tokens", "image|img|crop|resolution|size"),
    *("layer|depth|block", "width|hidden|dim|embd|embed|channel|head|rank|features"),
)
_EVALUATION = r"eval|test|valid"
_OTHERS = r"seed|epoch|iter|step|worker|log|save|print|freq|interval|warmup|port|world|gpu|vocab|dropout|every"
_SWITCHES = r"amp$|fp16|bf16|half|mixed|autocast|checkpointing|recompute|offload|8bit|compile"
_PRECISIONS = ("bf16", "bfloat16", "fp16", "float16", "16-mixed", "amp")


@dataclass(frozen=True)
class Option:
    """An option of a script and the value that it had.

    Attributes:
        flag: as in ``"--batch-size"``.
        value: a number, text, True or False, or None.
        is_switch: it stands alone, and is off without.
        choices: what it may be, if only that.
    """

    flag: str
    value: Any = None
    is_switch: bool = False
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As a setting is named: ``"batch_size"``."""
        return self.flag.lstrip("-").replace("-", "_")

    @property
    def is_of_evaluation(self) -> bool:
        """True if it is named as one that changes nothing in the training."""
        return re.search(_EVALUATION, self.name) is not None

    def word(self, value: Any) -> str:
        """Return the argument on the command line for this value; ``""`` for a switch that is off."""
        if self.is_switch and isinstance(value, bool):
            return self.flag if value else ""
        return f"{self.flag}={value}"


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
    nodes = (node for node in ast.parse(path.read_bytes()).body if isinstance(node, ast.Assign))
    names = (target.id for node in nodes for target in node.targets if isinstance(target, ast.Name))
    return [Option(f"--{name}", values[name]) for name in names if isinstance(values.get(name), _PLAIN)]


def in_source(path: Path) -> Iterator[Option]:
    """The options that a file gives to ``add_argument``, as far as they can be read without running it."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            names = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            actions = [ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg == "action"]
            yield from (Option(name, is_switch="'store_true'" in actions) for name in names if name.startswith("--"))


def leaner(options: list[Option], *, evaluates: bool = False) -> list[tuple[Option, Any]]:
    """Options that may take fewer bytes with another value, and that value, the most promising first.

    Where memory runs out in an evaluation, those of the evaluation come first, and else none of them.
    """
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
