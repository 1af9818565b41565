"""Records of any format as any other: what is kept, what is lost, where a conversion stops, and in how much memory."""

import random
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptMessage, ErrorCode, KafkaError, UnsupportedCompressionType
from headrace.records.any_format import iter_any_headers
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.legacy.conversion import STEP_BYTES, Converted, convert_batches
from headrace.records.legacy.message_set import encode_message_set, iter_messages
from tests.records.conversion_samples import NOW_MS, OLD_CODECS, Piece, random_pieces, with_gaps
from tests.records.decoding import decode_any

MAGICS = [0, 1, 2]
pieces = st.builds(random_pieces, st.randoms(use_true_random=False), st.integers(1, 12))


def log_of(parts: list[Piece]) -> bytes:
    return b"".join(part.data for part in parts)


def rows(count: int, *, first: int = 0, headers: bool = False) -> list[Record]:
    return [
        Record(first + i, NOW_MS + i, b"k%d" % i if i % 3 else None, b"value %d " % i * 3, (("h", b"x"),) * headers)
        for i in range(count)
    ]


def magics_and_codecs(data: bytes | bytearray) -> set[tuple[int, Codec]]:
    return {(header.magic, header.codec) for _, header in iter_any_headers(data)}


# What is kept


@given(pieces, st.sampled_from(MAGICS))
def test_any_log_reads_the_same_in_any_format(parts: list[Piece], to_magic: int) -> None:
    source = log_of(parts)
    converted = convert_batches(source, to_magic)
    assert decode_any(converted.data) == [row for part in parts for row in part.seen_as(to_magic)]
    assert converted.bytes_consumed == len(source)
    assert converted.next_offset == parts[-1].records[-1].offset + 1
    assert {header.magic for _, header in iter_any_headers(converted.data)} <= {to_magic}


@given(pieces, st.sampled_from(MAGICS))
def test_for_a_fetch_older_formats_stay_as_they_are(parts: list[Piece], to_magic: int) -> None:
    converted = convert_batches(log_of(parts), to_magic, upwards=False)
    assert decode_any(converted.data) == [row for part in parts for row in part.seen_as(min(part.magic, to_magic))]
    assert max((header.magic for _, header in iter_any_headers(converted.data)), default=0) <= to_magic
    newer = sum(len(part.records) for part in parts if part.magic > to_magic and not part.is_control)
    assert newer <= converted.records <= sum(len(part.records) for part in parts)


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_what_is_in_the_format_already_is_copied_byte_for_byte(magic: int, codec: Codec) -> None:
    source = log_of([Piece(magic, codec, tuple(rows(5))), Piece(magic, codec, tuple(rows(5, first=9)))])
    converted = convert_batches(source, magic)
    assert bytes(converted.data) == source and converted.records == 0


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize(("magic", "to_magic"), [(2, 1), (2, 0), (1, 0), (0, 1)])
def test_a_set_is_what_the_slow_encoder_makes_of_the_records(magic: int, to_magic: int, codec: Codec) -> None:
    records = rows(20, first=100)
    converted = convert_batches(Piece(magic, codec, tuple(records)).data, to_magic)
    seen = [row._replace(timestamp_ms=-1) if 0 in (magic, to_magic) else row for row in records]
    level = 1 if codec is Codec.GZIP and to_magic < magic else None  # for one answer it need not be the smallest
    assert converted.data == encode_message_set(seen, magic=to_magic, codec=codec, base_offset=100, level=level)
    assert converted.records == 20
    stored = convert_batches(Piece(magic, codec, tuple(records)).data, to_magic, is_stored=True)
    assert stored.data == encode_message_set(seen, magic=to_magic, codec=codec, base_offset=100)


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_up_a_wrapper_is_one_batch_and_messages_are_batches_up_to_a_size(magic: int, codec: Codec) -> None:
    records = rows(100, first=5)
    converted = convert_batches(Piece(magic, codec, tuple(records)).data, 2, batch_bytes=500)
    headers = [header for _, header in iter_any_headers(converted.data)]
    assert {header.codec for header in headers} == {codec}
    if codec is not Codec.NONE:
        assert len(headers) == 1
    else:
        assert len(headers) > 5 and all(header.size_bytes <= 500 for header in headers)
    assert all(one.next_offset == following.base_offset for one, following in pairwise(headers))


def test_each_codec_is_kept_and_headers_and_the_producer_are_lost_downwards() -> None:
    batch = encode_batch(
        rows(4, headers=True), codec=Codec.GZIP, producer_id=9, producer_epoch=1, base_sequence=0, is_transactional=True
    )
    converted = convert_batches(batch, 1)
    assert magics_and_codecs(converted.data) == {(1, Codec.GZIP)}
    assert decode_any(converted.data) == rows(4)


def test_gaps_stay_gaps_in_both_directions() -> None:
    kept = [row for i, row in enumerate(rows(60, first=1000)) if i % 7 not in (2, 3)]
    for codec in OLD_CODECS:
        down = convert_batches(with_gaps(kept, codec), 1)
        assert decode_any(down.data) == kept
        up = convert_batches(down.data, 2)
        assert decode_any(up.data) == kept
        starts = [header.base_offset for _, header in iter_any_headers(up.data)]
        assert starts == [
            row.offset for before, row in pairwise([rows(1)[0], *kept]) if row.offset - before.offset != 1
        ]


def test_relative_offsets_in_a_wrapper_count_from_its_first_record() -> None:
    kept = [rows(9, first=50)[i] for i in (2, 3, 7)]
    down = convert_batches(with_gaps(kept, Codec.GZIP), 1)
    (_, header), *rest = iter_any_headers(down.data)
    assert header.base_offset == 57 and not rest
    assert [each.offset for each in iter_messages(down.data)] == [52, 53, 57]


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_log_append_time_stays_its_type_and_wins(codec: Codec) -> None:
    piece = Piece(2, codec, tuple(rows(5)), append_time_ms=NOW_MS + 77)
    down = convert_batches(piece.data, 1).data
    assert all(header.is_log_append_time for _, header in iter_any_headers(down))
    assert {row.timestamp_ms for row in decode_any(down)} == {NOW_MS + 77}
    up = convert_batches(down, 2).data
    assert all(header.is_log_append_time and header.max_timestamp == NOW_MS + 77 for _, header in iter_any_headers(up))
    assert {row.timestamp_ms for row in decode_any(convert_batches(down, 0).data)} == {-1}


def test_a_timestamp_that_old_formats_cannot_say_becomes_none() -> None:
    odd = [Record(0, -5, b"k", b"v"), Record(1, NOW_MS, b"k", b"v")]
    for codec in OLD_CODECS:
        found = decode_any(convert_batches(encode_batch(odd, codec=codec), 1).data)
        assert [row.timestamp_ms for row in found] == [-1, NOW_MS]


# Where a conversion begins and stops


def test_markers_are_dropped_and_nothing_may_be_left() -> None:
    marker = Piece(2, Codec.NONE, (Record(5, NOW_MS, None, None),), is_control=True)
    assert convert_batches(marker.data, 1) == Converted(bytearray(), 0, 6, len(marker.data))
    data, end = Piece(2, Codec.NONE, tuple(rows(5))).data, Piece(2, Codec.LZ4, tuple(rows(3, first=6))).data
    converted = convert_batches(data + marker.data + end, 0)
    assert [row.offset for row in decode_any(converted.data)] == [0, 1, 2, 3, 4, 6, 7, 8]
    assert convert_batches(marker.data, 2).data == marker.data


def test_a_read_inside_a_batch_begins_at_its_offset_unless_it_is_compressed() -> None:
    """What Kafka does, and on which some versions of librdkafka rely."""
    for codec, first in ((Codec.NONE, 7), (Codec.GZIP, 5)):
        converted = convert_batches(Piece(2, codec, tuple(rows(5, first=5))).data, 1, from_offset=7)
        assert [row.offset for row in decode_any(converted.data)] == list(range(first, 10))
        assert converted.next_offset == 10


@given(pieces, st.sampled_from([0, 1]), st.integers(1, 600))
def test_reading_on_within_a_limit_gives_everything_once(parts: list[Piece], to_magic: int, max_bytes: int) -> None:
    source = log_of(parts)
    expected = [row for part in parts for row in part.seen_as(to_magic)]
    found: list[Record] = []
    position = offset = 0
    while position < len(source):
        converted = convert_batches(source[position:], to_magic, from_offset=offset, max_bytes=max_bytes)
        batches = list(iter_any_headers(converted.data))
        assert len(converted.data) <= max_bytes or len(batches) == 1
        found += [row for row in decode_any(converted.data) if row.offset >= offset]
        assert converted.next_offset > offset or converted.bytes_consumed
        position, offset = position + converted.bytes_consumed, converted.next_offset
    assert found == expected


def test_the_first_batch_comes_whole_however_small_the_limit() -> None:
    wrapper = convert_batches(Piece(2, Codec.GZIP, tuple(rows(50))).data, 1, max_bytes=1)
    assert len(decode_any(wrapper.data)) == 50
    messages = convert_batches(Piece(2, Codec.NONE, tuple(rows(50))).data, 1, max_bytes=1)
    assert len(decode_any(messages.data)) == 1
    assert (messages.records, messages.next_offset, messages.bytes_consumed) == (1, 1, 0)


def test_a_batch_cut_off_at_the_end_is_left_for_the_next_read() -> None:
    whole = Piece(2, Codec.NONE, tuple(rows(5))).data
    for cut in range(len(whole)):
        converted = convert_batches(whole + whole[:cut], 1)
        assert (converted.bytes_consumed, converted.next_offset, converted.records) == (len(whole), 5, 5)
    assert convert_batches(whole[:-1], 1) == Converted(bytearray(), 0, 0, 0)


@pytest.mark.parametrize("to_magic", [0, 1])
def test_zstd_does_not_go_down(to_magic: int) -> None:
    zstd = encode_batch(rows(3, first=5), base_offset=5, codec=Codec.ZSTD)
    with pytest.raises(UnsupportedCompressionType, match="zstd") as caught:
        convert_batches(zstd, to_magic)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    before = Piece(2, Codec.NONE, tuple(rows(5))).data
    converted = convert_batches(before + zstd, to_magic)
    assert (converted.records, converted.bytes_consumed, converted.next_offset) == (5, len(before), 5)
    assert convert_batches(zstd, 2).data == zstd


def test_there_are_three_formats() -> None:
    with pytest.raises(ValueError, match="unknown message format 3"):
        convert_batches(b"", 3)


# Damage


def test_damage_ends_a_conversion_before_it_and_is_told_once_it_comes_first() -> None:
    good = [Piece(magic, codec, tuple(rows(3, first=9 * magic))) for magic in MAGICS for codec in (Codec.NONE,)]
    for part in good:
        bad = bytearray(Piece(part.magic, part.codec, tuple(rows(1, first=100))).data)
        bad[-2] ^= 1
        to_magic = 1 if part.magic != 1 else 0
        converted = convert_batches(part.data + bad, to_magic)
        assert len(decode_any(converted.data)) == 3 and converted.bytes_consumed == len(part.data)
        with pytest.raises(CorruptMessage):
            convert_batches(bad, to_magic)


@given(pieces, st.sampled_from(MAGICS), st.data())
def test_any_flipped_bit_gives_a_typed_error_or_whole_batches(
    parts: list[Piece], to_magic: int, data: st.DataObject
) -> None:
    source = bytearray(log_of(parts))
    bit = data.draw(st.integers(0, len(source) * 8 - 1))
    source[bit >> 3] ^= 1 << (bit & 7)
    try:
        converted = convert_batches(source, to_magic, max_batch_bytes=1 << 20)
    except KafkaError:
        return
    assert sum(header.size_bytes for _, header in iter_any_headers(converted.data)) == len(converted.data)
    assert converted.bytes_consumed <= len(source)


def test_a_bomb_is_stopped_at_the_bound() -> None:
    bomb = encode_batch([Record(0, NOW_MS, None, bytes(4 << 20))], codec=Codec.GZIP)
    with pytest.raises(CorruptMessage, match="at most"):
        convert_batches(bomb, 1, max_batch_bytes=1 << 20)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(("magic", "to_magic"), [(2, 1), (2, 0), (1, 2)])
def test_memory_beside_the_result_does_not_grow_with_the_source(magic: int, to_magic: int, codec: Codec) -> None:
    records = [Record(i, NOW_MS, b"key", random.Random(i).randbytes(1000)) for i in range(250)]
    piece = Piece(magic, codec, tuple(records)).data
    source = piece * ((24 << 20) // len(piece))
    tracemalloc.start()
    try:
        converted = convert_batches(source, to_magic)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert converted.bytes_consumed == len(source) and len(converted.data) > 0.9 * len(source)
    assert peak - len(converted.data) < 12 * STEP_BYTES  # the result's own spare room, an eighth, is 3 of them
