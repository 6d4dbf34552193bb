"""Changes of a script that need no option of it: what one line more in its source would do, done while it runs.

They are tried in predictions (:mod:`memlab.script.plan`). What a script does already saves nothing.
"""

import functools
import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from memlab.patching import Change, Patches
from memlab.script.plan import ACCUMULATE, NEEDS, NO_GRAD
from memlab.vgpu.refusals import readers_call, readers_frame, where

BUDGET = 0.5  # of the activations that a compiled block would keep
FUSED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad)


class Edits:
    """A context in which changes are made to the script that runs.

    Args:
        names: of ``plan.EDITS``, and ``plan.ACCUMULATE`` and ``plan.NO_GRAD``.

    Attributes:
        lines: what was changed, as lines for the source; filled while the script runs.
    """

    def __init__(self, names: Sequence[str]):
        self._names = list(names)
        self.lines: list[str] = []
        self._inside: dict[int, ExitStack] = {}  # contexts of the models that are at work
        self._known: set[int] = set()  # models that were seen, and their parts
        self._waits = False  # for the second batch, with the gradients of the first
        self._built_by = ""  # the line that makes the first optimizer: the model is there, and no step has run
        self._variables: dict[int, str] = {}  # what modules are called there, by id

    @contextmanager
    def applied(self) -> Iterator[None]:
        """``with`` this, the edits are in force."""
        if not self._names:
            yield
            return
        hooks = nn.modules.module
        with ExitStack() as undo:
            undo.callback(hooks.register_module_forward_pre_hook(self._enter).remove)
            undo.callback(hooks.register_module_forward_hook(self._leave, always_call=True).remove)
            undo.enter_context(Patches(self._changes))
            yield

    def leave_to_trainer(self, arguments: Any, call: str) -> None:
        """Let a Trainer of transformers make what its new ``TrainingArguments`` have a field for, by that field.

        ``call`` is the line and the name of what the user's code calls; ``""`` where a parser of arguments does.
        """
        fields: dict[str, tuple[str, Any, Any]] = {
            "checkpointing": ("gradient_checkpointing", True, arguments.gradient_checkpointing),
            "autocast": ("bf16" if _half()[0] is torch.bfloat16 else "fp16", True, arguments.bf16 or arguments.fp16),
            "adam8bit": ("optim", "adamw_bnb_8bit", "8bit" in arguments.optim),
        }
        for name in fields.keys() & self._names:
            self._names.remove(name)
            field, value, is_there = fields[name]
            if not is_there:
                setattr(arguments, field, value)
                self._tell(f"{call}(..., {field}={value!r})" if call else f"--{field} {value}")

    def _changes(self) -> Iterator[Change]:
        if "fused" in self._names:
            for optimizer in FUSED:
                yield optimizer, "__init__", self._fuse(optimizer.__init__)
        if "adam8bit" in self._names:
            optim = importlib.import_module(f"{NEEDS['adam8bit']}.optim")
            for name in ("Adam", "AdamW"):
                yield torch.optim, name, self._replaced(name, getattr(optim, f"{name}8bit"))
        init = torch.optim.Optimizer.__init__
        if ACCUMULATE in self._names:
            init = self._step_later(init)
            yield nn.Module, "zero_grad", self._unless_waiting(nn.Module.zero_grad)
        yield torch.optim.Optimizer, "__init__", self._noticed(init)

    def _tell(self, line: str) -> None:
        if line not in self.lines:
            self.lines.append(line)

    def _fuse(self, init: Callable[..., None]) -> Callable[..., None]:
        def initialised(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            if not kwargs.get("foreach") and not kwargs.get("fused"):
                kwargs["fused"] = True
                self._tell(f"{where()}: {type(optimizer).__name__}(..., fused=True)")
            init(optimizer, *args, **kwargs)

        return initialised

    def _noticed(self, init: Callable[..., None]) -> Callable[..., None]:
        def initialised(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            frame = readers_frame()
            if not self._built_by and frame is not None:
                self._built_by, self._variables = where(frame=frame), dict(_modules_in(frame))
            init(optimizer, *args, **kwargs)

        return initialised

    @property
    def _once(self) -> str:
        """The place of a line that is to run once: not where the model is called, for that is in every step."""
        return f"before {self._built_by or where()}"

    def _name_of(self, model: nn.Module) -> str:
        return self._variables.get(id(model), "model")

    def _step_later(self, init: Callable[..., None]) -> Callable[..., None]:
        """An optimizer that steps each second time; PyTorch's schedulers and scalers call what it has itself."""

        def initialised(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            init(optimizer, *args, **kwargs)
            count = itertools.count(1)

            def step_later(*args: Any, **kwargs: Any) -> Any:
                self._waits = next(count) % 2 == 1
                return None if self._waits else type(optimizer).step(optimizer, *args, **kwargs)

            optimizer.step = step_later
            optimizer.zero_grad = self._unless_waiting(optimizer.zero_grad)

        return initialised

    def _unless_waiting(self, zero_grad: Callable[..., None]) -> Callable[..., None]:
        return functools.wraps(zero_grad)(lambda *args, **kwargs: None if self._waits else zero_grad(*args, **kwargs))

    def _replaced(self, name: str, optimizer: type) -> Callable[..., Any]:
        def made(*args: Any, fused: object = None, foreach: object = None, **kwargs: Any) -> Any:
            self._tell(f"{where()}: bitsandbytes.optim.{name}8bit in the place of {name}")
            return optimizer(*args, **kwargs)

        return made

    def _enter(self, module: nn.Module, args: Any) -> None:
        """A module is called: the first time that one is which no other one has called, it is the model."""
        if (
            id(module) not in self._known
            and torch.is_grad_enabled()
            and any(p.requires_grad for p in module.parameters())
        ):
            self._known |= {id(part) for part in module.modules()}
            self._inside[id(module)] = ExitStack()
            if "checkpointing" in self._names:
                self._checkpoint(module)
            if "compile" in self._names:
                self._compile(module)
        if id(module) in self._inside:
            for context in self._contexts(module):
                self._inside[id(module)].enter_context(context)

    def _leave(self, module: nn.Module, args: Any, out: Any) -> Any:
        if id(module) in self._inside:
            self._inside[id(module)].close()
            if "autocast" in self._names:
                return self._for_the_loss(module, out)
        return None  # the result as it is

    def _for_the_loss(self, module: nn.Module, out: Any) -> Any:
        """The result of autocast as float32, which a loss outside of autocast needs: in 16 bits its sum overflows."""
        is_half = isinstance(out, torch.Tensor) and out.dtype in (torch.float16, torch.bfloat16)
        model = self._name_of(module)
        dtype, scaled = _half()
        widened = f"; {model}.register_forward_hook(lambda *call: call[-1].float())" * is_half
        self._tell(
            f"{self._once}: {model}.forward = torch.autocast('cuda', dtype={dtype})({model}.forward){widened}{scaled}"
        )
        return out.float() if is_half else None

    def _contexts(self, module: nn.Module) -> Iterator[AbstractContextManager[Any]]:
        model = self._name_of(module)
        if NO_GRAD in self._names and not module.training:
            yield torch.no_grad()
        if "autocast" in self._names:
            yield torch.autocast("cuda", dtype=_half()[0])
        if "offload" in self._names:
            what = f"the call of {model}" if readers_call() else "this line"
            self._tell(f"{where()}: {what} within `with torch.autograd.graph.save_on_cpu(pin_memory=True):`")
            yield torch.autograd.graph.save_on_cpu(pin_memory=True)

    def _checkpoint(self, model: nn.Module) -> None:
        inner: Any = getattr(model, "module", model)
        for name in ("activation_checkpointing", "gradient_checkpointing"):  # transformers from 5.23 on, and before
            if hasattr(inner, f"{name}_enable"):
                getattr(inner, f"{name}_enable")(**{f"{name}_kwargs": {"use_reentrant": False}})
                call = f"{self._name_of(model)}.{name}_enable({name}_kwargs={{'use_reentrant': False}})"
                self._tell(f"{self._once}: {call}")
                return
        wrapped = "functools.partial(torch.utils.checkpoint.checkpoint, block.forward, use_reentrant=False)"
        imports = "import functools, torch.utils.checkpoint"
        for block in self._blocks(model, f"block.forward = {wrapped}  # {imports}"):
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)

    def _compile(self, model: nn.Module) -> None:
        from memlab.vgpu.compiled.internals import functorch_config  # which takes seconds to import

        functorch_config.activation_memory_budget = BUDGET
        budget = f"torch._functorch.config.activation_memory_budget = {BUDGET}"
        self._tell(f"{self._once}: import torch._functorch.config; {budget}")
        for block in self._blocks(model, "block.compile()"):
            block.compile()

    def _blocks(self, model: nn.Module, change: str) -> list[nn.Module]:
        """The blocks of the model, each of which is changed."""
        found = dict(_stacks(model))
        if found:
            stacks = ", ".join(f"*{self._name_of(model)}{_written(path)}" for path in found)
            self._tell(f"{self._once}: for block in [{stacks}]: {change}")
        return [block for stack in found.values() for block in stack]


def _half() -> tuple[torch.dtype, str]:
    """The dtype of autocast on the card, and what else it needs, as words behind the line."""
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16, ""
    return torch.float16, ", and the loss through a torch.amp.GradScaler"


def _modules_in(frame: FrameType) -> Iterator[tuple[int, str]]:
    """The modules that a frame's variables hold, by id, each with its name there; ``self.model`` too."""
    outer, inner = frame.f_globals, frame.f_locals
    own = getattr(inner.get("self"), "__dict__", {})
    parts = {**own, **own.get("_modules", {})}
    for name, value in [*outer.items(), *((f"self.{name}", value) for name, value in parts.items()), *inner.items()]:
        if isinstance(value, nn.Module):
            yield id(value), name


def _written(path: str) -> str:
    """The path of a part as Python has it: ``"1.blocks"`` is ``"[1].blocks"``; of the whole model, nothing."""
    return "".join(f"[{part}]" if part.isdecimal() else f".{part}" for part in path.split(".") if part)


def _stacks(model: nn.Module) -> Iterator[tuple[str, list[nn.Module]]]:
    """Paths of the model's stacks of blocks: lists with at least two modules of one class, which has parts."""
    inside: list[str] = []
    for path, part in model.named_modules():
        if isinstance(part, nn.ModuleList | nn.Sequential) and not path.startswith(tuple(inside)):
            blocks = [child for child in part if any(True for _ in child.children())]
            if len(blocks) > len({type(block) for block in blocks}) and any(True for _ in part.parameters()):
                inside.append(f"{path}.")
                yield path, list(part)
