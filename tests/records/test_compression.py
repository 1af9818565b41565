"""The codecs: what we write others read, what others write we read, and nothing grows past its bound."""

import subprocess
import sys
import zlib
from pathlib import Path
from random import Random

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec as kafka_python_codec

from headrace.errors import CorruptMessage, UnsupportedCompressionType
from headrace.records.codecs.compression import Codec, compress, decompress
from tests.examples import slow_after
from tests.records.samples import CODECS

COMPRESSED = CODECS[1:]
MIB = 1 << 20
WORDS = b"the quick brown fox; " * 20_000


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=2000), repeat=st.integers(1, 100))
def test_decompresses_what_it_compressed(codec: Codec, data: bytes, repeat: int) -> None:
    whole = data * repeat
    assert decompress(codec, compress(codec, whole), max(1, len(whole))) == whole


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("level", [None, 1, 9])
def test_levels_are_taken(codec: Codec, level: int | None) -> None:
    assert decompress(codec, compress(codec, memoryview(WORDS), level)) == WORDS


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_higher_level_compresses_more(codec: Codec) -> None:
    text = b"".join(Random(1).choices(WORDS.split()[:4], k=40_000)) + bytes(Random(1).randbytes(70_000))
    small, large = (compress(codec, text, level) for level in (9, 1))
    assert len(small) < len(large) < len(text)
    assert decompress(codec, small) == decompress(codec, large) == text
    if codec is Codec.LZ4:
        assert kafka_python_codec.lz4_decode(small) == text, "a frame that other libraries take"


@pytest.mark.parametrize("library", [kafka_python_codec, aiokafka_codec], ids=["kafka-python", "aiokafka"])
@pytest.mark.parametrize("codec", COMPRESSED)
def test_python_clients_read_ours_and_we_read_theirs(codec: Codec, library: object) -> None:
    name = codec.name.lower()
    assert bytes(getattr(library, f"{name}_decode")(compress(codec, WORDS))) == WORDS
    assert decompress(codec, getattr(library, f"{name}_encode")(WORDS)) == WORDS


def test_snappy_is_read_raw_as_well_as_framed() -> None:
    raw = bytes(memoryview(cramjam.snappy.compress_raw(WORDS)))
    framed = compress(Codec.SNAPPY, WORDS)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(Codec.SNAPPY, raw) == decompress(Codec.SNAPPY, framed) == WORDS
    assert decompress(Codec.SNAPPY, framed + framed) == WORDS * 2


def test_lz4_is_written_in_the_independent_blocks_that_java_reads() -> None:
    assert compress(Codec.LZ4, WORDS)[:7].hex() == "04224d18604082"


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4])
def test_frames_may_follow_one_another(codec: Codec) -> None:
    assert decompress(codec, compress(codec, b"one") + compress(codec, WORDS)) == b"one" + WORDS


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_over_the_bound_is_refused(codec: Codec) -> None:
    packed = compress(codec, WORDS)
    assert decompress(codec, packed, len(WORDS)) == WORDS
    with pytest.raises(CorruptMessage):
        decompress(codec, packed, len(WORDS) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.data())
def test_damage_gives_an_error_or_other_bytes_within_the_bound(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, WORDS[:5000]))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    del packed[data.draw(st.integers(0, len(packed))) :]
    try:
        assert len(decompress(codec, packed, 10_000)) <= 10_000
    except CorruptMessage:
        pass


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(max_size=200))
def test_random_bytes_give_an_error_or_bytes_within_the_bound(codec: Codec, data: bytes) -> None:
    try:
        assert len(decompress(codec, data, 10_000)) <= 10_000
    except CorruptMessage:
        pass


@pytest.mark.parametrize("number", [5, 6, 7])
def test_the_three_numbers_that_are_no_codec_are_refused(number: int) -> None:
    with pytest.raises(UnsupportedCompressionType):
        Codec.of_attributes(number | 0x10)


@pytest.mark.parametrize("size", [0x7FFFFFFF, 1 << 20])
def test_a_snappy_block_that_lies_about_its_size_allocates_nothing(size: int) -> None:
    lie = bytearray()
    while size > 0x7F:
        lie.append(size & 0x7F | 0x80)
        size >>= 7
    lie.append(size)
    with pytest.raises(CorruptMessage, match="claims"):
        decompress(Codec.SNAPPY, bytes(lie) + b"\x00" * 10)


@pytest.mark.parametrize("size", [-1, 0, 5, 0x7FFFFFFF])
def test_a_xerial_block_that_lies_about_its_size_is_refused(size: int) -> None:
    framed = compress(Codec.SNAPPY, b"")[:16] + size.to_bytes(4, "big", signed=True) + b"\x00\x00\x00\x00"
    with pytest.raises(CorruptMessage):
        decompress(Codec.SNAPPY, framed)


BOMB = """
import resource, sys
from headrace.errors import CorruptMessage
from headrace.records.codecs.compression import Codec, compress, decompress
packed = open(sys.argv[2], "rb").read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(Codec[sys.argv[1]], packed, 8 << 20)
    print("taken")
except CorruptMessage:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("codec", slow_after(1, COMPRESSED[::-1]))
def test_a_bomb_of_256_mib_is_refused_within_the_memory_of_its_bound(codec: Codec, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb"
    bomb.write_bytes(_zeros(codec, 256))
    done = subprocess.run(
        [sys.executable, "-c", BOMB, codec.name, str(bomb)], capture_output=True, text=True, timeout=300, check=True
    )
    grown_kib = int(done.stdout)
    assert grown_kib < (8 + 12) * 1024, f"8 MiB may come out, {grown_kib} KiB were taken"


def _zeros(codec: Codec, mebibytes: int) -> bytes:
    """So many MiB of zeros, compressed, as one stream or as the frames of one, without making them first."""
    if codec is Codec.GZIP:
        packer = zlib.compressobj(9, wbits=31)
        return b"".join(packer.compress(bytes(MIB)) for _ in range(mebibytes)) + packer.flush()
    if codec is Codec.SNAPPY:
        one = compress(codec, bytes(MIB))
        return one[:16] + one[16:] * mebibytes
    return bytes(memoryview(getattr(cramjam, codec.name.lower()).compress(bytes(mebibytes * MIB))))
