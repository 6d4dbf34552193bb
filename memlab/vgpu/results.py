"""The form of operators' results, remembered.

``FakeTensorMode`` works a result's shape out with PyTorch's own rules, in some 100 microseconds. A network asks the
same of the same operators over and over, so the answers are kept: the layers of a GPT are alike, and so are the steps.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from memlab.vgpu.internals import FakeTensor, FakeTensorMode, allow_data_pointer, make_subclass, with_device
from memlab.vgpu.names import CARD, SLOT

MOST = 5000  # answers of a generation, 4.5 KiB each; a network has hundreds


class Answer:
    """The knowledge of an operator with such arguments.

    Attributes:
        func: the operator.
        build: makes its result anew; None where that is not possible.
        work: what it does, once somebody has worked that out: see ``time/work.py``.
    """

    __slots__ = ("build", "func", "work")

    def __init__(self, func: Any, build: Callable[..., Any] | None):
        self.func = func
        self.build = build
        self.work: Any = None


class Generations:
    """Answers in two generations: those asked for lately, and those before. When the young ones are many, the old go.

    So what is asked for again and again stays, and memory has a bound, at the price of a dictionary.
    """

    def __init__(self) -> None:
        self._young: dict[tuple[Any, ...], Answer] = {}
        self._old: dict[tuple[Any, ...], Answer] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: tuple[Any, ...]) -> Answer | None:
        """The answer to a question."""
        answer = self._young.get(key)
        if answer is None and (answer := self._old.pop(key, None)) is not None:
            self.put(key, answer)
        return answer

    def put(self, key: tuple[Any, ...], answer: Answer) -> None:
        """Keep it."""
        if len(self._young) >= MOST:
            self._young, self._old = {}, self._young
        self._young[key] = answer

    def items(self) -> list[tuple[tuple[Any, ...], Answer]]:
        """All that are kept."""
        return [*self._old.items(), *self._young.items()]


_answers = Generations()
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_TAGS = (torch.Tag.inplace_view, torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)
_MOVE = torch.ops.aten._to_copy.default  # the one operator that makes a tensor of the card from one of the host alone
_REAL = (torch.Tensor, torch.nn.Parameter)
_empty, _empty_strided = torch.empty, torch.empty_strided  # without what a prediction changes in them: they are many


class _NotCacheable(Exception):
    """An argument or a result that has no short description."""


def remembered(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], work_out: Callable[[], Any]) -> Any:
    """The result of the operator; ``work_out()`` gives it where no answer is known yet. ``mode.answer`` is what is."""
    key = _key(func, args, kwargs)
    if key is None:
        return work_out()
    answer = _answers.get(key)
    given = (*args, *kwargs.values())  # as `out`, into which compiled code has its products written
    if answer is None:
        out = work_out()
        resized = _key(func, args, kwargs) != key  # an `out` of another size, whose form the next one has not yet
        answer = Answer(func, None if resized else _builder(func, given, out))
        _answers.put(key, answer)
    else:
        out = work_out() if answer.build is None else answer.build(mode, given)
    mode.answer = answer  # last, for working it out asks for others
    return out


def _key(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    try:
        given = _describe_host(args[0]) if func is _MOVE and type(args[0]) in _REAL else _describe(args)
        named = _describe(tuple(kwargs.items())) if kwargs else ()
        # The default dtype is what `empty` without a dtype gives, and what an integer tensor divided gives.
        return id(func), given, named, torch.get_default_dtype(), torch.is_inference_mode_enabled()
    except _NotCacheable:
        return None


def _describe(value: Any) -> Any:
    """A hashable description on which alone the shapes of a result depend."""
    kind = type(value)
    if kind is not FakeTensor:  # as most are not
        if kind in _PLAIN:
            return kind, value  # 1, 1.0 and True are equal, and give different results
        if kind is tuple or kind is list:
            return tuple([_describe(item) for item in value])
        if not issubclass(kind, FakeTensor):
            raise _NotCacheable
    if value.constant is not None or value.layout is not torch.strided or value.is_complex():
        raise _NotCacheable
    return value.dtype, value.shape, value.stride(), value.storage_offset(), value.fake_device


def _describe_host(tensor: torch.Tensor) -> Any:
    """The same, of a real tensor of the host that is moved."""
    if tensor.layout is not torch.strided or tensor.is_complex():
        raise _NotCacheable
    return "host", tensor.dtype, tensor.shape, tensor.stride()


def _builder(func: Any, args: tuple[Any, ...], out: Any) -> Callable[..., Any] | None:
    """Return what makes such a result again from such arguments; None where that is not possible."""
    if any(tag in func.tags for tag in _TAGS):
        return None
    if any(item.layout is not torch.strided for item in _tensors(out)):
        return None  # sparse: without a storage of its own
    if isinstance(out, tuple | list):
        if _share_a_new_storage(args, out):
            return None
        parts: list[Any] = [_builder(func, args, item) for item in out]
        if None in parts:
            return None
        kind = list if isinstance(out, list) else tuple
        return lambda mode, args: kind([build(mode, args) for build in parts])
    if out is None:
        return lambda mode, args: None
    if type(out) is not FakeTensor:
        return None
    for index, arg in enumerate(args):
        if arg is out:
            return lambda mode, args: args[index]
    for index, arg in enumerate(args):
        if isinstance(arg, FakeTensor) and arg.untyped_storage() is out.untyped_storage():
            return _view(index, out)
    return _fresh(func, out)


def _share_a_new_storage(args: tuple[Any, ...], results: Sequence[Any]) -> bool:
    """Return whether results are views of each other, and not of an argument as the parts of a split are."""
    given = {id(item.untyped_storage()) for item in _tensors(args)}
    new = [identity for item in _tensors(results) if (identity := id(item.untyped_storage())) not in given]
    return len(set(new)) < len(new)


def _tensors(out: Any) -> list[torch.Tensor]:
    return [item for item in (out if isinstance(out, tuple | list) else (out,)) if isinstance(item, torch.Tensor)]


def _view(index: int, out: FakeTensor) -> Callable[..., Any]:
    dtype, offset, shape, stride = out.dtype, out.storage_offset(), out.shape, out.stride()

    def build(mode: FakeTensorMode, args: tuple[Any, ...]) -> FakeTensor:
        base = args[index]
        if torch.is_inference_mode_enabled() and not base.is_inference():
            with torch.inference_mode(False):  # then its views are none of the inference mode's tensors either
                return view(mode, base)
        return view(mode, base)

    def view(mode: FakeTensorMode, base: Any) -> FakeTensor:
        tensor = _empty(0, dtype=dtype, device="meta")
        tensor.set_(base.untyped_storage(), offset, shape, stride)
        return make_fake(mode, tensor, base.fake_device)

    return build


def _fresh(func: Any, out: FakeTensor) -> Callable[..., Any] | None:
    if any(result.alias_info is not None for result in func._schema.returns):
        return None  # an alias of something that is not an argument of its own
    dtype, shape, stride, device = out.dtype, out.shape, out.stride(), out.fake_device

    def build(mode: FakeTensorMode, args: tuple[Any, ...]) -> FakeTensor:
        return make_fake(mode, _empty_strided(shape, stride, dtype=dtype, device="meta"), device)

    return build if build_size(out) == out.untyped_storage().nbytes() else None


def make_fake(mode: Any, tensor: torch.Tensor, device: torch.device) -> FakeTensor:
    """``FakeTensor(mode, tensor, device)`` in a third of the time: attributes are taken over from the first one.

    A tensor on the card has the dispatch keys of the slot, see ``names.py``.
    """
    attributes = mode.attributes.get(device)
    if attributes is None:
        first = FakeTensor(mode, torch.empty(0, device="meta"), SLOT if device == CARD else device)
        attributes = mode.attributes[device] = with_device(first.__dict__, device)
    keys = SLOT if device == CARD else device
    fake = make_subclass(FakeTensor, tensor, False, dispatch_device=True, device_for_backend_keys=keys)
    allow_data_pointer(fake)
    fake.__dict__.update(attributes)
    return fake


def within(mode: Any, tensor: FakeTensor, count: int) -> torch.Tensor:
    """A result like this one in a storage of so many elements, where it needs fewer."""
    if count <= tensor.numel():
        return tensor
    whole = torch.empty(count, dtype=tensor.dtype, device="meta")
    return make_fake(mode, whole.as_strided(tensor.shape, tensor.stride()), tensor.fake_device)


def build_size(tensor: torch.Tensor) -> int:
    """The bytes of a storage that holds just this tensor."""
    return (
        torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta").untyped_storage().nbytes()
    )
