import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptMessage
from tests.records.varint import (
    encode_varint,
    read_varint,
    read_varlong,
    unzigzag,
    varint_size,
    zigzag,
)

ZIGZAG = [(0, 0), (-1, 1), (1, 2), (-2, 3), (2147483647, 4294967294), (-2147483648, 4294967295)]


@pytest.mark.parametrize(("value", "folded"), ZIGZAG)
def test_folds_as_the_table_says(value: int, folded: int) -> None:
    assert zigzag(value) == folded
    assert unzigzag(folded) == value


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (63, "7e"), (-64, "7f"), (64, "8001"), (300, "d804"), (-1, "01"), (-65, "8101"), (150, "ac02")],
)
def test_writes_seven_bits_a_byte(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert read_varint(bytes.fromhex(encoded)) == (value, len(encoded) // 2)


@pytest.mark.parametrize(
    ("largest", "size"), [(63, 1), (8191, 2), (1048575, 3), (134217727, 4), (2**31 - 1, 5), (2**63 - 1, 10)]
)
def test_takes_one_more_byte_from_each_border_on(largest: int, size: int) -> None:
    assert varint_size(largest) == len(encode_varint(largest)) == size
    assert varint_size(-largest - 1) == size
    if size < 10:
        assert varint_size(largest + 1) == len(encode_varint(largest + 1)) > size or largest == 2**31 - 1


@given(st.integers(-(2**63), 2**63 - 1))
def test_reads_what_it_wrote(value: int) -> None:
    encoded = encode_varint(value)
    assert read_varlong(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))
    assert varint_size(value) == len(encoded)


@pytest.mark.parametrize("encoded", ["", "80", "ffffffffff", "ffffffff1f", "ffffffffffffff01"])
def test_refuses_numbers_cut_short_or_wider_than_32_bits(encoded: str) -> None:
    with pytest.raises(CorruptMessage):
        read_varint(bytes.fromhex(encoded))


@pytest.mark.parametrize("encoded", ["ff" * 9, "ff" * 9 + "02", "ff" * 10 + "01"])
def test_refuses_numbers_cut_short_or_wider_than_64_bits(encoded: str) -> None:
    with pytest.raises(CorruptMessage):
        read_varlong(bytes.fromhex(encoded))
