"""What a broker takes from producers of formats 0 and 1, and what becomes of it."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from headrace.records.codecs.compression import Codec, compress
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.legacy.message import encode_message, parse_message
from headrace.records.legacy.message_codecs import decompress_messages
from headrace.records.legacy.message_set import decode_message_set, encode_message_set, iter_entries, wrap
from headrace.records.legacy.produced_sets import CheckedSet, PlacedSet, check_produced_set, place_set
from tests.examples import examples
from tests.records.message_samples import CODECS, GOLDEN_SETS, as_stored, codecs, golden_rows, magics, resealed, rows

ROWS = [Record(i, 1000 + (i * 7) % 5, b"k%d" % i, b"value") for i in range(5)]
MIB = 1 << 20
STAMP = 1_900_000_000_000


def check(message_set: bytes | bytearray, **settings: object) -> CheckedSet:
    return check_produced_set(memoryview(message_set), **{"max_message_bytes": MIB, **settings})  # type: ignore[arg-type]


def placed(message_set: bytes | bytearray | memoryview, base_offset: int = 500, **options: object) -> PlacedSet:
    copy = bytearray(message_set)
    return place_set(copy, check(copy), base_offset=base_offset, **options)  # type: ignore[arg-type]


def entries_of(messages: list[bytearray], offsets: list[int]) -> bytes:
    return b"".join(
        struct.pack(">qi", offset, len(message)) + message for offset, message in zip(offsets, messages, strict=True)
    )


@pytest.mark.parametrize("name", [name for name in GOLDEN_SETS if "append-time" not in name])
def test_takes_and_places_what_apache_kafka_sends(name: str) -> None:
    expected = golden_rows(name)
    checked = check(GOLDEN_SETS[name])
    assert checked.record_count == len(expected)
    assert checked.max_timestamp == max(row.timestamp_ms for row in expected)
    assert checked.min_timestamp == min(row.timestamp_ms for row in expected)
    at = placed(GOLDEN_SETS[name])
    assert decode_message_set(at.data) == [row._replace(offset=500 + i) for i, row in enumerate(expected)]
    assert at.last_offset == 499 + len(expected)


@settings(max_examples=examples(300))
@given(rows, magics, codecs, st.none() | st.integers(0, 1 << 50), st.none() | codecs, st.integers(0, (1 << 63) - 30))
def test_what_was_placed_is_what_was_sent_at_its_offsets(
    records: list[Record], magic: int, codec: Codec, stamp: int | None, target: Codec | None, base_offset: int
) -> None:
    message_set = encode_message_set(records, magic=magic, codec=codec)
    result = placed(message_set, base_offset, log_append_time_ms=stamp, codec=target)
    expected = as_stored([row._replace(offset=base_offset + row.offset) for row in records], magic, stamp)
    assert decode_message_set(result.data) == expected
    latest = max(row.timestamp_ms for row in expected)
    assert (result.last_offset, result.max_timestamp) == (expected[-1].offset, latest)
    first = next(row.offset for row in expected if row.timestamp_ms == latest)
    assert result.offset_of_max == (first if latest >= 0 else -1)
    same_codec = target is None or target is codec
    assert result.is_rewritten == (not same_codec or (magic == 0 and codec is not Codec.NONE))
    if result.is_rewritten or codec is Codec.NONE:
        assert result.data == encode_message_set(
            records, magic=magic, codec=codec if target is None else target, base_offset=base_offset,
            log_append_time_ms=stamp,
        )  # fmt: skip


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_wrapper_of_format_1_is_placed_without_touching_what_it_holds(codec: Codec) -> None:
    sent = encode_message_set(ROWS, magic=1, codec=codec)
    for options in ({}, {"log_append_time_ms": STAMP}):
        result = placed(sent, **options)
        assert not result.is_rewritten
        assert result.data[26:] == sent[26:], "key and value of the wrapper"
    assert placed(sent).data[8:] == sent[8:], "no new CRC where nothing under it changed"


def test_nothing_is_copied_when_it_can_be_placed_in_place() -> None:
    for codec in (Codec.NONE, Codec.GZIP):
        sent = encode_message_set(ROWS, magic=1, codec=codec)
        result = place_set(sent, check(sent), base_offset=9)
        assert isinstance(result.data, memoryview) and result.data.obj is sent
        sent = encode_message_set(ROWS, magic=1, codec=codec)
        frozen = bytes(sent)
        assert decode_message_set(place_set(frozen, check(frozen), base_offset=9).data)[0].offset == 9
        assert frozen == sent


@pytest.mark.parametrize("offsets", [[0, 0, 0], [5, 3, 9], [1, 2, 3], [-1, -1, -1]])
@pytest.mark.parametrize("magic", [0, 1])
def test_inner_offsets_that_are_not_0_1_2_are_put_right(magic: int, offsets: list[int]) -> None:
    """Some producers write zeros; Kafka takes those, so that the sets are rewritten."""
    inner = entries_of([encode_message(magic, None, b"%d" % i) for i in range(3)], offsets)
    sent = wrap(inner, max(0, offsets[-1]), magic, Codec.GZIP)
    result = placed(sent)
    assert result.is_rewritten
    assert [(row.offset, row.value) for row in decode_message_set(result.data)] == [
        (500, b"0"), (501, b"1"), (502, b"2"),
    ]  # fmt: skip


def test_a_wrapper_whose_offset_is_not_its_last_inner_one_is_rewritten() -> None:
    """So Kafka's LogValidator sees absolute offsets that are not 0, 1, 2…; offset 0 is librdkafka's way."""
    for offset, rewritten in ((0, False), (4, False), (77, True)):
        sent = encode_message_set(ROWS, magic=1, codec=Codec.SNAPPY)
        sent[:8] = offset.to_bytes(8, "big")
        result = placed(sent)
        assert result.is_rewritten == rewritten
        assert [row.offset for row in decode_message_set(result.data)] == [500, 501, 502, 503, 504]


def test_offsets_of_plain_messages_may_be_anything() -> None:
    messages = [encode_message(1, None, b"v", 5) for _ in range(3)]
    result = placed(entries_of(messages, [-1, 7, 7]))
    assert [row.offset for row in decode_message_set(result.data)] == [500, 501, 502]
    assert not result.is_rewritten


def test_log_append_time_is_the_wrappers_alone_or_every_plain_message_s() -> None:
    for codec in CODECS:
        result = placed(encode_message_set(ROWS, magic=1, codec=codec), log_append_time_ms=STAMP)
        assert {row.timestamp_ms for row in decode_message_set(result.data)} == {STAMP}
        assert (result.max_timestamp, result.offset_of_max) == (STAMP, 500)
        for entry in iter_entries(result.data):
            assert parse_message(result.data, entry.start, entry.end).attributes == codec | 0x08


def test_format_0_has_no_log_append_time() -> None:
    for codec in CODECS:
        result = placed(encode_message_set(ROWS, magic=0, codec=codec), log_append_time_ms=STAMP)
        assert (result.max_timestamp, result.offset_of_max) == (-1, -1)
        assert {row.timestamp_ms for row in decode_message_set(result.data)} == {-1}


def test_a_wrappers_timestamp_is_set_to_the_largest_it_holds() -> None:
    sent = encode_message_set(ROWS, magic=1, codec=Codec.GZIP)
    sent[18:26] = bytes(8)  # what kafka-python and aiokafka write there
    result = placed(resealed(sent))
    assert parse_message(result.data, 12, len(result.data)).timestamp_ms == 1004
    assert decode_message_set(result.data)[0].timestamp_ms == 1000


def test_lz4_of_format_0_is_stored_with_the_old_checksum() -> None:
    result = placed(encode_message_set(ROWS, magic=0, codec=Codec.LZ4))
    assert bytes.fromhex("04224d1860401a") in bytes(result.data)


def test_a_topics_own_codec_wraps_and_unwraps() -> None:
    plain = placed(encode_message_set(ROWS, magic=1), codec=Codec.LZ4)
    (entry,) = iter_entries(plain.data)
    wrapper = parse_message(plain.data, entry.start, entry.end)
    assert (wrapper.codec, entry.offset) == (Codec.LZ4, 504)
    inner = decompress_messages(Codec.LZ4, 1, wrapper.value or b"")
    assert [entry.offset for entry in iter_entries(inner)] == [0, 1, 2, 3, 4]
    back = placed(plain.data, 9, codec=Codec.NONE)
    assert [entry.offset for entry in iter_entries(back.data)] == [9, 10, 11, 12, 13]
    with pytest.raises(UnsupportedCompressionType, match="zstd"):
        placed(plain.data, codec=Codec.ZSTD)


def test_what_grew_over_the_limit_is_too_large() -> None:
    sent = encode_message_set([Record(0, -1, None, bytes(5000))], magic=0, codec=Codec.GZIP)
    checked = check(sent, max_message_bytes=200)
    with pytest.raises(MessageTooLarge):
        place_set(sent, checked, base_offset=0, codec=Codec.NONE, max_message_bytes=200)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_a_compacted_topic_wants_a_key_in_every_message(magic: int, codec: Codec) -> None:
    keyless = [*ROWS[:3], ROWS[3]._replace(key=None)]
    assert check(encode_message_set(ROWS, magic=magic, codec=codec), compacted=True).record_count == 5
    with pytest.raises(InvalidRecord, match=r"message 3 .*no key"):
        check(encode_message_set(keyless, magic=magic, codec=codec), compacted=True)


def test_sizes_are_asked_of_each_message() -> None:
    plain = encode_message_set(ROWS, magic=1)
    size = len(plain) // 5
    assert check(plain, max_message_bytes=size).record_count == 5
    with pytest.raises(MessageTooLarge, match=f"message 0 .*{size - 1}"):
        check(plain, max_message_bytes=size - 1)
    wrapper = encode_message_set(ROWS, magic=1, codec=Codec.GZIP)
    assert check(wrapper, max_message_bytes=len(wrapper)).record_count == 5
    with pytest.raises(MessageTooLarge):
        check(wrapper, max_message_bytes=len(wrapper) - 1)


def test_a_wrapper_comes_alone() -> None:
    plain, wrapper = (encode_message_set(ROWS, magic=1, codec=codec) for codec in (Codec.NONE, Codec.GZIP))
    for several in (wrapper + wrapper, wrapper + plain, plain + wrapper):
        with pytest.raises(InvalidRecord, match="must be the only message"):
            check(several)


def test_formats_are_not_mixed() -> None:
    old, new = (encode_message_set(ROWS, magic=magic) for magic in (0, 1))
    for mixed in (old + new, new + old):
        with pytest.raises(InvalidRecord, match="format"):
            check(mixed)
    with pytest.raises(InvalidRecord, match="format"):
        check(wrap(old, 4, 1, Codec.GZIP))
    with pytest.raises(InvalidRecord, match="magic 1"):
        check(new, magic_max=0)
    with pytest.raises(InvalidRecord, match="magic 2"):
        check(encode_batch(ROWS))


def test_timestamps_that_nobody_may_send_are_refused_by_name() -> None:
    plain = encode_message_set(ROWS[:1], magic=1)
    plain[18:26] = (-2).to_bytes(8, "big", signed=True)
    with pytest.raises(InvalidTimestamp, match="negative"):
        check(resealed(plain))
    for codec in (Codec.NONE, Codec.GZIP):
        with pytest.raises(InvalidTimestamp, match="LogAppendTime"):
            check(encode_message_set(ROWS, magic=1, codec=codec, log_append_time_ms=5))
        old = encode_message_set(ROWS[:1], magic=0, codec=codec)
        old[17] |= 0x08
        with pytest.raises(InvalidTimestamp, match="LogAppendTime"):
            check(resealed(old))
    inner = encode_message_set(ROWS[:1], magic=1)
    inner[18:26] = (-2).to_bytes(8, "big", signed=True)
    with pytest.raises(InvalidTimestamp, match="message 0 in the wrapper"):
        check(wrap(resealed(inner), 0, 1, Codec.LZ4))


def test_a_wrapper_in_a_wrapper_is_refused() -> None:
    for magic in (0, 1):
        with pytest.raises(InvalidRecord, match="wrapper inside a wrapper"):
            check(wrap(encode_message_set(ROWS, magic=magic, codec=Codec.GZIP), 4, magic, Codec.GZIP))


def test_the_crc_of_an_inner_message_is_checked() -> None:
    inner = encode_message_set(ROWS, magic=1)
    inner[-1] ^= 1
    with pytest.raises(CorruptMessage, match=r"message 4 in the wrapper.*CRC"):
        check(wrap(inner, 4, 1, Codec.GZIP))


def test_wrappers_without_messages_or_with_half_of_one_are_refused() -> None:
    inner = encode_message_set(ROWS, magic=1)
    for held in (b"", inner[:-1], inner + b"\0"):
        with pytest.raises(InvalidRecord):
            check(wrap(held, 4, 1, Codec.GZIP))
    with pytest.raises(InvalidRecord, match="has no value"):
        check(entries_of([encode_message(1, None, None, codec=Codec.GZIP)], [0]))
    with pytest.raises(CorruptMessage):
        check(entries_of([encode_message(1, None, b"no gzip", codec=Codec.GZIP)], [0]))
    with pytest.raises(UnsupportedCompressionType):
        check(entries_of([encode_message(1, None, compress(Codec.ZSTD, inner), codec=Codec.ZSTD)], [0]))
    with pytest.raises(InvalidRecord, match="message set is empty"):
        check(b"")


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_bomb_is_refused_before_it_unpacks(magic: int, codec: Codec) -> None:
    bomb = encode_message_set([Record(0, -1, None, bytes(8 << 20))], magic=magic, codec=codec)
    with pytest.raises(CorruptMessage):
        check(bomb, max_decompressed_bytes=MIB)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_every_prefix_and_every_flipped_bit_is_refused(magic: int, codec: Codec) -> None:
    sent = encode_message_set(ROWS[:2], magic=magic, codec=codec)
    half = len(sent) // 2 if codec is Codec.NONE else len(sent)  # where the second message is
    for size in range(len(sent)):
        if size != half:
            with pytest.raises(KafkaError):
                check(sent[:size])
    for at in set(range(8, len(sent))) - set(range(half, half + 8)):  # any offset will do
        sent[at] ^= 0x10
        with pytest.raises(KafkaError):
            check(sent)
        sent[at] ^= 0x10
