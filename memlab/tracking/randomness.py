"""Random numbers of a run's own: what draws in another thread neither changes them nor is changed by them.

PyTorch's operators draw from one generator of the process unless they are given another. A dispatch key that PyTorch
keeps for its own tests is switched on in the run's thread, where it leads the operators that draw, and no others, past
a kernel which gives them the run's generator. All other operators pass at full speed. On CUDA the card's generator
stays PyTorch's own; the device puts it back after the run.
"""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.library import Library

from memlab.patching import Change, Patches, where
from memlab.tracking.internals import (
    exclude_dispatch_key,
    is_default_generator,
    keys_of_higher_order,
    switch_dispatch_key,
)

SEED = 0
KEY = "TESTING_ONLY_GenericMode"

# Every operator of PyTorch that takes a generator; tests/tracking/test_randomness.py finds them anew.
DRAWING = (
    *("_fused_dropout", "_sample_dirichlet", "_standard_gamma", "bernoulli", "bernoulli_", "binomial", "cauchy"),
    *("cauchy_", "exponential", "exponential_", "geometric", "geometric_", "log_normal", "log_normal_"),
    *("multinomial", "normal", "normal_", "normal_functional", "poisson", "rand", "rand_like", "randint"),
    *("randint_like", "randn", "randn_like", "random", "random_", "randperm", "rrelu", "rrelu_", "rrelu_with_noise"),
    *("rrelu_with_noise_", "rrelu_with_noise_functional", "uniform", "uniform_"),
)

_thread = threading.local()
_lock = threading.Lock()
_kept: list[Library] = []
_drawing: dict[int, bool] = {}


class RandomNumbers:
    """Numbers that are drawn from a new generator wherever, in this thread, the context is entered.

    Args:
        seed: of the generator.
    """

    def __init__(self, seed: int = SEED):
        _register()
        self._generator = torch.Generator().manual_seed(seed)
        self._outer: list[torch.Generator | None] = []

    def __enter__(self) -> None:
        _PATCHES.__enter__()
        self._outer.append(_own())
        _thread.generator = self._generator
        switch_dispatch_key(KEY, True)

    def __exit__(self, *exception: object) -> None:
        _thread.generator = self._outer.pop()
        switch_dispatch_key(KEY, _own() is not None)
        _PATCHES.__exit__(*exception)


def call(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an operator from inside a dispatch mode, where PyTorch leads everything round the higher keys."""
    draws = _drawing.get(id(operator))  # by id: operators live for ever, and hash slowly
    if draws is None:
        draws = _drawing[id(operator)] = torch.Tag.nondeterministic_seeded in operator.tags
    if not draws or _own() is None:
        return operator(*args, **kwargs)
    exclude_dispatch_key(KEY, False)
    try:
        return operator(*args, **kwargs)
    finally:
        exclude_dispatch_key(KEY, True)


def _own() -> Any:
    """The generator of the run that this thread is in, None outside."""
    return getattr(_thread, "generator", None)


def _is_run() -> bool:
    return _own() is not None


def _register() -> None:
    with _lock:
        if _kept:
            return
        passing = Library("_", "IMPL", KEY)
        passing.fallback(torch.library.fallthrough_kernel)
        drawing = Library("aten", "IMPL", KEY)
        for operator in operators():
            drawing.impl(operator.name(), partial(_draw, operator), KEY)
        _kept.extend([passing, drawing])


def operators() -> list[Any]:
    """The overloads of the operators that draw which take a generator."""
    packets = (getattr(torch.ops.aten, name) for name in DRAWING if hasattr(torch.ops.aten, name))
    overloads = (getattr(packet, name) for packet in packets for name in packet.overloads())
    return [o for o in overloads if any(argument.name == "generator" for argument in o._schema.arguments)]


def _draw(operator: Any, *args: Any, **kwargs: Any) -> Any:
    own = _own()
    # random_split names the process's generator, which it takes for the one that everybody draws from.
    if own is not None and is_default_generator(kwargs.get("generator")) and _on_the_host(args, kwargs):
        kwargs["generator"] = own
    switch_dispatch_key(KEY, False)
    try:
        return operator(*args, **kwargs)
    finally:
        switch_dispatch_key(KEY, True)


def _on_the_host(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if the operator puts its numbers in the host's memory."""
    # randperm on a card asks again, with the result as its ``out``.
    tensor = next((value for value in (*args, kwargs.get("out")) if isinstance(value, torch.Tensor)), None)
    if tensor is not None:
        return tensor.device.type == "cpu"
    return (kwargs.get("device") or torch.get_default_device()).type == "cpu"


# What PyTorch's Python asks of the process's generator is asked of the run's.


def _manual_seed(seed: int) -> torch.Generator:
    torch.cuda.manual_seed_all(int(seed))
    return _own().manual_seed(int(seed))


def _seed() -> int:
    seed = _own().seed()
    torch.cuda.manual_seed_all(seed)
    return seed


def _changes() -> Iterator[Change]:
    answers: dict[str, Callable[..., Any]] = {
        "manual_seed": _manual_seed,
        "seed": _seed,
        "initial_seed": lambda: _own().initial_seed(),
        "get_rng_state": lambda: _own().get_state(),
        "set_rng_state": lambda new_state: _own().set_state(new_state),
    }
    for owner in (torch, torch.random):
        for name, answer in answers.items():
            yield owner, name, where(_is_run, answer, getattr(owner, name))
    if change := keys_of_higher_order(without=KEY):
        operators, name, keys = change
        yield operators, name, where(_is_run, keys, getattr(operators, name))


_PATCHES = Patches(_changes)
