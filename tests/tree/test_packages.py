"""Each package's `__init__` says what lives there, what it may know, and where to begin."""

import ast
import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
PACKAGES = sorted(file for file in SOURCES.glob("*/**/__init__.py") if "egg-info" not in str(file))
KNOWS = re.compile(r"\b([Mm]ay know|[Kk]nows?|[Pp]ure|[Ii]mports)\b")
BEGINS = re.compile(r"\bBegin with `?([\w./]+)`?")


def what_is_missing(docstring: str) -> list[str]:
    """The parts that a package's docstring lacks."""
    text = " ".join(docstring.split())
    return [
        name for name, pattern in (("what it may know", KNOWS), ("where to begin", BEGINS)) if not pattern.search(text)
    ]


@pytest.mark.parametrize("file", PACKAGES, ids=lambda file: str(file.parent.relative_to(SOURCES)))
def test_a_package_says_what_it_is_what_it_may_know_and_where_to_begin(file: Path) -> None:
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    assert what_is_missing(docstring) == []
    begin = BEGINS.search(" ".join(docstring.split()))
    assert begin is not None
    name = begin[1].removesuffix(".").removesuffix(".py")
    places = [
        file.parent.joinpath(*name.replace("/", ".").split(".")),
        SOURCES.joinpath(*name.split(".")),
        SOURCES.parent / begin[1],
    ]
    assert any(place.exists() or place.with_suffix(".py").exists() for place in places), f"{name} is not there"


def test_a_docstring_without_a_beginning_is_noticed() -> None:
    assert what_is_missing("Thing. Pure.") == ["where to begin"]
    assert what_is_missing("Thing. Begin with `thing`.") == ["what it may know"]
