"""Micro-batches that are alike: what a model's call and its backward ask of the card is played again, not run again.

Gradient accumulation calls a model with tensors of the same shapes, dozens of times in a step, and so does an
evaluation, which has no backward. What two such calls do to the card's memory is compared. Where it is equal, the next
calls do the same in the same order, to the memory as it is then, and give tensors of the same shapes. So the bytes are
those of a call that runs: only the model's Python does not run, and none of its operators is worked out. A call is not
played where it could come out otherwise: of a model that reads numbers nobody knows, or others than those that the call
is compared with had; that draws on the host, keeps tensors, has hooks on its parameters, or is called twice before a
backward; nor where something is compiled.
"""

import inspect
import io
import pickle
import random
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

import torch

from memlab.allocator import Block
from memlab.categories import Phase
from memlab.tracking.labels import label
from memlab.tracking.nested import tensors_in
from memlab.tracking.residents import Residents
from memlab.tracking.storages import Record
from memlab.vgpu import autocast, values
from memlab.vgpu.current_prediction import Prediction, current, is_predicting
from memlab.vgpu.internals import FakeTensor, disable_modes, tree_flatten, tree_leaves
from memlab.vgpu.moments import BEGIN, BORN, EXPLAIN, FREED, GIVE, LEAVE, RESULTS, TAKE, WORK, Born, Moment
from memlab.vgpu.names import CARD, SLOT_NAME
from memlab.vgpu.results import make_fake
from memlab.vgpu.sources import Sources, digest
from memlab.vgpu.tracker import VirtualTracker

MOST_TAPES = 32  # of one prediction, the newest
MOST_TRIES = 6  # calls that are recorded before a model is taken to be never twice the same
_FORWARD = "_memlab_forward"  # what was in the place of ``forward``, kept beside it, so that copies of a module have it
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device)


@dataclass(frozen=True)
class Output:
    """A tensor that a call gives: its storage by number, and whether backward keeps it for a while; its form.

    Its numbers, too, if they are known.
    """

    storage: int
    kept: bool
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    is_differentiable: bool
    numbers: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Tape:
    """A call of a model, and its backward.

    Attributes:
        forward, backward: what happens, in order.
        flops: floating-point operations of both.
        storages: those that are born, by number.
        outputs: the tensors that the call gives, and ``result``: what it gives, pickled without them.
        casts: numbers of cast weights that are free when autocast's cache is emptied, in this order.
    """

    forward: tuple[Moment, ...]
    backward: tuple[Moment, ...]
    flops: tuple[int, int]
    storages: tuple[Born, ...]
    outputs: tuple[Output, ...]
    result: bytes
    casts: tuple[int, ...]

    def is_like(self, other: "Tape") -> bool:
        """Return True if the same happens to the memory."""
        return self._without_work() == other._without_work()

    def _without_work(self) -> "Tape":  # which is compared by identity
        def rest(moments: tuple[Moment, ...]) -> tuple[Moment, ...]:
            return tuple(moment for moment in moments if moment[0] is not WORK)

        return replace(self, forward=rest(self.forward), backward=rest(self.backward))


class Repeats:
    """The models of one prediction that are called again and again.

    Args:
        tracker: of the prediction, which tells of modules, of moments and of the ends of steps.
        prediction: which tells of the ends of backward passes, and of its own.

    Attributes:
        played: how many calls were.
    """

    def __init__(self, tracker: VirtualTracker, prediction: Prediction):
        self.played = 0
        self._tracker = tracker
        tracker.on_root, tracker.on_end = self.watch, self.end_step
        tracker.on_compiling.append(self.retire)
        prediction.repeats = self
        prediction.undo.callback(self.retire)
        self._watched: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._deciding: dict[
            Any, set[int]
        ] = {}  # arguments of a call whose numbers it reads, as :class:`Sources` has them
        self._tapes: dict[Any, Tape] = {}
        self._alike: set[Any] = set()
        self._tries: dict[Any, int] = {}
        self._seen: set[Any] = set()  # in this step
        self._recording: _Recording | None = None
        self._is_retired = False

    def watch(self, module: torch.nn.Module) -> None:
        """Have the next calls of a module, which no other one calls, come here."""
        if self._is_retired or module in self._watched:
            return
        self._watched.add(module)
        own = vars(module).get("forward")
        if isinstance(own, _Forward) or not isinstance(own, MethodType | None):
            return  # a copy of a module that is watched, or a function that is no method
        vars(module)["forward"] = _Forward(module, own)
        if own is not None:
            vars(module)[_FORWARD] = own

    def retire(self) -> None:
        """Watch no module any more: at the end, and before PyTorch's compiler finds what is in a forward's place."""
        self._is_retired = True
        self.forget()
        for module in self._watched:
            _take_away(module)

    def call(self, module: torch.nn.Module, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return the result of the module for these arguments."""
        if not self._tracker.is_alone_at_work():
            return run(*args, **kwargs)
        if self._recording is not None and torch.is_grad_enabled():  # two calls before one backward
            self._tries[self._recording.key] = MOST_TRIES
            self.forget()
        call, tensors = _call(module, args, kwargs), _tensors(args, kwargs)
        key = call, *(digest(tensors[place]) for place in sorted(self._deciding.get(call, ())))
        tried_enough = key not in self._alike and self._tries.get(key, 0) >= MOST_TRIES
        is_first = key not in self._alike and key not in self._seen  # most are called once a step: they cost nothing
        self._seen.add(key)
        if call is None or is_first or tried_enough or self._recording is not None:
            return run(*args, **kwargs)
        if key in self._alike:
            self.played += 1
            return _played(self._tracker, self._tapes[key], module, tensors)
        self._tries[key] = self._tries.get(key, 0) + 1
        self._recording = _Recording(self._tracker, key, tensors)
        try:
            out = self._recording.forward(module, run, args, kwargs)
        except BaseException:
            self.forget()
            raise
        if not torch.is_grad_enabled():
            self._keep()
        return out

    def end_backward(self) -> None:
        """A backward pass is over, with no other one around it."""
        if self._recording is not None:
            self._keep()

    def _keep(self) -> None:
        assert self._recording is not None
        key, tape, sources = self._recording.key, self._recording.tape(), self._recording.sources
        self.forget()
        if tape is None:
            return
        deciding = self._deciding.setdefault(key[0], set())
        deciding |= sources.deciding
        key = key[0], *sources.digests(sorted(deciding))
        self._seen.add(key)
        if (before := self._tapes.pop(key, None)) is not None and tape.is_like(before):
            self._alike.add(key)
        self._tapes[key] = tape
        if len(self._tapes) > MOST_TAPES:
            oldest = next(iter(self._tapes))
            del self._tapes[oldest]
            self._alike.discard(oldest)

    def end_step(self) -> None:
        """The step is over."""
        self._seen.clear()
        self.forget()

    def forget(self) -> None:
        """Stop recording, if a call is being recorded."""
        if self._recording is not None:
            self._recording.stop()
            self._recording = None


class _Forward:
    """The callable in the place of a module's forward. It does not keep the module alive, which may be deleted."""

    def __init__(self, module: torch.nn.Module, own: MethodType | None):
        self._module = weakref.ref(module)
        if own is not None:
            self.__wrapped__ = own
        self.__signature__ = inspect.signature(module.forward)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self._module()
        assert module is not None
        run = vars(module).get(_FORWARD) or MethodType(type(module).forward, module)
        return current().repeats.call(module, run, args, kwargs) if is_predicting() else run(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Forward":
        module = self._module()
        assert module is not None
        return _Forward(memo.get(id(module), module), None)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._module(), "forward")


class _Recording:
    """A call and its backward, written down while they run."""

    def __init__(self, tracker: VirtualTracker, key: Any, arguments: list[torch.Tensor]):
        self.key = key
        self.sources = Sources(arguments)
        self._tracker = tracker
        self._allocator: Any = tracker.memory.blocks
        self._is_alike = True
        self._hooks: list[Any] = []
        self._result = io.BytesIO()
        self._passes: list[list[Moment]] = []
        self._flops: list[int] = []
        self._arguments = [tracker.record_of(tensor) for tensor in arguments]  # in backward also the gradient
        self._between: list[Moment] = []
        self._blocks: dict[int, int] = {}  # numbers of blocks in use that are no storage's, by id
        self._taken = 0

    def forward(self, module: torch.nn.Module, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        for name in ("allocate", "release", "empty_cache"):
            setattr(self._allocator, name, getattr(self, f"_{name}"))
        prediction, state = current(), random.getstate()
        numbers, prediction.sources = prediction.numbers, self.sources
        self._start()
        out = run(*args, **kwargs)
        self._finish()
        prediction.sources = None
        self._is_alike &= (numbers, state) == (prediction.numbers, random.getstate())
        self._tracker.moments = self._between
        self._storages = {record: number for number, record in enumerate(self._born_in(self._passes[0]))}
        self._casts = [self._tracker.record_of(cast) for cast in autocast.casts()]
        kept = {self._tracker.record_of(tensor) for tensor in _kept_by(module)}
        result = _Pickler(self._result)
        try:
            result.dump(out)
        except Exception:  # as of a class that is defined in a function
            self._is_alike = False
        self._outputs = [output for tensor in result.tensors if (output := self._described(tensor, kept))]
        return out

    def tape(self) -> Tape | None:
        """Return what was written down; None where it cannot be played."""
        if not torch.is_grad_enabled():
            self._passes.append([])
            self._flops.append(0)
        elif len(self._passes) == 2:
            self._finish()
            self._is_alike &= self._numbers == current().numbers
        else:
            return None  # backward was another one's
        for record in self._born_in(self._passes[1]):
            self._storages.setdefault(record, len(self._storages))
        try:
            passes = [tuple(map(self._numbered, moments)) for moments in self._passes]
        except KeyError:  # a storage of somebody else
            return None
        outputs = {output.storage for output in self._outputs}
        freed = {moment[1] for moment in (*passes[0], *passes[1]) if moment[0] is FREED}
        between = [moment[1] for moment in self._between if moment[0] is FREED and moment[1] in self._storages]
        waiting = between if torch.is_grad_enabled() else self._casts  # for the end of autocast
        casts = [self._storages[r] for r in waiting if r in self._casts and r in self._storages]
        dropped = {self._storages[record] for record in between}
        over = {*freed, *dropped, *casts, *outputs} == {*range(len(self._storages))} and not self._blocks
        if not self._is_alike or not over or not dropped <= {*casts, *outputs}:
            return None
        given = tuple(replace(output, kept=output.storage in freed) for output in self._outputs)
        born = (self._born(record, number in freed) for record, number in self._storages.items())
        flops = self._flops[0], self._flops[1]
        return Tape(passes[0], passes[1], flops, tuple(born), given, self._result.getvalue(), tuple(casts))

    def stop(self) -> None:
        """Write nothing more down."""
        self._tracker.moments = current().sources = None
        for name in ("allocate", "release", "empty_cache"):
            vars(self._allocator).pop(name, None)
        for hook in self._hooks:
            hook.remove()

    def _start(self) -> None:
        self._passes.append([])
        self._tracker.moments = self._passes[-1]
        self._flops.append(self._tracker.flops)

    def _finish(self) -> None:
        self._flops[-1] = self._tracker.flops - self._flops[-1]

    def _begin_backward(self, gradient: torch.Tensor) -> None:
        if len(self._passes) < 2:  # else of an output that was used for another one
            self._arguments.append(self._tracker.record_of(gradient))
            self._numbers = current().numbers
            self._start()

    def _born_in(self, moments: Iterable[Moment]) -> Iterator[Record]:
        return (moment[1] for moment in moments if moment[0] is BORN)

    def _numbered(self, moment: Moment) -> Moment:
        if moment[0] not in (BORN, FREED):
            return moment
        kind, record, *module = moment
        if kind is FREED and record not in self._storages:
            return LEAVE, {argument: place for place, argument in enumerate(self._arguments)}[record], *module
        return kind, self._storages[record], *module

    def _described(self, tensor: torch.Tensor, kept: set[Record | None]) -> Output | None:
        record = self._tracker.record_of(tensor) if _is_plain_tensor(tensor) else None
        is_known = not _is_unknown(tensor)
        if record is None or record not in self._storages or record in kept or (is_known and not self._made(tensor)):
            self._is_alike = False
            return None
        if tensor.requires_grad:
            self._hooks.append(tensor.register_hook(self._begin_backward))
        form = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
        with disable_modes():
            numbers = tuple(values.numbers(tensor, asked=False).flatten().tolist()) if is_known else None
        return Output(self._storages[record], False, *form, tensor.dtype, tensor.requires_grad, numbers)

    def _made(self, tensor: torch.Tensor) -> bool:
        """Return True if the numbers of a tensor are few, known for certain, and made in the call."""
        return values.is_known(tensor) and tensor.numel() <= values.FEW and self.sources.read(tensor)

    def _born(self, record: Record, is_over: bool) -> Born:
        category = label(record, self._tracker.marks) if is_over else None
        form = tuple(record.shape), record.dtype, record.phase, record.recomputed
        return Born(record.nbytes, *form, category)

    # What kernels take beside storages

    def _allocate(self, asked: int) -> Block | None:
        block: Block | None = type(self._allocator).allocate(self._allocator, asked)
        if block is not None and self._tracker.moments is not self._between:
            self._blocks[id(block)] = self._taken
            self._taken += 1
            self._passes[-1].append((TAKE, asked))
            self._is_alike &= self._allocator.stream == 0
        return block

    def _release(self, block: Block) -> None:
        if self._tracker.moments is not self._between:
            number = self._blocks.pop(id(block), None)
            self._is_alike &= number is not None
            self._passes[-1].append((GIVE, number))
        type(self._allocator).release(self._allocator, block)

    def _empty_cache(self) -> int:
        self._is_alike = False
        count: int = type(self._allocator).empty_cache(self._allocator)
        return count


class _Play:
    """A call that is played, until its backward is."""

    def __init__(self, tracker: VirtualTracker, tape: Tape, arguments: list[torch.Tensor]):
        self.tape = tape
        self._tracker = tracker
        left = {moment[1] for moment in tape.backward if moment[0] is LEAVE}
        self._arguments = {i: tensor.untyped_storage() for i, tensor in enumerate(arguments) if i in left}
        self._gradient = len(arguments)  # its number, behind those of the arguments
        self._records: dict[int, Record] = {}
        self._blocks: list[Block] = []
        self._outputs: dict[int, torch.UntypedStorage | None] = {output.storage: None for output in tape.outputs}

    def __del__(self) -> None:  # of a graph that nobody went back through
        for number, record in self._records.items():
            if number not in self._outputs and number not in self.tape.casts:
                self._tracker.end_storage(record)

    def outputs(self) -> list[torch.Tensor]:
        """Play forward; the tensors that it gives."""
        self._tracker.begin_phase(Phase.FORWARD, starts_graph=bool(self.tape.backward))
        module = self._tracker.module_at_work
        self._run(self.tape.forward, self.tape.flops[0])
        self._tracker.module_at_work = module
        if self.tape.casts:
            autocast.keep(_Casts(self._tracker, [self._records[number] for number in self.tape.casts]))
        return [self._tensor(output) for output in self.tape.outputs]

    def end(self, gradients: Iterable[torch.Tensor | None]) -> None:
        """Play backward."""
        self._tracker.begin_phase(Phase.BACKWARD)
        gradient = next(self._tracker.record_of(one) for one in gradients if one is not None)
        self._run(self.tape.backward, self.tape.flops[1], gradient)

    def _tensor(self, output: Output) -> torch.Tensor:
        record, storage = self._records[output.storage], self._outputs[output.storage]
        with disable_modes():
            if storage is None:
                whole = torch.empty(record.nbytes, dtype=torch.uint8, device="meta").untyped_storage()
            else:
                whole = storage
            tensor = torch.empty(0, dtype=output.dtype, device="meta")
            tensor.set_(whole, output.offset, output.shape, output.stride)
            fake = make_fake(self._tracker.mode, tensor, CARD)
            if output.numbers is not None:
                values.tell(fake, torch.tensor(output.numbers, dtype=output.dtype).view(output.shape))
        if storage is None:
            self._tracker.adopt(fake.untyped_storage(), record)
        self._outputs[output.storage] = fake.untyped_storage() if output.kept else None
        return fake

    def _run(self, moments: tuple[Moment, ...], flops: int, gradient: Record | None = None) -> None:
        tracker, first = self._tracker, 0
        for kind, *about in moments:
            if kind is BEGIN:
                tracker.begin_operator(*about)
            elif kind is WORK:
                tracker.clock.do(*about)
            elif kind is RESULTS:
                first = len(tracker.events)
            elif kind is EXPLAIN:
                tracker.count_workspace(first)
            elif kind is BORN:
                self._records[about[0]] = tracker.begin_storage(self.tape.storages[about[0]])
            elif kind is FREED:
                self._free(*about)
            elif kind is TAKE:
                self._blocks.append(tracker.take(about[0]))
            elif kind is GIVE:
                tracker.memory.blocks.release(self._blocks[about[0]])
            else:
                self._leave(about[0], about[1], gradient)
        tracker.flops += flops

    def _leave(self, number: int, module: str, gradient: Record | None) -> None:
        self._tracker.module_at_work = module
        if number != self._gradient:
            self._arguments.pop(number)
        elif gradient is not None:
            self._tracker.end_storage(gradient)  # before the engine lets it go

    def _free(self, number: int, module: str) -> None:
        self._tracker.module_at_work = module
        if number in self._outputs:
            self._outputs[number] = None  # it is freed now if nobody else has it
        else:
            self._tracker.end_storage(self._records.pop(number))


class _Casts:
    """Cast weights that no node has saved: they live as long as autocast's cache."""

    def __init__(self, tracker: VirtualTracker, records: list[Record]):
        self._tracker = tracker
        self._records = records

    def __del__(self) -> None:
        for record in self._records:
            self._tracker.end_storage(record)


class _Played(torch.autograd.Function):
    """The node of a call that is played. A parameter of the model hangs it into the graph, and gets no gradient."""

    @staticmethod
    def forward(ctx: Any, play: _Play, anchor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.play = play
        ctx.set_materialize_grads(False)
        tensors = tuple(play.outputs())
        pairs = zip(tensors, play.tape.outputs, strict=True)
        ctx.mark_non_differentiable(*(tensor for tensor, output in pairs if not output.is_differentiable))
        return tensors

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[None, None]:
        ctx.play.end(gradients)
        return None, None


def _played(tracker: VirtualTracker, tape: Tape, module: torch.nn.Module, arguments: list[torch.Tensor]) -> Any:
    play = _Play(tracker, tape, arguments)
    if torch.is_grad_enabled():
        anchor = next(parameter for parameter in module.parameters() if parameter.requires_grad)
        outputs = _Played.apply(play, anchor)  # type: ignore[no-untyped-call]
    else:
        outputs = play.outputs()
    return _Unpickler(io.BytesIO(tape.result), outputs).load()


def _take_away(module: torch.nn.Module) -> None:
    """Put a module's own forward back, unless somebody has put another one there since."""
    if isinstance(vars(module).get("forward"), _Forward):
        del vars(module)["forward"]
        if _FORWARD in vars(module):
            vars(module)["forward"] = vars(module).pop(_FORWARD)


class _Pickler(pickle.Pickler):
    """Pickles what a call gives without its ``tensors``, each of which is there once."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file)
        self.tensors: list[torch.Tensor] = []
        self._places: dict[int, int] = {}

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, torch.Tensor):
            return None
        if id(value) not in self._places:
            self._places[id(value)] = len(self.tensors)
            self.tensors.append(value)
        return self._places[id(value)]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: Sequence[torch.Tensor]):
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, place: Any) -> torch.Tensor:
        return self._tensors[place]


def _call(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    """All that a call depends on, as far as it can be seen; None for a call that is not to be played."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return None
    leaves, structure = tree_flatten((args, kwargs))
    given = tuple(_form(leaf) for leaf in leaves)
    parameters = list(module.parameters())
    if None in given or not all(p.is_leaf for p in parameters):  # torch.func puts others there
        return None
    mode = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    if mode[0] and (any(map(_has_hooks, parameters)) or not any(p.requires_grad for p in parameters)):
        return None
    cast = torch.is_autocast_enabled(SLOT_NAME), torch.get_autocast_dtype(SLOT_NAME), bool(autocast.casts())
    state = tuple((id(p), p.requires_grad, p.grad is None) for p in parameters)
    training = tuple(part.training for part in module.modules())
    return weakref.ref(module), str(structure), given, mode, cast, state, training


def _form(leaf: Any) -> Any:
    if isinstance(leaf, _PLAIN):
        return (leaf,)
    if not _is_plain_tensor(leaf) or (leaf.requires_grad and torch.is_grad_enabled()):
        return None
    return tuple(leaf.shape), leaf.stride(), leaf.storage_offset(), leaf.dtype


def _has_hooks(parameter: torch.nn.Parameter) -> bool:
    """Return True if somebody, other than the tracker, is told of a parameter's gradient."""
    after = getattr(parameter, "_post_accumulate_grad_hooks", None) or {}
    told = [getattr(hook, "__func__", None) for hook in after.values()]
    return bool(parameter._backward_hooks) or told != [Residents.accumulated] * len(told)


def _tensors(args: Any, kwargs: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]


def _kept_by(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Tensors that a model has beside its parameters and buffers."""
    for part in module.modules():
        yield from tensors_in([value for name, value in vars(part).items() if not name.startswith("_")])


def _is_plain_tensor(value: Any) -> bool:
    return type(value) is FakeTensor and value.fake_device == CARD and value.layout is torch.strided


def _is_unknown(tensor: torch.Tensor) -> bool:
    """Return True if nothing is known of a tensor's numbers, or no more than of any float: that it may be 1."""
    value = values.value_of(tensor)
    return value is None or (tensor.dtype.is_floating_point and not value.origin.certain)
