"""``memlab fit``: what fits on a GPU.

``memlab fit FILE[:FUNCTION] --gpu T4 batch_size=1:64 precision=fp32,bf16`` finds settings; ``memlab fit Llama-3.1-8B
--gpu T4`` tells with which method that model can be fine-tuned there.
"""

import argparse
import multiprocessing
import os
import re
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from memlab.cli.functions import is_script, load_function, read_settings, read_value
from memlab.errors import BadValue

ASSUMED = (
    "Assumed: weights of 16 bits (QLoRA's of 4), and full's gradients and optimizer state, too (with float32 master "
    "weights, full takes twice as much of them);"
)

OLDER_CARD = (
    "Here keys are repeated before attention. Transformers' own models take more on this card before PyTorch 2.15: "
    "where heads share keys and no mask is given, they have no fused kernel (notebook 13)."
)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the ``fit`` command."""
    parser = subparsers.add_parser(
        "fit",
        help="find the settings with which a train function, or a script as it is, fits on a GPU; or how a model does",
        usage="memlab fit (FILE[:FUNCTION] | MODEL) [key=1:64 | key=a,b | key=value ...] [--gpu CARD] [--steps N] "
        "[--budget SIZE] [--chosen SHARE] [-- ARGUMENTS OF THE SCRIPT]",
        description="Find the settings that fit, the fastest first, by prediction, without trying every combination. "
        "key=1:64 is a range, key=a,b a list with what you would rather have first. Ctrl-C keeps what was found. "
        "Of a MODEL like Llama-3.1-8B: whether full fine-tuning, LoRA and QLoRA fit, how much memory is left, and what "
        "takes it if they do not; its keys are method, context, batch_size, checkpointing, chunked_loss, adapters, "
        "optimizer and rank, and the last line says what they are where you do not.",
    )
    parser.add_argument(
        "target", metavar="FILE[:FUNCTION]", help="as in loop.py:train, a script that trains, or a model's name"
    )
    parser.add_argument("settings", nargs="*", metavar="key=choice", help="a range 1:64, a list a,b or one value")
    parser.add_argument("--gpu", default="T4", metavar="CARD", help="as for predict (default: %(default)s)")
    parser.add_argument("--budget", metavar="SIZE", help="where less than the whole card is free")
    parser.add_argument("--steps", type=read_value, default=3, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--chosen", type=read_value, metavar="SHARE", help="as for predict")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Search and print; what is being tried goes to standard error. Status 130 after Ctrl-C."""
    from memlab.fitting import fit

    if _is_name(args.target):
        return _fit_model(args)
    train = _script(args) if is_script(args.target) else load_function(args.target)
    choices = read_choices(args.settings)
    found = fit(train, **_options(args), progress=_show, **choices)
    print(found)
    return 130 if found.stopped else 0


def _options(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in ("gpu", "budget", "steps", "chosen")}


def _is_name(target: str) -> bool:
    return ":" not in target and not target.endswith((".py", ".ipynb")) and not os.path.exists(target)


def _fit_model(args: argparse.Namespace) -> int:
    """Each method of fine-tuning by itself: they do not give the same model, so none stands for another."""
    from memlab.finetuning import METHODS, MODELS, count_weights, find_model, train
    from memlab.fitting.grid import Grid
    from memlab.protocol import check_settings, own_settings
    from memlab.vgpu.lookup import find_card

    card = find_card(args.gpu)  # an unknown one is told before anything is printed
    name = find_model(args.target)
    choices = {"method": list(METHODS)} | read_choices(args.settings)
    if ranges := [key for key, value in choices.items() if isinstance(value, tuple)]:
        raise BadValue(f"{ranges[0]} is given as a range: for a model, give values, as in context=2048,8192.")
    menus = {key: value if isinstance(value, list) else [value] for key, value in choices.items()}
    menus["method"] = [_spelled(method, METHODS) for method in menus["method"]]
    lines = list(Grid({}, menus, "", [None]).lines())  # not make_grid's: of many numbers that tries some alone
    check_settings(train, lines[0])
    settings = {key: setting.default for key, setting in own_settings(train).items()} | lines[0]
    fixed = [f"{key}={settings[key]}" for key in settings if key != "sizes" and len(menus.get(key, [key])) == 1]
    print(f"{name}, {count_weights(name):,} weights:", flush=True)
    varied = [key for key, value in choices.items() if isinstance(value, list) and key != "method"]
    with _workers(len(lines)) as pool:
        waiting = [pool.submit(_fitted, args, name, line) for line in reversed(lines)]  # QLoRA takes the longest
        for line, sentence in zip(lines, reversed(waiting), strict=True):
            others = "".join(f", {key}={line[key]}" for key in varied)
            print(f"{line['method']:>5}{others}: {sentence.result()}.", flush=True)
    print(f"{ASSUMED} {', '.join(fixed)}.")
    if not card.has_flash_attention and MODELS[name]["kv_heads"] < MODELS[name]["heads"]:
        print(OLDER_CARD)
    return 0


def _spelled(method: Any, methods: Iterable[str]) -> Any:
    """Return a method as memlab writes it: lora is LoRA."""
    return next((known for known in methods if known.lower() == str(method).lower()), method)


def _fitted(args: argparse.Namespace, name: str, settings: dict[str, Any]) -> str:
    from memlab.finetuning import MODELS, train
    from memlab.fitting import fit

    settings = settings | {"sizes": MODELS[name]}
    return fit(train, **_options(args), **settings).sentence


def _workers(count: int) -> ProcessPoolExecutor:
    """A process for each core. Forked ones have imported PyTorch already; only on Linux forking is safe."""
    context = multiprocessing.get_context("fork") if sys.platform == "linux" else None
    return ProcessPoolExecutor(min(count, os.cpu_count() or 1), context, _use_one_thread)


def _use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)  # those of the process that was forked are not there


def _script(args: argparse.Namespace) -> Any:
    from memlab.script import Script

    return Script(args.target, *args.arguments)


def read_choices(words: Sequence[str]) -> dict[str, Any]:
    """``["batch_size=1:64", "precision=fp32,bf16"]`` as what :func:`memlab.fit` takes.

    Raises:
        BadValue: for a word that is not ``key=choice``.
    """
    read_settings(words)  # which knows what is wrong with them
    return {name: _choice(text) for name, _, text in (word.partition("=") for word in words)}


def _choice(text: str) -> Any:
    if ends := re.fullmatch(r"(\d+):(\d+)", text):
        return int(ends[1]), int(ends[2])
    value = read_value(text)
    if isinstance(value, str) and "," in value:
        return [read_value(part) for part in value.split(",")]
    return list(value) if isinstance(value, tuple) else value


def _show(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
