"""Message sets as objects: against what releases of Apache Kafka wrote, there and back, and what is refused."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptMessage, ErrorCode, InvalidTimestamp, UnsupportedCompressionType
from headrace.records.codecs.compression import Codec, compress
from headrace.records.format2.batch import Record
from headrace.records.legacy.message import (
    MESSAGE_OVERHEAD_BYTES,
    TimestampType,
    check_timestamp,
    encode_message,
    parse_message,
)
from headrace.records.legacy.message_codecs import compress_messages, decompress_messages
from headrace.records.legacy.message_set import (
    decode_message_set,
    encode_message_set,
    iter_entries,
    iter_messages,
    wrap,
)
from tests.records.message_samples import (
    APPEND_TIME_MS,
    CODECS,
    GOLDEN_SETS,
    as_stored,
    codecs,
    golden_rows,
    magics,
    maybe_bytes,
    resealed,
    rows,
    timestamps,
)

ROWS = [Record(i, 1000 + 7 * i % 5, b"k%d" % i, b"value") for i in range(5)]


def entry(offset: int, message: bytes | bytearray) -> bytes:
    return struct.pack(">qi", offset, len(message)) + message


@pytest.mark.parametrize("name", GOLDEN_SETS)
def test_reads_what_apache_kafka_wrote(name: str) -> None:
    assert decode_message_set(GOLDEN_SETS[name]) == golden_rows(name)


@pytest.mark.parametrize("name", [name for name in GOLDEN_SETS if "/none" in name or "/gaps" in name])
def test_writes_what_apache_kafka_wrote(name: str) -> None:
    magic, codec = int(name.split("/")[1][1]), Codec[name.split("/")[2].upper()]
    stamp = APPEND_TIME_MS if name.endswith("append-time") else None
    ours = encode_message_set(golden_rows(name), magic=magic, codec=codec, base_offset=None, log_append_time_ms=stamp)
    golden = GOLDEN_SETS[name]
    if codec is Codec.NONE:
        assert ours == golden
        return
    (theirs_at,), (ours_at,) = iter_entries(golden), iter_entries(ours)
    theirs = parse_message(golden, theirs_at.start, theirs_at.end)
    mine = parse_message(ours, ours_at.start, ours_at.end)
    assert ours_at.offset == theirs_at.offset
    assert mine[2:5] == theirs[2:5], "attributes, timestamp and key of the wrapper"
    inner = [decompress_messages(codec, magic, message.value or b"") for message in (mine, theirs)]
    assert inner[0] == inner[1]


@given(
    magics,
    st.integers(-(1 << 40), (1 << 40)),
    st.sampled_from(TimestampType),
    maybe_bytes,
    maybe_bytes,
)
def test_a_message_says_what_its_format_can_say_or_is_not_made(
    magic: int, timestamp_ms: int, kind: TimestampType, key: bytes | None, value: bytes | None
) -> None:
    possible = timestamp_ms >= -1 and (magic == 1 or (timestamp_ms == -1 and kind is TimestampType.CREATE_TIME))
    if not possible:
        with pytest.raises(InvalidTimestamp):
            encode_message(magic, key, value, timestamp_ms, kind)
        return
    message = encode_message(magic, key, value, timestamp_ms, kind)
    parsed = parse_message(message, 0, len(message))
    assert (parsed.magic, parsed.timestamp_ms, parsed.timestamp_type, parsed.key, parsed.value) == (
        magic, timestamp_ms, kind, key, value,
    )  # fmt: skip
    assert len(message) == MESSAGE_OVERHEAD_BYTES[magic] + len(key or b"") + len(value or b"")


@pytest.mark.parametrize(
    ("magic", "timestamp_ms", "kind", "named"),
    [
        (0, 5, 0, r"timestamp 5 is invalid in format 0"),
        (0, -1, 1, r"LogAppendTime is invalid in format 0"),
        (1, -2, 0, r"timestamp -2 is invalid in format 1"),
        (0, -7, 0, r"timestamp -7 is invalid in format 0"),
        (1, 5, 2, r"timestamp type 2 is invalid in format 1"),
    ],
)
def test_an_impossible_timestamp_is_an_error_that_names_the_combination(
    magic: int, timestamp_ms: int, kind: int, named: str
) -> None:
    with pytest.raises(InvalidTimestamp, match=named) as caught:
        check_timestamp(magic, timestamp_ms, kind)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_format_0_has_create_time_whatever_its_attributes_say() -> None:
    message_set = encode_message_set(ROWS[:1], magic=0)
    message_set[17] |= 0x08
    (found,) = iter_messages(resealed(message_set))
    assert (found.timestamp_ms, found.timestamp_type) == (-1, TimestampType.CREATE_TIME)


@given(rows, magics, codecs, st.none() | st.integers(0, 1 << 50), st.integers(0, (1 << 63) - 30))
def test_round_trip(records: list[Record], magic: int, codec: Codec, stamp: int | None, base_offset: int) -> None:
    message_set = encode_message_set(
        records, magic=magic, codec=codec, base_offset=base_offset, log_append_time_ms=stamp
    )
    moved = [row._replace(offset=base_offset + row.offset) for row in records]
    assert decode_message_set(message_set) == as_stored(moved, magic, stamp)
    kind = TimestampType(1 if stamp is not None and magic else 0)
    assert {message.timestamp_type for message in iter_messages(message_set)} == {kind}


@given(rows, magics, codecs, st.data())
def test_offsets_are_kept_when_asked_for(records: list[Record], magic: int, codec: Codec, data: st.DataObject) -> None:
    steps = data.draw(st.lists(st.integers(1, 9), min_size=len(records), max_size=len(records)))
    kept = [row._replace(offset=sum(steps[: i + 1])) for i, row in enumerate(records)]
    message_set = encode_message_set(kept, magic=magic, codec=codec, base_offset=None)
    assert decode_message_set(message_set) == as_stored(kept, magic)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_inner_offsets_are_absolute_in_format_0_and_relative_in_format_1(codec: Codec) -> None:
    for magic, inner_offsets in ((0, [50, 51, 52, 53, 54]), (1, [0, 1, 2, 3, 4])):
        message_set = encode_message_set(ROWS, magic=magic, codec=codec, base_offset=50)
        ((offset, start, end),) = iter_entries(message_set)
        assert offset == 54
        inner = decompress_messages(codec, magic, parse_message(message_set, start, end).value or b"")
        assert [entry.offset for entry in iter_entries(inner)] == inner_offsets


def test_a_wrapper_has_the_largest_timestamp_of_what_it_holds() -> None:
    message_set = encode_message_set(ROWS, magic=1, codec=Codec.GZIP)
    wrapper = parse_message(message_set, 12, len(message_set))
    assert wrapper.timestamp_ms == max(row.timestamp_ms for row in ROWS)
    assert wrapper.key is None


def test_log_append_time_on_the_wrapper_wins_over_its_messages() -> None:
    message_set = encode_message_set(ROWS, magic=1, codec=Codec.GZIP)
    message_set[17] |= 0x08
    message_set[18:26] = (99).to_bytes(8, "big")
    found = list(iter_messages(resealed(message_set)))
    assert {message.timestamp_ms for message in found} == {99}
    assert {message.timestamp_type for message in found} == {TimestampType.LOG_APPEND_TIME}


def test_create_time_on_the_wrapper_leaves_each_message_its_own() -> None:
    message_set = encode_message_set(ROWS, magic=1, codec=Codec.GZIP)
    message_set[18:26] = (99).to_bytes(8, "big")
    assert decode_message_set(resealed(message_set)) == ROWS


def test_a_wrapper_at_offset_0_holds_absolute_offsets() -> None:
    """As some releases of librdkafka produce them."""
    message_set = encode_message_set(ROWS, magic=1, codec=Codec.GZIP)
    message_set[:8] = bytes(8)
    assert decode_message_set(message_set) == ROWS


def test_lz4_of_format_0_has_the_checksum_of_kafka_0_8() -> None:
    packed = compress_messages(Codec.LZ4, 0, b"abc" * 50)
    assert packed[:7].hex() == "04224d1860401a"
    assert compress_messages(Codec.LZ4, 1, b"abc" * 50)[:7].hex() == "04224d18604082"
    assert GOLDEN_SETS["0.8.2.2/v0/lz4"].find(packed[:7]) > 0


def test_format_0_is_read_with_either_lz4_checksum_and_format_1_with_the_right_one() -> None:
    wrong, right = (bytes(compress_messages(Codec.LZ4, magic, b"abc" * 50)) for magic in (0, 1))
    for frame in (wrong, right):
        assert decompress_messages(Codec.LZ4, 0, frame) == b"abc" * 50
    with pytest.raises(CorruptMessage):
        decompress_messages(Codec.LZ4, 1, wrong)


def test_an_lz4_frame_that_tells_its_size_is_read_in_format_0() -> None:
    import lz4.frame

    frame = lz4.frame.compress(b"abc" * 50, store_size=True)
    assert decompress_messages(Codec.LZ4, 0, frame) == b"abc" * 50


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_not_for_messages(magic: int) -> None:
    with pytest.raises(UnsupportedCompressionType, match="zstd"):
        encode_message_set(ROWS, magic=magic, codec=Codec.ZSTD)
    wrapper = encode_message(magic, None, compress(Codec.ZSTD, encode_message_set(ROWS, magic=magic)), codec=Codec.ZSTD)
    with pytest.raises(UnsupportedCompressionType, match="zstd"):
        decode_message_set(entry(4, wrapper))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_wrapper_in_a_wrapper_is_refused(magic: int, codec: Codec) -> None:
    inner = encode_message_set(ROWS, magic=magic, codec=codec)
    with pytest.raises(CorruptMessage, match="another wrapper"):
        decode_message_set(wrap(inner, 4, magic, codec))


def test_a_wrapper_holds_its_own_format_only() -> None:
    with pytest.raises(CorruptMessage, match="format 1 .* contains a message of format 0"):
        decode_message_set(wrap(encode_message_set(ROWS, magic=0), 4, 1, Codec.GZIP))


def test_a_wrapper_that_holds_nothing_or_half_a_message_is_refused() -> None:
    inner = encode_message_set(ROWS, magic=1)
    for held in (b"", inner[:-1], inner + b"\0" * 5):
        with pytest.raises(CorruptMessage):
            decode_message_set(wrap(held, 4, 1, Codec.GZIP))
    with pytest.raises(CorruptMessage, match="no value"):
        decode_message_set(entry(4, encode_message(1, None, None, codec=Codec.GZIP)))


def test_inner_offsets_that_do_not_rise_or_pass_the_wrapper_are_refused() -> None:
    messages = [encode_message(1, None, b"v") for _ in range(3)]
    for offsets in ([0, 0, 1], [0, 2, 1], [-1, 0, 1], [0, 1, 9]):
        inner = b"".join(entry(offset, message) for offset, message in zip(offsets, messages, strict=True))
        with pytest.raises(CorruptMessage):
            decode_message_set(wrap(inner, 5, 1, Codec.GZIP))


def test_a_message_that_is_cut_off_ends_the_set() -> None:
    message_set = encode_message_set(ROWS, magic=1)
    for cut in range(1, 30):
        assert decode_message_set(message_set[:-cut]) == ROWS[:-1]


@given(timestamps, st.integers(0, 60), st.integers(0, 7))
def test_a_flipped_bit_is_corrupt(timestamp_ms: int, at: int, bit: int) -> None:
    message_set = encode_message_set([Record(0, timestamp_ms, b"some key", b"and a value")], magic=1)
    place = 12 + at % (len(message_set) - 12)
    message_set[place] ^= 1 << bit
    with pytest.raises(CorruptMessage):
        decode_message_set(message_set)


def test_nothing_is_made_of_no_records_or_of_another_format() -> None:
    with pytest.raises(ValueError, match="at least one message"):
        encode_message_set([], magic=1)
    with pytest.raises(ValueError, match="unknown message format 2"):
        encode_message_set(ROWS, magic=2)
    with pytest.raises(ValueError, match="ascending"):
        encode_message_set(ROWS[::-1], magic=1, base_offset=None)
