from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import (
    CorruptMessage,
    ErrorCode,
    InvalidRecord,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from headrace.records.codecs.compression import Codec, compress
from headrace.records.format2 import validation
from headrace.records.format2.batch import (
    BatchHeader,
    Record,
    crc_is_valid,
    decode_records,
    encode_batch,
    read_header,
    set_log_append_time,
)
from headrace.records.format2.header import HEADER_BYTES, pack_header
from headrace.records.format2.validation import check_produced
from tests.examples import examples
from tests.records.samples import CODECS, golden_batch, records, uncompiled_kernel

ROWS = [Record(i, 1000 + i, b"k%d" % i, b"value", (("name", None),)) for i in range(3)]
MIB = 1 << 20


def check(batch: bytes | bytearray, **settings: object) -> BatchHeader:
    return check_produced(memoryview(batch), **{"max_message_bytes": MIB, **settings})  # type: ignore[arg-type]


def resealed(batch: bytearray, **changes: int) -> bytearray:
    """The batch with other header fields and a CRC that is right, as a producer that lies would send it."""
    pack_header(batch, 0, read_header(batch)._replace(**changes))
    return batch


def with_records(data: bytes, codec: Codec = Codec.NONE, **changes: int) -> bytearray:
    """A batch whose header is right and whose records are some bytes."""
    template = encode_batch(ROWS)
    batch = template[:HEADER_BYTES] + compress(codec, data)
    return resealed(batch, batch_length=len(batch) - 12, attributes=codec, **changes)


def body(batch: bytearray) -> bytes:
    return bytes(batch[HEADER_BYTES:])


@pytest.mark.parametrize("codec", CODECS)
def test_takes_what_apache_kafkas_producer_sends(codec: Codec) -> None:
    batch = golden_batch(codec.name.lower())
    assert check(batch) == read_header(batch)


@pytest.mark.parametrize("codec", CODECS)
@given(rows=records)
def test_takes_every_batch_that_is_well_formed(codec: Codec, rows: list[Record]) -> None:
    batch = encode_batch(rows, codec=codec)
    assert check(batch) == read_header(batch)


def test_a_flipped_bit_anywhere_behind_the_crc_is_corrupt() -> None:
    batch = encode_batch(ROWS)
    for at in range(17, len(batch)):
        batch[at] ^= 0x10
        with pytest.raises(CorruptMessage, match="CRC"):
            check(batch)
        batch[at] ^= 0x10


def test_every_prefix_is_an_error() -> None:
    batch = encode_batch(ROWS)
    for size in range(len(batch)):
        with pytest.raises(KafkaError):
            check(batch[:size])


def test_two_batches_are_not_one() -> None:
    with pytest.raises(InvalidRecord, match="exactly one"):
        check(encode_batch(ROWS) * 2)


@pytest.mark.parametrize("magic", [0, 1])
def test_older_formats_are_not_for_this_version_of_produce(magic: int) -> None:
    batch = encode_batch(ROWS)
    batch[16] = magic
    with pytest.raises(InvalidRecord, match="magic"):
        check(batch)


def test_magic_3_is_corrupt() -> None:
    with pytest.raises(CorruptMessage, match="magic 3"):
        check(resealed(encode_batch(ROWS), magic=3))


def test_one_byte_over_the_maximum_is_too_large() -> None:
    batch = encode_batch(ROWS)
    assert check(batch, max_message_bytes=len(batch))
    with pytest.raises(MessageTooLarge):
        check(batch, max_message_bytes=len(batch) - 1)


@pytest.mark.parametrize("lie", [-1, 1, 76, 2**31 - 300])
def test_a_length_that_lies_is_an_error(lie: int) -> None:
    batch = encode_batch(ROWS)
    header = read_header(batch)
    batch[8:12] = (header.batch_length + lie).to_bytes(4, "big", signed=True)
    with pytest.raises(KafkaError):
        check(batch)


@pytest.mark.parametrize("count", [2, 4, 0, -1, 2**31 - 1])
def test_a_count_that_lies_is_refused(count: int) -> None:
    with pytest.raises(InvalidRecord):
        check(resealed(encode_batch(ROWS), record_count=count))
    with pytest.raises(InvalidRecord):
        check(resealed(encode_batch(ROWS), record_count=count, last_offset_delta=count - 1))


@pytest.mark.parametrize("delta", [-1, 0, 1, 3, 2**31 - 1])
def test_a_last_offset_delta_that_lies_is_refused(delta: int) -> None:
    with pytest.raises(InvalidRecord):
        check(resealed(encode_batch(ROWS), last_offset_delta=delta))


def test_offset_deltas_that_do_not_count_up_are_refused() -> None:
    one, two, three = (body(encode_batch([row])) for row in ROWS)
    with pytest.raises(InvalidRecord, match="record 1 .*offset delta"):
        check(with_records(one + two + three))


@pytest.mark.parametrize("codec", CODECS)
def test_bytes_behind_the_last_record_are_refused(codec: Codec) -> None:
    with pytest.raises(InvalidRecord, match="follow"):
        check(with_records(body(encode_batch(ROWS)) + b"\x00", codec))


@pytest.mark.parametrize("codec", CODECS)
def test_records_cut_short_are_refused(codec: Codec) -> None:
    whole = body(encode_batch(ROWS))
    for size in range(len(whole)):
        with pytest.raises(InvalidRecord):
            check(with_records(whole[:size], codec))


LIES: dict[str, str] = {
    "length longer than the batch": "7e0000000101010000",
    "length shorter than the fields": "0a000000010100",
    "length negative": "0100000001010000",
    "key longer than the record": "0e0000007e010000",
    "key length -2": "0e000000030100",
    "value longer than the record": "0e000000017e0000",
    "header count negative": "0c000000010101",
    "header count too large": "0c000000010104",
    "header key null": "1000000001010201",
    "header key too long": "10000000010102fe01",
    "timestamp of 11 bytes": "2000ffffffffffffffffffff0100010100",
    "nothing": "00",
}


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_record_that_lies_is_refused(lie: str) -> None:
    data = bytes.fromhex(LIES[lie])
    with pytest.raises(InvalidRecord, match="record 0"):
        check(with_records(data, record_count=1, last_offset_delta=0))


def test_a_timestamp_past_64_bits_is_refused() -> None:
    batch = encode_batch(ROWS)
    with pytest.raises(InvalidRecord, match="timestamp"):
        check(resealed(batch, base_timestamp=2**63 - 1))


def test_a_wrong_max_timestamp_is_put_right() -> None:
    batch = resealed(encode_batch(ROWS), max_timestamp=5)
    header = check(batch)
    assert header.max_timestamp == 1002
    assert header == read_header(batch)
    assert crc_is_valid(batch, 0, header)
    with pytest.raises(InvalidRecord, match="max timestamp"):
        check(bytes(resealed(batch, max_timestamp=5)))


def test_a_client_writes_no_control_records() -> None:
    with pytest.raises(InvalidRecord, match="control"):
        check(encode_batch(ROWS, is_control=True))


def test_a_client_sets_no_log_append_time() -> None:
    batch = encode_batch(ROWS)
    set_log_append_time(batch, read_header(batch), 5)
    with pytest.raises(KafkaError) as refused:
        check(batch)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP


def test_an_idempotent_producer_counts() -> None:
    assert check(encode_batch(ROWS, producer_id=1, producer_epoch=0, base_sequence=0))
    with pytest.raises(InvalidRecord, match="sequence"):
        check(encode_batch(ROWS, producer_id=1, producer_epoch=0, base_sequence=-1))


def test_a_compacted_topic_wants_keys() -> None:
    assert check(encode_batch(ROWS), compacted=True)
    with pytest.raises(InvalidRecord, match="record 3 .*compacted"):
        check(encode_batch([*ROWS, Record(3, 0, None, b"")]), compacted=True)


@pytest.mark.parametrize("number", [5, 6, 7])
def test_an_unknown_codec_is_named(number: int) -> None:
    with pytest.raises(UnsupportedCompressionType):
        check(resealed(encode_batch(ROWS), attributes=number))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_records_that_unpack_to_more_than_the_bound_are_refused(codec: Codec) -> None:
    bomb = encode_batch([Record(0, 0, None, bytes(MIB))], codec=codec)
    assert check(bomb, max_decompressed_bytes=2 * MIB)
    with pytest.raises(CorruptMessage):
        check(bomb, max_decompressed_bytes=MIB)


def test_without_the_walk_only_frame_crc_and_header_are_checked() -> None:
    assert check(with_records(b"not records"), check_records=False)
    with pytest.raises(InvalidRecord):
        check(with_records(b"not records")[:-1], check_records=False)


@settings(max_examples=examples(300))
@given(rows=records, codec=st.sampled_from(CODECS), data=st.data())
def test_damaged_records_under_a_right_crc_are_refused_or_readable(
    rows: list[Record], codec: Codec, data: st.DataObject
) -> None:
    damaged = bytearray(body(encode_batch(rows)))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    batch = with_records(bytes(damaged), codec, record_count=len(rows), last_offset_delta=len(rows) - 1)
    try:
        header = check(batch)
    except KafkaError:
        return
    assert len(decode_records(batch, header)) == len(rows)


@pytest.mark.parametrize(
    "test",
    [
        test_offset_deltas_that_do_not_count_up_are_refused,
        test_a_timestamp_past_64_bits_is_refused,
        test_a_wrong_max_timestamp_is_put_right,
        test_a_compacted_topic_wants_keys,
    ],
    ids=lambda test: test.__name__,
)
def test_the_uncompiled_kernel_refuses_the_same(test: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "kernel", uncompiled_kernel())
    test()
