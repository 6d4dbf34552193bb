"""The dispatch mode of the virtual GPU: tensors on the card are shapes without numbers, the host stays real.

``VirtualMode`` is PyTorch's ``FakeTensorMode`` with four rules of its own:

1. The host computes, so that data loading, schedules, optimizer step counts and whatever steers the loop work:
   ``host.py``.
2. A number asked of the card (``.item()``, ``bool(tensor)``) is given where it is known, else guessed: ``values.py``.
3. Autograd's engine is told that card tensors are on PyTorch's "lazy" device, see ``names.py``.
4. Errors say what to do.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from memlab.tracking import randomness
from memlab.vgpu import host, values
from memlab.vgpu.arguments import Arguments
from memlab.vgpu.current_prediction import Prediction, enter
from memlab.vgpu.facade import card_device
from memlab.vgpu.fake_kernels import CORRECTIONS, LIKE, OUR_OWN, SIZED
from memlab.vgpu.internals import (
    FAKE_MODE,
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    set_mode,
    tree_leaves,
    tree_map,
    unset_fake_temporarily,
    unset_mode,
)
from memlab.vgpu.names import CARD, ENGINE, SLOT
from memlab.vgpu.refusals import depends_on_data, nested, no_kernel, sparse, two_devices
from memlab.vgpu.results import Answer, make_fake, remembered
from memlab.vgpu.sparse import parts

prim_device = torch.ops.prim.device.default
aten = torch.ops.aten


def engine_device(tensor: Any) -> torch.device:
    """Return the device that C++ believes a fake tensor to be on (rule 3), which ``tensor.device`` does not ask."""
    try:
        device = tensor.fake_device
    except AttributeError:  # a wrapper that wants to be asked itself: an error here would end the process
        kind = type(tensor)
        device = kind.__torch_dispatch__(prim_device, (kind,), (tensor,), {})
    return ENGINE if device == CARD else device


class VirtualMode(FakeTensorMode):
    """``with`` this, in one thread, tensors on the virtual GPU can be made and used."""

    _is_entering = False

    def __init__(self, prediction: Prediction):
        # No fallback: it would run the real kernel, which on a machine with a card takes memory there.
        super().__init__(allow_non_fake_inputs=True, allow_fallback_kernels=False)
        self.cache_enabled = False  # it has no bound, and what it would keep is remembered here: see results.py
        self.prediction = prediction
        self.attributes: dict[torch.device, dict[str, Any]] = {}  # of a fake tensor; see results.make_fake
        self._outer: list[Prediction | None] = []
        self.answer: Answer | None = None  # what was remembered of the last operator; see results.remembered
        self._within = False  # an operator that PyTorch takes apart to find the shapes of its result

    def __enter__(self) -> "VirtualMode":
        self._outer.append(enter(self.prediction))  # itself, where one of its kernels enters it again
        self._is_entering = True
        try:
            return super().__enter__()
        finally:
            self._is_entering = False

    def __exit__(self, *exception: Any) -> None:
        unset_mode(FAKE_MODE)  # what was broken off, by Ctrl-C or Stop, may have left it set aside
        set_mode(self)
        super().__exit__(*exception)
        enter(self._outer.pop())

    @property
    def avoid_device_init(self) -> bool:
        """Also on a machine that has a card: nothing may be made on it.

        Only when it is entered, that would do harm: a CUDA build without a card would from then on believe that it has
        some, its autograd would start threads for them, and torch 2.11 crashes where another thread has been first.
        """
        return not self._is_entering

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # see VirtualTracker

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # or no other thread could compile: PyTorch's switch for that is the process's

    def run(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One operator, for the tracker above: straight, without a way through PyTorch's dispatcher once more."""
        if unset_mode(FAKE_MODE) is None:
            return func(*args, **kwargs)  # PyTorch has set the mode aside: what it does now is for itself
        self.answer = None
        try:
            return self.__torch_dispatch__(func, types, args, kwargs)
        finally:
            set_mode(self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One operator. ``types`` is empty when no fake tensor is among its arguments."""
        if func is prim_device:
            return engine_device(args[0])
        if func is aten._local_scalar_dense.default and types:
            return values.ask(args[0])
        kwargs = on_the_card(kwargs) if kwargs else {}
        if types == _REAL:  # a shallow copy, as of what a sparse tensor of the host holds
            types = ()
        if not types and (kwargs.get("device") or _HOST).type == "cpu":
            return host.compute(self, func, types, args, kwargs)
        if not types and id(func) in _MOVES:  # which PyTorch 2.11 would do for real, as it does what takes numbers
            with self:
                return func.decompose(*args, **kwargs)
        if id(func) in _DRAWING:
            host.draw(func, args, kwargs)
        if self._within:
            return self._shapes(func, types, args, kwargs)
        self._within = True
        try:
            out = self._shapes(func, types, args, kwargs)
        finally:
            self._within = False
        if out is NotImplemented:
            return out
        if types and id(func) in _COPIES:
            with unset_fake_temporarily():
                out = _copied(self, func, args, out)
        elif id(func) in CORRECTIONS:
            with unset_fake_temporarily():
                out = CORRECTIONS[id(func)](self, Arguments(func, args, kwargs), out)
        if id(func) not in parts.HELD:  # whose numbers are known already, if they are
            values.follow(func, args, kwargs, out)
        return out

    def _shapes(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the results of the operator, as fake tensors without numbers."""
        given = kwargs
        if "generator" in kwargs:  # shapes do not depend on it, and nothing is to be drawn from it
            given = {name: value for name, value in kwargs.items() if name != "generator"}
            kwargs = kwargs | {"generator": _NOBODYS}
        try:
            if id(func) in OUR_OWN:
                return OUR_OWN[id(func)](self, *args, **given)
            return remembered(self, func, args, given, lambda: self._work_out(func, types, args, kwargs))
        except DataDependentOutputException as error:
            if func.overloadpacket in _TRUTHS:
                return values.truth(func, args, kwargs)
            raise depends_on_data(func) from error
        except DynamicOutputShapeException as error:
            if func in SIZED:
                return SIZED[func](self, *args, **kwargs)
            results = values.sized_by_values(func, args, kwargs) or values.sized_by_share(func, args, kwargs)
            if results is None:
                raise depends_on_data(func) from error
            return self._moved_to_the_card(results, func)
        except (UnsupportedOperatorException, UnsupportedFakeTensorException, NotImplementedError) as error:
            if func in LIKE:
                return aten.empty_like.default(getattr(Arguments(func, args, kwargs), LIKE[func]))
            raise no_kernel(func) from error
        except AssertionError as error:
            if "shape_env" in str(error):
                raise nested(func) from error
            raise
        except RuntimeError as error:
            if "no fake impl registered" in str(error):
                raise no_kernel(func) from error
            if any(words in str(error) for words in _TWO_DEVICES):
                raise two_devices(func, args, kwargs) from error
            raise

    def _work_out(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the results of an operator that the cache does not answer, such as every sparse one."""
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if any(map(_is_readers_own, given)):
            args, kwargs = tree_map(_plain, (args, kwargs))
        if any(map(parts.is_sparse, given)):
            if id(func) not in parts.ANSWERS:
                raise sparse(func)
            return parts.ANSWERS[id(func)](self, *args, **kwargs)
        if func is aten.index.Tensor:
            args = (args[0], _without_masks(args[1]))
        if id(func) in parts.MAKERS and kwargs.get("device") == CARD:
            return parts.MAKERS[id(func)](self, *args, **kwargs)
        out = self.dispatch(func, types, args, kwargs)
        if isinstance(out, torch.Tensor) and out.layout is not torch.strided and out.device == CARD:
            raise sparse(func)
        return out

    def _moved_to_the_card(self, results: list[torch.Tensor], func: Any) -> Any:
        made = [make_fake(self, result.to("meta"), CARD) for result in results]
        return made[0] if len(func._schema.returns) == 1 else tuple(made)


_HOST = torch.device("cpu")
_REAL = (torch.Tensor,)
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_NOBODYS = torch.Generator()
_TWO_DEVICES = ("on the same device", "two different devices")  # of FakeTensorMode's messages
_COPIES = {id(aten._to_copy.default), id(aten.copy_.default)}  # by id: operators live for ever, and hash slowly
_DRAWING = {id(operator) for operator in randomness.operators() if operator._schema.name.endswith("_")}  # in place
_MOVES = {id(getattr(aten.to, overload)) for overload in aten.to.overloads()}  # whole, below a subclass of tensors
_TRUTHS = {aten.equal, aten.allclose}


def on_the_card(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with the card where they name it, or the device that C++ takes it for (``names.py``)."""
    device = kwargs.get("device")
    if device is None or device.type in ("cpu", "meta") or device == CARD:
        return kwargs
    return kwargs | {"device": CARD if device.type in (ENGINE.type, SLOT.type) else card_device(device)}


@lru_cache(64)  # a loop may make its classes anew each time
def has_own_rules(kind: Any) -> bool:
    """Return True if a tensor class says itself what operators do with it: DTensor, quantized weights of torchao."""
    return not issubclass(kind, FakeTensor) and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def _is_readers_own(value: Any) -> bool:
    """Return True for a host tensor of a class without rules of its own, of which PyTorch makes no fake tensor."""
    kind: Any = type(value)
    is_real = issubclass(kind, torch.Tensor) and not issubclass(kind, FakeTensor)
    return is_real and kind not in _PLAIN and not has_own_rules(kind)


def _plain(value: Any) -> Any:
    if not _is_readers_own(value):
        return value
    with unset_fake_temporarily():
        return value.as_subclass(torch.Tensor)


def _without_masks(indices: Sequence[Any]) -> list[Any]:
    """Indices in which masks on the host, whose numbers are known, are the positions where they are true."""
    found: list[Any] = []
    with unset_fake_temporarily():
        for index in indices:
            is_mask = type(index) in _PLAIN and index.dtype in (torch.bool, torch.uint8)
            found += index.nonzero().unbind(1) if is_mask else [index]
    return found


def _copied(mode: VirtualMode, func: Any, args: tuple[Any, ...], out: torch.Tensor) -> torch.Tensor:
    """Rule 1 for copies from the card to the host."""
    if func is aten.copy_.default:
        return out if isinstance(args[0], FakeTensor) else host.write(*args[:2])
    return host.bring_home(mode, out, args[0])
