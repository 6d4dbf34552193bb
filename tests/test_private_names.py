"""PyTorch's private names come through one file of the virtual GPU, one for its compiler, and one of the tracker."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from memlab.vgpu.versions import TORCH

PACKAGE = Path(__file__).parents[1] / "memlab"
HOMES = ("vgpu/internals.py", "vgpu/compiled/internals.py", "tracking/internals.py")
MODULES = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def private(dotted: str) -> bool:
    """Return True if a name of PyTorch has a part that begins with one underscore."""
    first, *rest = dotted.split(".")
    return first == "torch" and any(part.startswith("_") and not part.startswith("__") for part in rest)


def names_of(tree: ast.AST) -> dict[str, str]:
    """Return the full names behind the names that a module imports: ``torch.nn`` for ``nn``."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.partition(".")[0]: alias.asname and alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return {name: stands_for or name for name, stands_for in names.items()}


def assigned(tree: ast.AST, names: dict[str, str]) -> dict[str, str]:
    """The same for plain assignments: ``aten = torch.ops.aten``, ``a, b = torch.cuda, torch.amp``."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = [*zip(target.elts, node.value.elts, strict=False)]
                for left, right in pairs:
                    if isinstance(left, ast.Name) and (dotted := dotted_name(right, names)).startswith("torch"):
                        found[left.id] = dotted
    return found


def dotted_name(node: ast.AST, names: dict[str, str]) -> str:
    """``torch.a.b`` of an attribute of an attribute of a name, "" of something else."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return ""
    return ".".join([names[node.id], *reversed(parts)])


def offences(source: str) -> list[str]:
    """The private names of PyTorch in a module, by import, attribute or text given to ``getattr``."""
    tree = ast.parse(source)
    names = names_of(tree)
    names |= assigned(tree, names)
    found = {stands_for for stands_for in names.values() if private(stands_for)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if private(alias.name)}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {dotted for a in node.names if private(dotted := f"{node.module}.{a.name}")}
        elif isinstance(node, ast.Attribute):
            found.add(dotted_name(node, names))
        elif isinstance(node, ast.Call):
            found.add(text_of_getattr(node, names))
    found = {dotted for dotted in found if private(dotted)}
    # torch.a._b.c and torch.a._b are one offence; operators are public by their names, as aten._to_copy is.
    outermost = {dotted for dotted in found if not any(dotted.startswith(f"{other}.") for other in found)}
    return sorted(dotted for dotted in outermost if not dotted.startswith("torch.ops."))


def text_of_getattr(call: ast.Call, names: dict[str, str]) -> str:
    """``torch.a._b`` of ``getattr(torch.a, "_b")``."""
    if not isinstance(call.func, ast.Name) or call.func.id not in ("getattr", "hasattr", "setattr"):
        return ""
    owner, name = call.args[0], call.args[1]
    dotted = dotted_name(owner, names)
    return f"{dotted}.{name.value}" if dotted and isinstance(name, ast.Constant) else ""


@pytest.mark.parametrize("name", [name for name in MODULES if name not in HOMES])
def test_private_names_stay_at_home(name):
    assert offences(MODULES[name]) == []


@pytest.mark.parametrize("name", HOMES)
def test_they_are_found_at_home(name):
    assert len(offences(MODULES[name])) >= 3


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch\ntorch._C._swap(1)", ["torch._C"]),
        ("import torch\ntorch.optim.optimizer._types", ["torch.optim.optimizer._types"]),
        ("import torch\ntorch.a._b.c.d()", ["torch.a._b"]),
        ("import torch as t\nt._x", ["torch._x"]),
        ("from torch import nn\nnn.Module._apply", ["torch.nn.Module._apply"]),
        ("from torch import _C", ["torch._C"]),
        ("from torch._C import name", ["torch._C.name"]),
        ("from torch.a import _b", ["torch.a._b"]),
        ("from torch.a import _b as c", ["torch.a._b"]),
        ("def f():\n    from torch.utils._pytree import tree_map", ["torch.utils._pytree.tree_map"]),
        ("import torch._x", ["torch._x"]),
        ("import torch._x as x", ["torch._x"]),
        ("import torch\ncuda = torch.cuda\ncuda._lazy_init()", ["torch.cuda._lazy_init"]),
        ("import torch\na, b = torch.cuda, torch.amp\nb._x", ["torch.amp._x"]),
        ('import torch\ngetattr(torch._C, "x", None)', ["torch._C"]),
        ('import torch\ngetattr(torch.cuda, "_x", None)', ["torch.cuda._x"]),
    ],
)
def test_the_check_finds_an_offence(source, found):
    assert offences(source) == found


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.ops.aten._to_copy.default",
        "import torch\naten = torch.ops.aten\naten._to_copy",
        "import torch\ntorch.__future__.set_swap_module_params_on_conversion\ntorch.__version__",
        "from torch import nn\nnn.Module().apply",
        "self._torch._x",
        "import numpy\nnumpy._x",
        "from memlab.vgpu import _own",
    ],
)
def test_the_check_allows_what_is_public(source):
    assert offences(source) == []


# A PyTorch that lacks a name

GUARDED = [
    # The module, its attribute. torch.Tensor._make_subclass is the one more: it cannot be taken away.
    ("torch._C", "DispatchKeySet"),
    ("torch._C", "_ExcludeDispatchKeyGuard"),
    ("torch._C", "_get_privateuse1_backend_name"),
    ("torch._C", "_set_dispatch_mode"),
    ("torch._C", "_only_lift_cpu_tensors"),
    ("torch._C", "_set_only_lift_cpu_tensors"),
    ("torch._C", "_set_warn_deprecated_on_mutable_data_ptr"),
    ("torch._C", "_swap_tensor_impl"),
    ("torch._C", "_TorchDispatchModeKey"),
    ("torch._C", "_unset_dispatch_mode"),
    ("torch._C._acc", "PrivateUse1Hooks"),
    ("torch._C._acc", "register_python_privateuseone_hook"),
    ("torch._C._functorch", "get_unwrapped"),
    ("torch._C._functorch", "is_functorch_wrapped_tensor"),
    ("torch._subclasses.fake_tensor", "DataDependentOutputException"),
    ("torch._subclasses.fake_tensor", "DynamicOutputShapeException"),
    ("torch._subclasses.fake_tensor", "FakeTensor"),
    ("torch._subclasses.fake_tensor", "FakeTensorMode"),
    ("torch._subclasses.fake_tensor", "UnsupportedFakeTensorException"),
    ("torch._subclasses.fake_tensor", "UnsupportedOperatorException"),
    ("torch._subclasses.fake_tensor", "unset_fake_temporarily"),
    ("torch.utils._device", "_device_constructors"),
    ("torch.optim.optimizer", "_foreach_supported_types"),
    ("torch.utils._foreach_utils", "_foreach_supported_types"),
    ("torch.utils._python_dispatch", "_disable_current_modes"),
    ("torch.utils._pytree", "tree_leaves"),
    ("torch.utils._pytree", "tree_flatten"),
    ("torch.utils._pytree", "tree_map"),
    ("torch.utils._pytree", "tree_unflatten"),
    ("torch", "_register_device_module"),
    ("torch.utils.data.dataloader", "_BaseDataLoaderIter"),
]

# All in one process, which forks for each: importing PyTorch takes seconds.
LACKING = """
import importlib, os, sys
import torch, torch._subclasses.fake_tensor, torch.utils.data.dataloader, torch.utils._foreach_utils, torch.optim
import memlab.run

def train(device):
    yield torch.ones(3, device=device).sum()

def tried(owner, name):
    found = importlib.import_module(owner)
    if not hasattr(found, name):
        return "is not there"
    delattr(found, name)
    if any(module.startswith("memlab.vgpu.internals") for module in sys.modules):
        return "internals are loaded already"
    for _ in range(2):
        try:
            memlab.predict(train)
            return "predicted"
        except memlab.errors.NoVirtualGpu as error:
            said = str(error)
    if memlab.measure(train, device="cpu").losses[0] != 3:
        return "measured something else"
    return said

for line in sys.stdin.read().split("\\n"):
    if os.fork() == 0:
        try:
            print(line, tried(*line.split()), sep="\\t", flush=True)
        except BaseException as error:
            print(line, f"{type(error).__name__}: {error}".replace("\\n", " "), sep="\\t", flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def said():
    """Return the message of a prediction on a PyTorch that lacks each name."""
    given = "\n".join(" ".join(pair) for pair in GUARDED)
    run = subprocess.run([sys.executable, "-c", LACKING], input=given, capture_output=True, text=True, check=True)
    lines = [line.split("\t") for line in run.stdout.splitlines()]
    return {tuple(name.split()): words for name, words in lines}


@pytest.mark.parametrize("name", GUARDED, ids=lambda pair: pair[1])
def test_a_missing_name_is_said_in_words(said, name):
    if name[1] == "DispatchKeySet" and TORCH >= (2, 15):
        pytest.skip("PyTorch itself cannot do without it any more")
    words = said[name]
    assert words.startswith("torch ")
    assert "lacks what the virtual GPU needs" in words
    assert name[1] in words
    assert words.endswith("measure still works.")


def test_each_name_that_is_imported_is_tried():
    tree = ast.parse(inspect.cleandoc(MODULES["vgpu/internals.py"]))
    guarded = next(node for node in ast.walk(tree) if isinstance(node, ast.Try))
    imported = {
        (node.module, alias.name)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name not in ("DispatchKey", "optimizer", "_foreach_utils")  # other imports of PyTorch fail first
    }
    assert imported <= set(GUARDED)


DOCTOR = """
import runpy, sys, torch
{lacking}
sys.argv = ["memlab", "doctor"]
runpy.run_module("memlab", run_name="__main__")
"""


def doctors_report(lacking):
    code = DOCTOR.format(lacking=lacking)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_doctor_says_it_in_words():
    report = doctors_report("del torch._C._swap_tensor_impl")
    (line,) = (line for line in report.splitlines() if line.startswith("- virtual GPU: "))
    assert "lacks what the virtual GPU needs" in line
    assert "_swap_tensor_impl" in line


def test_doctor_says_that_nothing_is_missing():
    assert "yes: memlab.predict works" in doctors_report("")
