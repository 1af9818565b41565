"""The compiled modules have no integer literals that Cython makes objects of.

A literal of more than 31 bits may be wider than a C `long` somewhere, so Cython keeps it as a Python object, and turns
what it is compared or added with into one each time. A constant of the module, with a type in the .pxd, is a C number.
"""

import ast
import runpy
from pathlib import Path
from typing import cast
from unittest import mock

import pytest

ROOT = Path(__file__).parents[2]
WIDE, VERY_WIDE = 1 << 31, 1 << 60
"""What is as wide as a C type of 64 bits is no object."""


def compiled_sources() -> list[Path]:
    """The files of the modules that setup.py compiles."""
    with mock.patch("setuptools.setup"), mock.patch("Cython.Build.cythonize", return_value=[]):
        names = cast("tuple[str, ...]", runpy.run_path(str(ROOT / "setup.py"))["COMPILED"])
    return [ROOT / "src" / f"{name.replace('.', '/')}.py" for name in names]


def wide_literals(source: str) -> list[int]:
    """The lines of literals in functions that are too wide, those that Cython folds from shifts too."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                value = _folded(node)
                if value is not None and WIDE <= abs(value) < VERY_WIDE:
                    found.append(cast("ast.expr", node).lineno)
    return found


def _folded(node: ast.AST) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift):
        left, right = _folded(node.left), _folded(node.right)
        return None if left is None or right is None else left << right
    return None


@pytest.mark.parametrize("source", compiled_sources(), ids=lambda path: path.stem)
def test_functions_have_no_wide_literals(source: Path) -> None:
    assert wide_literals(source.read_text()) == []


def test_the_search_finds_literals_and_shifts() -> None:
    source = "def f(x):\n    if x >= 0x80000000:\n        return x - (1 << 32)\n    return x << 32\n"

    assert wide_literals(source) == [2, 3]
