"""The Python that Inductor has written for a graph, run on the virtual card."""

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any

import torch

from memlab.vgpu.compiled.origins import TABLE, Origin
from memlab.vgpu.names import CARD

Launch = Callable[[tuple[Any, ...]], None]
WorkFor = Callable[[Origin | None], None]


def played(text: str, constants: Mapping[str, Any], launch: Launch, work_for: WorkFor) -> ModuleType:
    """The module that Inductor has written, with the card's allocations and without kernels.

    Args:
        text: of the module. Its ``call`` takes a list of tensors and returns those that the graph gives.
        constants: names that the module finds beside its own.
        launch: is called with the arguments of each kernel in the place of the kernel.
        work_for: is called with the origin of each buffer before it is made, and with None at the end of a call.
    """
    module = ModuleType(_NAME)
    module.__file__ = _NAME  # the compiler names it in its logs
    vars(module).update(constants, async_compile=_Kernels(launch), **_GIVEN)
    exec(_code(text), vars(module))
    known = {name: Origin(*origin) for name, origin in vars(module)[TABLE].items()} | {None: None}

    def tell(name: str | None) -> None:
        if name in known:  # and no name of the wrapper's own
            work_for(known[name])

    vars(module)[_TELL] = tell
    return module


_NAME = "memlab_compiled"
_TELL = "memlab_work_for"


@lru_cache(maxsize=64)  # graphs; that of the next prediction is mostly one of the last ones'
def _code(text: str) -> CodeType:
    """The code of such a module: a function of the text alone, in which one prediction is like the next."""
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if not _is_replaced(node)]
    _Telling().visit(tree)
    return compile(tree, _NAME, "exec")


class _Telling(ast.NodeTransformer):
    """Has the functions that work tell of each name before it is given a value, and when they end.

    These are ``call`` and, where the graph is cut into parts that a CUDA graph may be made of, ``partition_0``, ...
    """

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if node.name == "call" or node.name.startswith("partition_"):
            whole = ast.Try(body=self._told(node.body), handlers=[], orelse=[], finalbody=[_tell(None, node)])
            node.body = [ast.copy_location(whole, node)]
        return node

    def _told(self, body: list[ast.stmt]) -> list[ast.stmt]:
        told: list[ast.stmt] = []
        for statement in body:
            if isinstance(statement, ast.With | ast.If | ast.For):
                statement.body = self._told(statement.body)
            told += [*(_tell(name, statement) for name in _made(statement)), statement]
        return told


def _tell(name: str | None, at: ast.stmt) -> ast.stmt:
    call = ast.Expr(ast.Call(ast.Name(_TELL, ast.Load()), [ast.Constant(name)], []))
    return ast.fix_missing_locations(ast.copy_location(call, at))


def _made(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement gives a value, or whose tensors it fills as an operator's ``out``."""
    if isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        outs = (keyword.value for keyword in statement.value.keywords if keyword.arg == "out")
        yield from (out.id for out in outs if isinstance(out, ast.Name))


def _is_replaced(node: ast.stmt) -> bool:
    """Return whether a statement names what is given already, needs Triton, or runs the module as a benchmark."""
    if isinstance(node, ast.Assign):
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        return "async_compile" in names or not _GIVEN.keys().isdisjoint(names)
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] == "triton" for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return "triton" in (node.module or "")
    return isinstance(node, ast.If)


def _empty_strided(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=CARD)


def _reinterpret(tensor: torch.Tensor, size: Any, stride: Any, offset: int = 0) -> torch.Tensor:
    return torch.as_strided(tensor, size, stride, tensor.storage_offset() + offset)


def _nothing(*args: Any) -> None:
    pass


# In the place of what the module would have from PyTorch.
_GIVEN = {
    "empty_strided_cuda": _empty_strided,
    "reinterpret_tensor": _reinterpret,
    # They look at addresses and sizes of tensors in C++, to find defects of the compiler's own.
    "assert_size_stride": _nothing,
    "assert_alignment": _nothing,
}


class _Kernel:
    """A kernel of the card, compiled: it allocates nothing."""

    def __init__(self, launch: Launch):
        self._launch = launch

    def run(self, *args: Any, **kwargs: Any) -> None:
        self._launch(args)


class _Kernels:
    """In the place of the compiler of a module's kernels (``torch._inductor.async_compile.AsyncCompile``)."""

    def __init__(self, launch: Launch):
        self._launch = launch

    def triton(self, *args: Any, **kwargs: Any) -> _Kernel:
        return _Kernel(self._launch)

    multi_kernel = triton

    def wait(self, scope: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(f"it computes on the host, too, whose kernels a prediction does not run ({name}).")
