"""Numbers on the card that are known: integers and truths made from known ones, a few floats, more that are only moved.

A tensor on the virtual card has no numbers. But what steers a loop is small and made from numbers that the host knows
(counters, masks of positions, "done" flags), so beside such a tensor its *value* is kept: a real tensor on the host. An
operator on the card is then done on the values as well. Views of values are views, so writing through one is seen by
all.

Where an operator takes numbers that nobody knows (a loss, tokens that were sampled), its value is worked out with 1
for every unknown float and 0 for every unknown integer, and is *uncertain*. ``all`` of what is unknown, or of what is
said of unknown floats, is True, other unknown truths are False: assertions and validations then pass, and loops that
wait for something rare do not begin. (Of integers too, which may be tokens, a text that goes on until all have ended
would end at once.)
When the loop asks for an uncertain number, the line that asked is written down. So is a line at which the size of a
result depends on such numbers; there nothing is chosen, and the prediction is a lower bound, unless somebody has said
which share is, or that what is picked from several is spread evenly over them: then the places that ``topk`` or
``argmax`` gives have numbers, which are uncertain, and so has what is made from them.

What other ranks send is uncertain, too: it is taken to be what this one sends.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch

from memlab.tracking.collectives import COLLECTIVES
from memlab.tracking.internals import rank_in_group, size_of_group
from memlab.tracking.operators import operator
from memlab.vgpu.arguments import Arguments
from memlab.vgpu.current_prediction import current
from memlab.vgpu.internals import FakeTensor, storage_id, tree_leaves, unset_fake_temporarily
from memlab.vgpu.names import CARD
from memlab.vgpu.refusals import called, in_head_of_while, where, without_end

LARGEST = 1_000_000  # numbers: up to here a tensor has a value that is known (tokens of a batch, labels of its pixels)
EVENLY = "evenly"  # for ``Prediction.chosen``
FEW = 16  # floats: the bounds of a range, the means of colours
MOVED = 100_000  # floats that came from the host: the boxes of a batch, whose they are, and what is made of these alone
MOST_TO_CHOOSE_FROM = 2**24  # numbers of which a share is chosen
LARGEST_GUESS = 1000  # up to here it has one that is not
MOST_GUESSES = 10_000  # for one line in one step
MOST_IN_WHILE = 1000  # where the line is the condition of a loop

aten = torch.ops.aten

# These write into tensors whose numbers steer the scaler, and on a step where nothing overflows leave them as they are.
_KEEPS = {aten._amp_foreach_non_finite_check_and_unscale_.default, aten._amp_update_scale_.default}
# Operators that write to arguments, and whose schema does not say so.
_UNSAID = {aten.native_batch_norm.default: ("running_mean", "running_var")}
_SORTING = {aten._unique2.default, aten.unique_dim.default}
EMPTY = {aten.empty, aten.empty_like, aten.empty_strided, aten.empty_permuted, aten.new_empty, aten.new_empty_strided}
# Zeros of forward-mode derivatives: without memory on the host too, and below autograd a kernel would read it.
_NOTHING = EMPTY | {aten._efficientzerotensor}
_LIKE = {aten.zeros_like, aten.ones_like, aten.full_like, aten.new_zeros, aten.new_ones, aten.new_full}  # in form alone
_OVERWRITES = {aten.copy_, aten.fill_, aten.zero_}  # what was there before does not matter
_TRUE = {aten.all, aten._is_all_true, aten.equal, aten.allclose}  # where nothing is known
_ALL = {aten.min, aten.amin}  # are ``all`` where they give truths
_MOVES = {
    id(func)
    for func in (
        *(aten._to_copy.default, aten.copy_.default, aten.clone.default, aten.cat.default),
        *(aten.index.Tensor, aten.index_select.default, aten.gather.default),
    )
}
_CONVERTS = {aten._to_copy.default}  # a mask of floats is a mask of ones
# Operators that pick places along a dimension, the last where they have no ``dim``: which of the results these are.
_PICKS = {aten.topk.default: 1, aten.max.dim: 1, aten.argmax.default: 0, aten.multinomial.default: 0}


class Value:
    """The numbers of a tensor on the card. Views of one tensor share ``origin``."""

    __slots__ = ("origin", "tensor")

    def __init__(self, tensor: torch.Tensor, origin: "_Origin"):
        self.tensor = tensor
        self.origin = origin


class _Origin:
    __slots__ = ("certain", "of_floats", "of_picks")

    def __init__(self, certain: bool, of_floats: bool = False, of_picks: bool = False):
        self.certain = certain
        self.of_picks = of_picks  # whether it is made from picks that are spread evenly
        self.of_floats = of_floats  # whether it is truths about floats that nobody knows


class _Unknown(Exception):
    """An argument that is too large to have a value."""


def value_of(tensor: torch.Tensor) -> Value | None:
    """Return the known value of a tensor on the card, or None."""
    return tensor.__dict__.get("memlab_value")


def is_known(tensor: torch.Tensor) -> bool:
    """Return True if the numbers of a tensor on the card are known for certain."""
    value = value_of(tensor)
    return value is not None and value.origin.certain


def tell(tensor: torch.Tensor, known: torch.Tensor) -> None:
    """A tensor on the card has these numbers for certain."""
    if has_value(tensor):
        tensor.__dict__["memlab_value"] = Value(known, _Origin(True))


def tell_of(alias: torch.Tensor, tensor: torch.Tensor) -> None:
    """A tensor on the card is another one by another name."""
    if (value := value_of(tensor)) is not None:
        alias.__dict__["memlab_value"] = value


def follow(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Work out the values of what an operator gave, where they are small."""
    most = MOVED if _moves(func) or _all_known(args) else FEW
    if isinstance(out, FakeTensor) and out.dtype.is_floating_point and out.numel() > most and not written(func):
        return  # nearly always
    if func in _KEEPS:
        return
    if func.overloadpacket in COLLECTIVES:
        _from_all_ranks(func, args, out)
        return
    outs = out if isinstance(out, tuple | list) else (out,)
    if func in _PICKS and current().chosen == EVENLY:
        _spread(Arguments(func, args, kwargs), outs[_PICKS[func]])
        return
    if not any(has_value(item, most) for item in outs):
        _note_sources(func, (args, kwargs), _write(func, args, kwargs))
        return
    try:
        results, certain = _run(func, args, kwargs, outs)
    except Exception:  # the host has no such kernel, or not with these arguments
        results, certain = [None] * len(outs), False
    for item, result in zip(outs, results, strict=False):
        if has_value(item, most):
            of_floats = item.dtype is torch.bool and not certain and func not in _CONVERTS and _says_of_floats(args)
            if of_floats and (item.numel() > 1 or _is_all(func, item)):
                result = None
            of_picks = not certain and current().chosen == EVENLY and _says_of_picks(args)
            _keep(item, result, func, (args, kwargs), _Origin(certain, of_floats, of_picks))
    _note_sources(func, (args, kwargs), _values(outs))


def ask(tensor: FakeTensor) -> bool | int | float | complex:
    """The number in a tensor of one element, a guess where it is unknown."""
    _note_read(tensor, is_known(tensor))
    if tensor.constant is not None:
        return tensor.constant.item()
    value = value_of(tensor)
    if (value is None or not value.origin.certain) and (given := _given(value)) is not None:
        return torch.tensor(given).to(tensor.dtype).item()
    return (_default(tensor) if value is None else value.tensor).item()


def numbers(tensor: torch.Tensor, *, asked: bool = True) -> torch.Tensor:
    """The numbers of a tensor for the host, as a real tensor; guesses where they are unknown."""
    _note_read(tensor, is_known(tensor))
    value = value_of(tensor)
    is_guess = asked and tensor.numel() == 1 and (value is None or not value.origin.certain)
    if is_guess and (given := _given(value)) is not None:
        return torch.full(tensor.shape, given).to(tensor.dtype)
    return _default(tensor) if value is None else value.tensor.to(tensor.dtype, copy=True)


def truth(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return the answer of an operator that compares whole tensors; True, as a guess, where that is unknown."""
    results: list[Any] = []
    certain = False
    with suppress(Exception):
        results, certain = _run(func, args, kwargs, ())
    _note_read((args, kwargs), certain)
    if not certain:
        note_guess()
    return bool(results[0]) if results else True


def sized_by_values(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The real result of an operator whose sizes depend on numbers, None unless all of them are known for certain."""
    results: list[Any] = []
    certain = False
    with suppress(Exception):
        results, certain = _run(func, args, kwargs, ())
    _note_read((args, kwargs), certain)
    return results if certain else None


def sized_by_share(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the same where a share of the unknown numbers is 1 and the rest 0, so that this share is chosen.

    Without :attr:`Prediction.chosen` all are 0: the least that it may give. What is made from picks that are
    spread evenly is taken as it is. Of a long mask only the share counts. None where the host has no such operator, or
    would have too much to count.
    """
    prediction = current()
    share = prediction.chosen if isinstance(prediction.chosen, int | float) else 0
    is_spread = prediction.chosen == EVENLY

    def stand_in(argument: FakeTensor) -> torch.Tensor:
        nonlocal is_spread
        if (value := value_of(argument)) is not None and (value.origin.certain or value.origin.of_picks):
            return value.tensor
        is_spread &= argument.dtype.is_floating_point and argument is args[0] and len(args) > 1  # not what decides
        if func in _SORTING and argument.numel() > LARGEST:
            raise _Unknown
        if not share:
            return _zero(argument.dtype).expand(argument.shape)
        if argument.numel() > MOST_TO_CHOOSE_FROM:
            raise _Unknown
        return _chosen(argument, math.ceil(share * argument.numel()), distinct=func in _SORTING)

    try:
        is_long = func in _MASKED and args[-1].numel() > MOST_TO_CHOOSE_FROM
        results = [_MASKED[func](*args, share)] if is_long else _on_the_host(func, args, kwargs, stand_in)
    except Exception:
        return None
    (prediction.spread if is_spread else prediction.sized)[note_guess()] = called(func)
    return results


def written(func: Any) -> tuple[str, ...]:
    """Return the names of the arguments that an operator writes to."""
    known = _written.get(id(func))  # by id: operators live for ever, and hash slowly
    if known is None:
        known = _UNSAID.get(func, ())
        if not known and func._schema.is_mutable:
            arguments = func._schema.arguments
            known = tuple(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write)
        _written[id(func)] = known
    return known


_written: dict[int, tuple[str, ...]] = {}


def _given(value: Value | None) -> float | None:
    """Note that the line at work asks for a number which nobody knows; the number that was given for it, if any."""
    line = note_guess()
    if value is not None and value.origin.of_picks:
        current().spread[line] = "a number"
    return current().given.get(line)


def note_guess() -> str:
    """Write down the line that asks for a number which nobody knows; that line.

    Raises:
        Unpredictable: it asked so often in this step that it may never end.
    """
    line = where()
    times = current().ask(line)
    if times >= MOST_GUESSES or (times >= MOST_IN_WHILE and in_head_of_while()):
        raise without_end(line, times)
    return line


def has_value(item: Any, floats: int = FEW) -> bool:
    """Return True for a tensor on the card that is small enough to have a value; ``floats`` is the limit for floats."""
    if not isinstance(item, FakeTensor) or item.fake_device != CARD or item.layout is not torch.strided:
        return False
    count = item.numel()
    return count <= floats or (count <= LARGEST and not item.dtype.is_floating_point and not item.dtype.is_complex)


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outs: Sequence[Any]) -> tuple[list[Any], bool]:
    """The operator on the values of its arguments: its results, and whether all that went in is certain."""
    if torch.Tag.nondeterministic_seeded in func.tags or func.overloadpacket in _NOTHING:
        return [None] * len(outs), False
    is_like = func.overloadpacket in _LIKE
    guessing = not any(item.dtype.is_floating_point for item in outs if isinstance(item, torch.Tensor))
    certain = True
    overwritten = args[0] if func.overloadpacket in _OVERWRITES else None

    def stand_in(argument: FakeTensor) -> torch.Tensor:
        nonlocal certain
        if is_like:
            return _zero(argument.dtype).expand(argument.shape)
        value = value_of(argument)
        if value is None:
            certain = False
            if not guessing or not outs or argument.numel() > (LARGEST if func in _CONVERTS else LARGEST_GUESS):
                raise _Unknown
            return _default(argument)
        certain = certain and (value.origin.certain or argument is overwritten)
        return value.tensor

    try:
        return _on_the_host(func, args, kwargs, stand_in), certain
    except _Unknown:
        return [None] * len(outs), False


def _on_the_host(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], stand_in: Callable[[FakeTensor], torch.Tensor]
) -> list[Any]:
    """Return the operator's results on the host, with a real tensor from ``stand_in`` for each that has no numbers."""

    def real(argument: Any) -> Any:
        if isinstance(argument, torch.device):
            return torch.device("cpu")
        return stand_in(argument) if isinstance(argument, FakeTensor) else argument

    kwargs = {name: _each(real, given) for name, given in kwargs.items() if name not in ("generator", "pin_memory")}
    args = _each(real, args)
    with unset_fake_temporarily(), torch.no_grad():
        result = func(*args, **kwargs)
    return list(result) if isinstance(result, tuple | list) else [result]


def _each(change: Callable[[Any], Any], given: Any) -> Any:
    """``tree_map`` for an operator's arguments, in a quarter of its time: there is nothing but lists and tuples."""
    kind = type(given)
    return kind([_each(change, one) for one in given]) if kind is tuple or kind is list else change(given)


def _says_of_floats(args: tuple[Any, ...]) -> bool:
    """Return True if truths made from these arguments say something of floats that nobody knows."""
    tensors = (leaf for leaf in tree_leaves(args) if isinstance(leaf, FakeTensor))
    return any(t.dtype.is_floating_point if (v := value_of(t)) is None else v.origin.of_floats for t in tensors)


def _is_all(func: Any, out: FakeTensor) -> bool:
    """Return True if the operator acts as ``all``, and so is True where all of its argument is."""
    return func.overloadpacket in _TRUE or (func.overloadpacket in _ALL and out.dtype is torch.bool)


def _keep(item: Any, result: torch.Tensor | None, func: Any, given: tuple[Any, ...], origin: _Origin) -> None:
    before = value_of(item)
    if before is not None:  # written in place, or given back as it was
        is_new = func.overloadpacket in _OVERWRITES and before.tensor.nbytes == before.tensor.untyped_storage().nbytes()
        before.origin.certain = origin.certain and (before.origin.certain or is_new)
        before.origin.of_floats, before.origin.of_picks = origin.of_floats, origin.of_picks
        if result is not None and result is not before.tensor:
            before.tensor = result
        return
    if _is_only_moved(item) and not origin.certain:
        return
    if result is None:
        if item.dtype.is_floating_point:
            return
        if item.numel() > LARGEST_GUESS and func.overloadpacket not in EMPTY:  # these are about to be written to
            return
        result = torch.ones(item.shape, dtype=item.dtype) if _is_all(func, item) else _default(item)
    item.memlab_value = Value(result, _shared_origin(result, given) or origin)


def _shared_origin(result: torch.Tensor, given: tuple[Any, ...]) -> _Origin | None:
    """The origin of the argument that the result is a view of."""
    for value in _values(given[0]):
        if storage_id(value.tensor.untyped_storage()) == storage_id(result.untyped_storage()):
            return value.origin
    return None


def _write(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Value]:
    """An operator that gives nothing new (``_foreach_add_``) has written to its arguments; return their values."""
    if not (names := written(func)):  # as of nearly all
        return []
    given = Arguments(func, args, kwargs)
    targets = [value for name in names for value in _values(getattr(given, name))]
    if not targets:
        return []
    certain = False
    if _moves(func) or not any(_is_only_moved(value.tensor) for value in targets):
        with suppress(Exception):
            _, certain = _run(func, args, kwargs, ())
    if not certain:
        for value in targets:
            value.origin.certain = False
    return targets


def _note_sources(func: Any, given: Any, made: list[Value]) -> None:
    """An operator has made values of what it was given, or written to these."""
    if made and (sources := current().sources) is not None:
        sources.follow(() if func.overloadpacket in _LIKE else given, made)


def _note_read(given: Any, certain: bool) -> None:
    """Numbers are read that are made of what is given."""
    prediction = current()
    if not certain or prediction.sources is None or not prediction.sources.read(given):
        prediction.numbers += 1


def _from_all_ranks(func: Any, args: tuple[Any, ...], out: Any) -> None:
    """A collective has given what all ranks have. Each is taken to have the numbers that this one has."""
    collective, name = COLLECTIVES[func.overloadpacket], func.overloadpacket.__name__
    if name not in _OF_ALL_RANKS:
        return
    target, given = (args[0], args[1]) if name.endswith("_") else (out, args[0])
    value, group = value_of(given), args[collective.group]
    if value is None or not has_value(target):
        return
    with unset_fake_temporarily():
        numbers = _OF_ALL_RANKS[name](value.tensor, size_of_group(group), rank_in_group(group))
    if numbers.numel() == target.numel():  # not where each other rank is sent as many as it likes
        numbers = numbers.view(target.shape).to(target.dtype)
        target.__dict__["memlab_value"] = Value(numbers, _Origin(False, of_picks=value.origin.of_picks))


def _exchanged(numbers: torch.Tensor, ranks: int, rank: int) -> torch.Tensor:
    return numbers.flatten().tensor_split(ranks)[rank].repeat(ranks)


def _gathered(numbers: torch.Tensor, ranks: int, rank: int) -> torch.Tensor:
    return numbers.flatten().repeat(ranks)


_OF_ALL_RANKS = {
    "alltoall_base_": _exchanged,
    "all_to_all_single": _exchanged,
    "_allgather_base_": _gathered,
    "all_gather_into_tensor": _gathered,
}


def _all_known(args: tuple[Any, ...]) -> bool:
    """Return True if an operator works with nothing but what is known for certain on the card."""
    if not args:
        return False
    first, *others = args[0] if isinstance(args[0], list | tuple) and args[0] else args[:1]
    if not isinstance(first, FakeTensor) or not is_known(first):
        return False  # nearly always
    return all(is_known(item) for item in (*others, *args[1:]) if isinstance(item, FakeTensor))


def _moves(func: Any) -> bool:
    return id(func) in _MOVES or operator(func).is_view


def _is_only_moved(tensor: torch.Tensor) -> bool:
    """Return True if a tensor has more floats than operators are worked out for."""
    return tensor.numel() > FEW and (tensor.dtype.is_floating_point or tensor.dtype.is_complex)


def _values(given: Any) -> list[Value]:
    """Return the known values of an argument, or of each tensor in a list of them."""
    tensors = given if isinstance(given, tuple | list) else (given,)
    known = (value_of(tensor) for tensor in tensors if isinstance(tensor, FakeTensor))
    return [value for value in known if value is not None]


def _spread(given: Arguments, places: Any) -> None:
    """The places that an operator picks are spread evenly over the dimension, row by row."""
    dim = getattr(given, "dim", -1)
    count = given.self.numel() if dim is None else given.self.shape[dim]
    if has_value(places):
        with unset_fake_temporarily():
            even = (torch.arange(places.numel()) % count).view(places.shape)
        places.__dict__["memlab_value"] = Value(even, _Origin(False, of_picks=True))


def _says_of_picks(args: tuple[Any, ...]) -> bool:
    """Return True if an argument is made from picks that are spread evenly."""
    tensors = (leaf for leaf in tree_leaves(args) if isinstance(leaf, FakeTensor))
    return any(value.origin.of_picks for tensor in tensors if (value := value_of(tensor)) is not None)


def _chosen(tensor: torch.Tensor, count: int, *, distinct: bool) -> torch.Tensor:
    """Return numbers for a tensor: ``count`` times 1, then 0; or so many ``distinct`` ones."""
    with unset_fake_temporarily():
        places = torch.arange(tensor.numel(), dtype=torch.int32)
        numbers = places.clamp(max=max(count - 1, 0)) if distinct else places < count
        return numbers.to(tensor.dtype).view(tensor.shape)


def _nonzero(mask: torch.Tensor, share: float) -> torch.Tensor:
    """Return what ``nonzero`` gives where a share of the mask is true, without numbers."""
    with unset_fake_temporarily():
        return torch.empty(mask.dim(), math.ceil(share * mask.numel()), dtype=torch.int64, device="meta").t()


def _masked_select(tensor: torch.Tensor, mask: torch.Tensor, share: float) -> torch.Tensor:
    """Return what ``masked_select`` gives where a share of the mask is true, without numbers."""
    repeated = math.prod(torch.broadcast_shapes(tensor.shape, mask.shape)) // mask.numel()
    with unset_fake_temporarily():
        return torch.empty(math.ceil(share * mask.numel()) * repeated, dtype=tensor.dtype, device="meta")


# The mask is the last argument, and how much it chooses follows from the share alone.
_MASKED: dict[Any, Callable[..., torch.Tensor]] = {
    aten.nonzero.default: _nonzero,
    aten.masked_select.default: _masked_select,
}


def _zero(dtype: torch.dtype) -> torch.Tensor:
    with unset_fake_temporarily():
        return torch.zeros((), dtype=dtype)


def _default(tensor: torch.Tensor) -> torch.Tensor:
    """1 for every unknown float, 0 for every unknown integer, False for every unknown truth."""
    with unset_fake_temporarily():
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            return torch.ones(tensor.shape, dtype=tensor.dtype)
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
