"""The table of published mistakes in docs/security.md names tests that exist, and all CVEs that the tests name."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "security.md").read_text()
ROWS = [line.split("|")[1:4] for line in PAGE.splitlines() if line.startswith("|") and "CVE-" in line]
_CVE = re.compile(r"CVE-\d{4}-\d{4,}")
_NAME = re.compile(r"`(test_\w+)`")


def _sources() -> str:
    return "\n".join(path.read_text() for path in TESTS.rglob("test_*.py"))


def test_every_class_of_mistakes_has_a_test_that_exists() -> None:
    found = set(re.findall(r"def (test_\w+)\(", _sources()))
    assert len(ROWS) > 15
    for mistake, published, tests in ROWS:
        names = _NAME.findall(tests)
        assert names and _CVE.findall(published), mistake
        assert found.issuperset(names), mistake


@pytest.mark.parametrize("number", sorted(set(_CVE.findall(_sources()))))
def test_every_published_mistake_that_a_test_names_is_in_the_table(number: str) -> None:
    assert any(number in published for _, published, _ in ROWS)
