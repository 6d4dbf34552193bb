"""The options that a script's command line has, as its own ``argparse`` tells."""

import argparse
import functools
from typing import Any

_PLAIN = (bool, int, float, str, type(None))


def follow() -> list[dict[str, Any]]:
    """From now on, in this process: a list that fills with each option that is parsed, and the value that it got."""
    options: list[dict[str, Any]] = []
    parse = argparse.ArgumentParser.parse_known_args

    @functools.wraps(parse)
    def parsed(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        result = parse(parser, *args, **kwargs)
        options[:] = [_described(action, getattr(result[0], action.dest, None)) for action in _optional(parser)]
        return result

    argparse.ArgumentParser.parse_known_args = parsed  # type: ignore[assignment]
    return options


def _optional(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings and action.dest != argparse.SUPPRESS]


def _described(action: argparse.Action, value: Any) -> dict[str, Any]:
    return {
        "flag": max(action.option_strings, key=len),
        "value": value if isinstance(value, _PLAIN) else str(value),
        "is_switch": action.nargs == 0,
        "choices": [str(choice) for choice in action.choices or ()],
    }
