"""Message sets that somebody has damaged, or made to do damage: a KafkaError or another valid answer, nothing else."""

import struct
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import KafkaError
from headrace.records.any_format import iter_any_headers, scan_any
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.legacy.message import seal_message
from headrace.records.legacy.message_codecs import compress_messages
from headrace.records.legacy.message_columns import scan_message_set
from headrace.records.legacy.message_set import decode_message_set, encode_message_set, wrap
from headrace.records.legacy.produced_sets import check_produced_set, place_set
from tests.examples import QUICK, examples
from tests.records.decoding import decode_any
from tests.records.message_samples import CODECS, GOLDEN_SETS, codecs, magics

MIB = 1 << 20
BOMB_BYTES = (16 if QUICK else 64) * MIB


def _produce(data: bytes) -> None:
    buf = bytearray(data)
    checked = check_produced_set(memoryview(buf), max_message_bytes=MIB, max_decompressed_bytes=MIB)
    placed = place_set(buf, checked, base_offset=40, log_append_time_ms=9)
    rows = decode_message_set(placed.data)  # whatever was taken can be read by everybody
    assert [row.offset for row in rows] == list(range(40, 40 + checked.record_count))
    assert placed.last_offset == rows[-1].offset


READERS: list[Callable[[bytes], object]] = [
    lambda data: decode_message_set(data, max_bytes=MIB),
    lambda data: decode_message_set(data, check_crcs=False, max_bytes=MIB),
    lambda data: scan_message_set(data, max_batch_bytes=MIB),
    lambda data: scan_message_set(data, check_crcs=False, max_batch_bytes=MIB),
    lambda data: scan_any(data, check_crcs=False, headers=True, max_batch_bytes=MIB),
    lambda data: decode_any(data, check_crcs=False, max_batch_bytes=MIB),
    lambda data: list(iter_any_headers(data)),
    _produce,
]


def survive(data: bytes) -> None:
    """Every reader takes the bytes or says what is wrong with them."""
    for reader in READERS:
        try:
            reader(data)
        except KafkaError as problem:
            assert problem.message, "an error says what it is about"


edits = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=5)
lengths = st.sampled_from([-(1 << 31), -2, -1, 0, 1, 13, 14, 22, 1 << 24, (1 << 31) - 1])


@settings(max_examples=examples(150))
@given(st.sampled_from(sorted(GOLDEN_SETS)), edits, st.integers(0, 40), st.booleans())
def test_sets_of_apache_kafka_with_changed_bytes(
    name: str, changes: list[tuple[int, int]], cut: int, seal: bool
) -> None:
    data = bytearray(GOLDEN_SETS[name])
    for at, byte in changes:
        data[at % len(data)] = byte
    del data[len(data) - cut :]
    size = int.from_bytes(data[8:12], "big", signed=True)
    if seal and 14 <= size <= len(data) - 12:
        seal_message(data, 12, 12 + size)
    survive(bytes(data))


@settings(max_examples=examples(150))
@given(magics, codecs, edits, st.integers(0, 30))
def test_wrappers_whose_inside_was_changed(magic: int, codec: Codec, changes: list[tuple[int, int]], cut: int) -> None:
    """The wrapper's own CRC is right, so that nothing stands between the damage and the reader."""
    inner = encode_message_set([Record(i, 5, b"key", b"v" * i) for i in range(4)], magic=magic)
    for at, byte in changes:
        inner[at % len(inner)] = byte
    del inner[len(inner) - cut :]
    survive(bytes(wrap(inner, 3, magic, Codec.GZIP if codec is Codec.NONE else codec)))


@settings(max_examples=examples(100))
@given(magics, st.sampled_from(["size", "key", "value"]), lengths, st.booleans())
def test_lengths_that_lie(magic: int, which: str, length: int, wrapped: bool) -> None:
    data = encode_message_set([Record(0, 5, b"key", b"value"), Record(1, 6, b"k", b"v")], magic=magic)
    end = 12 + int.from_bytes(data[8:12], "big")
    at = {"size": 8, "key": 18 + 8 * magic, "value": 25 + 8 * magic}[which]
    data[at : at + 4] = length.to_bytes(4, "big", signed=True)
    seal_message(data, 12, end)
    survive(bytes(wrap(data, 1, magic, Codec.GZIP) if wrapped else data))


@settings(max_examples=examples(60))
@given(st.binary(max_size=300), magics, codecs)
def test_noise_with_and_without_a_head(noise: bytes, magic: int, codec: Codec) -> None:
    survive(noise)
    if codec is not Codec.NONE:
        survive(bytes(wrap(noise, 0, magic, codec)))
        message = struct.pack(">IbB", 0, magic, codec) + bytes(8 * magic) + struct.pack(">ii", -1, len(noise)) + noise
        data = bytearray(struct.pack(">qi", 0, len(message)) + message)
        seal_message(data, 12, len(data))
        survive(bytes(data))


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_many_deep_are_not_followed(magic: int, codec: Codec) -> None:
    data = encode_message_set([Record(0, -1, None, b"v")], magic=magic)
    for _ in range(30):
        data = wrap(data, 0, magic, codec)
    for reader in READERS[:4]:
        with pytest.raises(KafkaError, match="wrapper"):
            reader(bytes(data))


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_bomb_does_not_take_the_memory_that_it_claims(magic: int, codec: Codec) -> None:
    """64 MiB in a few hundred kilobytes: each reader stops at the megabyte it was given."""
    message = encode_message_set([Record(0, -1, None, bytes(BOMB_BYTES))], magic=magic)
    bomb = bytes(wrap(message, 0, magic, codec))
    packed = compress_messages(codec, magic, bytes(BOMB_BYTES))
    del message
    tracemalloc.start()
    try:
        for data in (bomb, bytes(wrap(b"", 0, magic, codec))[:-1] + packed):
            survive(data)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * MIB + 4 * len(bomb)


def test_a_wrapper_comes_whole_and_plain_messages_one_by_one() -> None:
    data = encode_message_set([Record(i, -1, None, None) for i in range(1000)], magic=0)
    columns = scan_message_set(wrap(data, 999, 0, Codec.GZIP), max_records=10)
    assert columns.count == 1000
    assert scan_message_set(data, max_records=10).count == 10


@settings(max_examples=examples(60))
@given(edits, st.sampled_from([0, 1, 2]), st.sampled_from([0, 1, 2]))
def test_mixed_formats_with_changed_bytes(changes: list[tuple[int, int]], one: int, other: int) -> None:
    data = bytearray()
    for at, magic in enumerate((one, other)):
        rows = [Record(2 * at + i, 7, b"k", b"value") for i in range(2)]
        data += (
            encode_batch(rows, base_offset=2 * at)
            if magic == 2
            else encode_message_set(rows, magic=magic, base_offset=2 * at)
        )
    for at, byte in changes:
        data[at % len(data)] = byte
    survive(bytes(data))
