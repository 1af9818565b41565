"""CRC-32C by the instruction and folded in registers of each width, whichever the processor prefers."""

import random
from pathlib import Path

import pytest

from headrace.log.recovery.recovery_kernel import crc32c_folded_in, crc32c_of, folding_bits, folds_in
from headrace.records.codecs.crc import crc32c

WIDTHS = {128: {"pclmulqdq"}, 256: {"avx2", "vpclmulqdq"}, 512: {"avx512f", "vpclmulqdq"}}
"""What the processor needs for each, as Linux says it."""

NOISE = random.Random(3).randbytes(101_000)
LENGTHS = [*range(1, 1300), *range(4000, 4600, 7), 15_360, 15_400, 65_536, 100_001]


@pytest.fixture(params=[0, *WIDTHS], ids=lambda bits: f"{bits} bits" if bits else "unfolded")
def bits(request: pytest.FixtureRequest) -> int:
    if request.param and not folds_in(request.param):
        pytest.skip(f"this processor or build cannot fold in registers of {request.param} bits")
    return int(request.param)


def test_the_checksum_is_right_at_every_length_and_place(bits: int) -> None:
    noise = memoryview(NOISE)
    for size in LENGTHS:
        place = size * 7 % 64
        data = noise[place : place + size]
        assert crc32c_folded_in(data, bits) == crc32c(data), size


@pytest.mark.parametrize("size", [300, 512, 700, 1088])
def test_the_checksum_is_right_at_every_alignment(bits: int, size: int) -> None:
    noise = memoryview(NOISE)
    for place in range(65):
        data = noise[place : place + size]
        assert crc32c_folded_in(data, bits) == crc32c_of(data, False), place


@pytest.mark.parametrize("size", [256, 511, 512, 831, 1087])
def test_each_byte_counts(bits: int, size: int) -> None:
    data = bytearray(NOISE[:size])
    before = crc32c_folded_in(data, bits)
    for at in range(size):
        data[at] ^= 1
        assert crc32c_folded_in(data, bits) == crc32c(data) != before, at
        data[at] ^= 1


def test_the_widest_registers_are_chosen() -> None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        pytest.skip("only Linux says what the processor has")
    flags = next((set(line.split()) for line in lines if line.startswith("flags")), set())
    if "lm" not in flags:
        pytest.skip("not a processor of x86-64")
    can = [bits for bits, needed in WIDTHS.items() if needed <= flags]
    assert [bits for bits in WIDTHS if folds_in(bits)] == can
    assert folding_bits() == max(can, default=0)
