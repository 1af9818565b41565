"""Error codes of other brokers: a newer release may answer with a code that this one does not know."""

import ast
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import ErrorCode, known_code

SOURCE = Path(__file__).parents[1] / "src"
CHECKED = {"errors.py", "failures.py"}
"""`known_code` itself, and the client's, which names the unknown code in its message."""


def test_a_code_of_a_newer_release_is_an_unknown_error() -> None:
    assert known_code(9_999) is known_code(-2) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert [known_code(each) for each in ErrorCode] == list(ErrorCode)


def _conversions(module: Path) -> Iterator[str]:
    """The places where a module calls `ErrorCode(…)`, which raises for an unknown code."""
    text = module.read_text()
    for node in ast.walk(ast.parse(text)) if "ErrorCode(" in text else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ErrorCode":
            yield f"{module.relative_to(SOURCE)}:{node.lineno}"


def test_the_codes_of_answers_are_read_with_known_code() -> None:
    modules = [each for each in SOURCE.rglob("*.py") if each.name not in CHECKED]
    assert len(modules) > 300
    assert [place for module in modules for place in _conversions(module)] == []
