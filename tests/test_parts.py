"""What `make quick` leaves to each of its processes."""

import pytest

from tests.conftest import _ALL_SLOW
from tests.examples import is_in_this_part


def test_each_file_is_in_one_part() -> None:
    for path in (f"tests/{name}/test_{name}.py" for name in range(100)):
        assert sum(is_in_this_part(path, f"{part}/3") for part in range(3)) == 1
        assert is_in_this_part(path, "0/1")


@pytest.mark.parametrize(
    "line", ["pytestmark = pytest.mark.slow  # why", "pytestmark = [\n    pytest.mark.x,\n    pytest.mark.spark,\n]"]
)
def test_a_file_of_slow_tests_is_known_by_its_text(line: str) -> None:
    assert _ALL_SLOW.search(f"import pytest\n\n{line}\n")


@pytest.mark.parametrize(
    "line",
    ["pytestmark = pytest.mark.asyncio", "    pytestmark = pytest.mark.slow", "pytestmark = [pytest.mark.x]\nslow = 1"],
)
def test_other_files_are_collected(line: str) -> None:
    assert not _ALL_SLOW.search(f"import pytest\n\n{line}\n")
