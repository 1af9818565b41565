import pytest
from hypothesis import given

from headrace.errors import CorruptMessage
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import (
    HEADER_BYTES,
    Record,
    crc_is_valid,
    decode_records,
    encode_batch,
    iter_headers,
    read_header,
    set_base_offset,
    set_log_append_time,
)
from tests.records.samples import CODECS, golden_batch, golden_records, records

ONE = [Record(0, 1524709879130, b"key", b"value")]


def test_one_record_takes_76_bytes_with_the_crc_that_kafka_1_0_printed() -> None:
    batch = encode_batch(ONE, leader_epoch=0)
    header = read_header(batch)
    assert len(batch) == header.size_bytes == 76
    assert header.crc == 2857248333


def test_a_null_key_takes_its_three_bytes_less() -> None:
    assert len(encode_batch([Record(0, 1524709879130, None, b"value")])) == 73


def test_ten_records_of_six_bytes_take_191_bytes() -> None:
    assert len(encode_batch([Record(0, 1524712213771, None, b"6bytes")] * 10, base_offset=2)) == 191


def test_the_header_is_61_bytes() -> None:
    assert HEADER_BYTES == 61 == len(encode_batch(ONE)) - 15


@pytest.mark.parametrize("codec", CODECS)
def test_reads_what_apache_kafka_wrote(codec: Codec) -> None:
    batch = golden_batch(codec.name.lower())
    header = read_header(batch)
    assert crc_is_valid(batch, 0, header)
    assert header.codec is codec
    assert (header.base_offset, header.leader_epoch, header.record_count) == (1000, 5, 300)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (42, 3, 7, 306)
    assert decode_records(batch, header) == golden_records()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY, Codec.LZ4])
def test_writes_the_very_bytes_that_apache_kafka_writes(codec: Codec) -> None:
    ours = encode_batch(
        golden_records(),
        base_offset=1000,
        codec=codec,
        leader_epoch=5,
        producer_id=42,
        producer_epoch=3,
        base_sequence=7,
    )
    assert ours == golden_batch(codec.name.lower())


@pytest.mark.parametrize("codec", CODECS)
@given(rows=records)
def test_reads_what_it_wrote(codec: Codec, rows: list[Record]) -> None:
    batch = encode_batch(rows, codec=codec)
    assert decode_records(batch) == rows
    header = read_header(batch)
    assert crc_is_valid(batch, 0, header)
    assert header.base_timestamp == rows[0].timestamp_ms
    assert header.max_timestamp == max(row.timestamp_ms for row in rows)
    assert header.next_offset == len(rows)


def test_the_broker_sets_offset_and_epoch_outside_the_crc() -> None:
    batch = bytearray(b"before") + encode_batch(ONE)
    set_base_offset(batch, 12345, 6, pos=6)
    header = read_header(batch, 6)
    assert (header.base_offset, header.leader_epoch, header.last_offset) == (12345, 6, 12345)
    assert crc_is_valid(batch, 6, header)


def test_log_append_time_is_every_records_timestamp() -> None:
    batch = bytearray(b"before") + encode_batch([*ONE, *ONE], codec=Codec.GZIP)
    changed = set_log_append_time(memoryview(batch), read_header(batch, 6), 99, pos=6)
    header = read_header(batch, 6)
    assert changed == header
    assert header.is_log_append_time and header.max_timestamp == 99 and header.codec is Codec.GZIP
    assert crc_is_valid(batch, 6, header)
    assert [record.timestamp_ms for record in decode_records(memoryview(batch)[6:])] == [99, 99]


def test_sequences_wrap_to_zero() -> None:
    header = read_header(encode_batch(ONE * 3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0
    assert read_header(encode_batch(ONE)).last_sequence == -1


def test_attributes_tell_transactions_and_markers() -> None:
    header = read_header(encode_batch(ONE, is_transactional=True, is_control=True, codec=Codec.ZSTD))
    assert header.is_transactional and header.is_control and header.codec is Codec.ZSTD
    assert not header.is_log_append_time and header.producer_id == -1


def test_walks_the_headers_of_whole_batches_and_stops_before_a_torn_one() -> None:
    one, two = encode_batch(ONE), encode_batch(ONE * 2, base_offset=1)
    buf = b"xx" + one + two
    assert [pos for pos, _ in iter_headers(buf, 2)] == [2, 2 + len(one)]
    for cut in range(len(two)):
        assert [header.base_offset for _, header in iter_headers(buf, 2, 2 + len(one) + cut)] == [0]


@pytest.mark.parametrize("size", [0, 1, 60])
def test_a_header_cut_short_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptMessage):
        read_header(encode_batch(ONE)[:size])


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_another_magic_is_corrupt(magic: int) -> None:
    batch = encode_batch(ONE)
    batch[16] = magic
    with pytest.raises(CorruptMessage, match=f"magic {magic}"):
        read_header(batch)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_length_less_than_a_header_is_corrupt(length: int) -> None:
    batch = encode_batch(ONE)
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptMessage, match="length"):
        read_header(batch)


def test_an_empty_batch_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])


def test_header_names_that_are_no_utf8_are_read_as_java_reads_them() -> None:
    batch = encode_batch([Record(0, 0, None, None, (("@", b"x"),))])
    batch[batch.index(b"@")] = 0xFF
    assert decode_records(batch)[0].headers == (("�", b"x"),)
