"""Sizes and durations are read as people write them."""

import pytest

from headrace.cli.access import UsageProblem
from headrace.cli.quantities import duration_ms, shown_size, size


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("500", 500), ("1B", 1), ("64KiB", 65536), ("10 MiB", 10 << 20), ("1.5GiB", 3 << 29), ("2tib", 2 << 40)],
)
def test_sizes(text: str, count: int) -> None:
    assert size("--x", text) == count


@pytest.mark.parametrize(
    ("text", "count_ms"),
    [("0", 0), ("90", 90_000), ("250ms", 250), ("1.5m", 90_000), ("12h", 43_200_000), ("7d", 604_800_000)],
)
def test_durations(text: str, count_ms: int) -> None:
    assert duration_ms("--x", text) == count_ms


@pytest.mark.parametrize("text", ["", "-1", "1 2", "MiB", "10MB", "1e9", "0x10", "1.", ".5", "9" * 30, "١", "10 weeks"])
def test_what_is_no_quantity_is_refused_with_the_option(text: str) -> None:
    for read in (size, duration_ms):
        with pytest.raises(UsageProblem, match="^--x "):
            read("--x", text)


def test_sizes_are_shown_in_the_largest_unit_that_keeps_them_whole() -> None:
    shown = [shown_size(each) for each in (None, 0, 1, 1023, 1024, 1 << 20, 3 << 29, 1 << 40, (1 << 20) + 1)]
    assert shown == ["-", "0", "1", "1023", "1KiB", "1MiB", "1536MiB", "1024GiB", "1048577"]
