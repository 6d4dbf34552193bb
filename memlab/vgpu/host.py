"""The host of a predicted card: it computes for real, and what it had before is given back as it was.

Only large floating-point tensors whose numbers say nothing (random, or not yet written) are fake on the host too: a
model of 8 billion parameters costs no memory before it moves to the card.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch

from memlab.tracking import randomness
from memlab.vgpu import values
from memlab.vgpu.arguments import Arguments
from memlab.vgpu.current_prediction import Prediction, current
from memlab.vgpu.internals import FakeTensor, FakeTensorMode, storage_id, unset_fake_temporarily
from memlab.vgpu.results import make_fake, remembered

SMALL = 1000  # numbers: up to here every floating-point tensor on the host is real
LARGE = 2**18  # numbers: up to here one is real whose numbers were chosen, as those of a schedule are, or drawn

aten = torch.ops.aten


def compute(mode: FakeTensorMode, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One operator without a fake tensor among its arguments."""
    kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}  # the same bytes, elsewhere
    if _is_factory(func):
        fake = remembered(mode, func, args, kwargs, lambda: mode.dispatch(func, types, args, kwargs))
        if fake.is_floating_point() and fake.numel() > (SMALL if _says_nothing(func) else LARGE):
            return fake
    elif written := values.written(func):
        given = Arguments(func, args, kwargs)
        _keep_before_writing(current(), [getattr(given, name) for name in written])
    current().numbers += torch.Tag.nondeterministic_seeded in func.tags
    with unset_fake_temporarily():
        return randomness.call(func, args, kwargs)


def draw(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Draw for a fake tensor of the host, in place: what is drawn next, the order of samples, depends on how much was.

    Of a large one this would take too long.
    """
    target = args[0]
    current().numbers += 1
    if target.fake_device.type == "cpu" and target.numel() <= LARGE:
        with unset_fake_temporarily():
            unseen = torch.empty_strided(target.shape, target.stride(), dtype=target.dtype)
            randomness.call(func, (unseen, *args[1:]), kwargs)


def bring_home(mode: Any, out: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Return ``out``, a copy on the host of ``source`` on the card, as a real tensor; large floats stay fake."""
    if out.device.type != "cpu" or (out.is_floating_point() and out.numel() > SMALL):
        return out
    if out.numel() == 1 and not values.is_known(source):
        return make_fake(mode, out.to("meta"), out.device)  # whoever asks for its number is told on
    return values.numbers(source).to(out.dtype)


def write(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """``target.copy_(source)``, from the card into a real tensor of the host."""
    _keep(current(), target)
    with torch.no_grad():
        if source.numel() <= SMALL and source.shape == target.shape:
            return target.copy_(values.numbers(source))
        return target.zero_()


@cache
def _is_factory(func: Any) -> bool:
    """Return True if an operator makes a tensor of numbers that it is not given: ``empty``, ``randn``, ``arange``."""
    arguments = func._schema.arguments if hasattr(func, "_schema") else ()
    names = {argument.name for argument in arguments}
    takes_tensors = any("Tensor" in str(argument.type) for argument in arguments)
    return "device" in names and not takes_tensors


@cache
def _says_nothing(func: Any) -> bool:
    return func.overloadpacket in values.EMPTY


def _keep_before_writing(prediction: Prediction, targets: Iterable[Any]) -> None:
    for target in targets:
        for tensor in target if isinstance(target, tuple | list) else (target,):
            if isinstance(tensor, torch.Tensor):
                _keep(prediction, tensor)


def _keep(prediction: Prediction, tensor: torch.Tensor) -> None:
    """Keep what a real tensor holds before the loop first writes to it; it may be older than the prediction."""
    if isinstance(tensor, FakeTensor) or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return
    storage = tensor.untyped_storage()
    if storage_id(storage) in prediction.written:
        return
    # Normal tensors, wherever this is: one of the inference mode's could not be written to after it.
    with unset_fake_temporarily(), torch.inference_mode(False), torch.no_grad():
        whole = torch.empty(0, dtype=torch.uint8).set_(storage)
        before = whole.clone()
    prediction.written[storage_id(storage)] = whole  # keeps the storage, and so its number, for the time being
    prediction.undo.callback(_put_back, whole, before)


def _put_back(whole: torch.Tensor, before: torch.Tensor) -> None:
    if whole.untyped_storage().nbytes() == before.numel():  # else it was resized, and is no longer what it was
        with torch.no_grad():
            whole.copy_(before)
