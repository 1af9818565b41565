"""Where a group lives: as Java computes it."""

import pytest

from headrace.coordinators.groups.partitioning import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("orders-service", 23943117),
        ("headrace", -1114888015),
        ("polygenelubricants", -(1 << 31)),
        ("static \u00fc\U0001f600", -109956435),
        ("\U0001f600", 1772899),  # two UTF-16 units: 31 * 0xD83D + 0xDE00
    ],
)
def test_a_string_has_javas_hash_code(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_the_least_hash_code_has_no_absolute_value_and_counts_as_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_a_negative_hash_code_counts_by_its_absolute_value() -> None:
    assert partition_for("headrace", 50) == 1114888015 % 50
