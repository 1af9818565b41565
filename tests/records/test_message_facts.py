"""Sizes and checksums of the three formats, as Kafka's releases were seen to write them.

The numbers come from logs of Kafka 0.8.2.1, 0.10 and 1.0.0 and their dump tool; they do not come from this code.
"""

import struct

from headrace.records.format2.batch import Record, encode_batch
from headrace.records.format2.header import HEADER_BYTES, LOG_OVERHEAD_BYTES, read_header
from headrace.records.legacy.message import MESSAGE_OVERHEAD_BYTES
from headrace.records.legacy.message_set import encode_message_set

CREATED_MS = 1524709879130
KEY_AND_VALUE = [Record(0, CREATED_MS, b"key", b"value")]
VALUE_ALONE = [Record(0, CREATED_MS, None, b"value")]
TEN = [Record(i, 1524712213771, None, b"value%d" % i) for i in range(10)]


def crc_of(message_set: bytes | bytearray) -> int:
    return int.from_bytes(message_set[12:16], "big")


def test_a_message_of_format_0_has_34_bytes_and_that_crc() -> None:
    message_set = encode_message_set(KEY_AND_VALUE, magic=0)
    assert (len(message_set), crc_of(message_set)) == (34, 592888119)


def test_its_null_key_takes_three_bytes_less() -> None:
    assert len(encode_message_set(VALUE_ALONE, magic=0)) == 31


def test_format_1_adds_a_timestamp_of_eight_bytes() -> None:
    assert len(encode_message_set(KEY_AND_VALUE, magic=1)) == 42
    assert len(encode_message_set(VALUE_ALONE, magic=1)) == 39


def test_the_same_record_is_a_batch_of_76_bytes_in_format_2_and_that_crc() -> None:
    batch = encode_batch(KEY_AND_VALUE, leader_epoch=0)
    assert (len(batch), read_header(batch).crc) == (76, 2857248333)
    assert len(encode_batch(VALUE_ALONE)) == 73


def test_ten_records_are_191_bytes_where_the_older_formats_take_320_and_400() -> None:
    assert len(encode_batch(TEN)) == 191
    assert len(encode_message_set(TEN, magic=0)) == 10 * (12 + 14 + 6) == 320
    assert len(encode_message_set(TEN, magic=1)) == 10 * (12 + 22 + 6) == 400


def test_the_least_overheads_are_14_and_22_bytes_behind_12_of_offset_and_size() -> None:
    assert MESSAGE_OVERHEAD_BYTES == (14, 22)
    assert LOG_OVERHEAD_BYTES == 12
    for magic, overhead in enumerate(MESSAGE_OVERHEAD_BYTES):
        assert len(encode_message_set([Record(0, -1, None, None)], magic=magic)) == 12 + overhead


def test_a_batch_starts_with_61_bytes_each_field_at_its_place() -> None:
    batch = encode_batch(
        [Record(5, 100, b"k", b"v"), Record(6, 300, b"k", b"v")], base_offset=5, leader_epoch=9, producer_id=77,
        producer_epoch=3, base_sequence=11, is_transactional=True,
    )  # fmt: skip
    assert HEADER_BYTES == 61
    places = {
        "base_offset": (0, ">q", 5),
        "batch_length": (8, ">i", len(batch) - 12),
        "leader_epoch": (12, ">i", 9),
        "magic": (16, ">b", 2),
        "crc": (17, ">I", read_header(batch).crc),
        "attributes": (21, ">h", 0x10),
        "last_offset_delta": (23, ">i", 1),
        "base_timestamp": (27, ">q", 100),
        "max_timestamp": (35, ">q", 300),
        "producer_id": (43, ">q", 77),
        "producer_epoch": (51, ">h", 3),
        "base_sequence": (53, ">i", 11),
        "record_count": (57, ">i", 2),
    }
    for name, (at, form, value) in places.items():
        assert struct.unpack_from(form, batch, at)[0] == value, name
        assert getattr(read_header(batch), name) == value
