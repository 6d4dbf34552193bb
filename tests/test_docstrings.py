"""The beginnings of docstrings: statements, not paraphrases such as "What is left"."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = [file for folder in ("memlab", "tests", "notebooks") for file in sorted((ROOT / folder).rglob("*.py"))]
PARAPHRASE = re.compile(r"(What|Whether|How|Which|Where|That)\b")


def paraphrases(source: str) -> list[int]:
    """Return the line numbers of the docstrings that begin with a question word."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    return [node.body[0].lineno for node in nodes if PARAPHRASE.match(ast.get_docstring(node) or "")]


def test_docstrings_begin_with_a_statement():
    assert [f"{file.relative_to(ROOT)}:{n}" for file in FILES for n in paraphrases(file.read_text("utf-8"))] == []


def test_the_check_finds_a_paraphrase():
    assert paraphrases('def f():\n    """Whether it is so."""\n\n\nclass C:\n    """Whichever is first."""') == [2]
