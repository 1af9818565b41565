"""Validation of a produced batch, before the broker appends its bytes unchanged.

    frame     one batch of format 2 that fills its bytes, no larger than `max.message.bytes`, CRC-32C right
    header    count and offset range agree; no control bit; no log append time; a producer id comes with a sequence
    records   exactly as many as counted, one behind the other to the last byte, offset deltas 0, 1, 2…; every length
              inside its record; a key in each when the topic is compacted; and the largest timestamp is the header's

One inconsistent batch would stop every reader of its partition, so the kernel checks every record, without an object
for any of them. Damage in transit (a wrong CRC) is CorruptMessage, which clients retry. A batch that its producer built
wrongly is InvalidRecord, which they do not retry. A wrong max timestamp is corrected, as in Apache Kafka. Source:
Kafka's LogValidator and ProduceRequest.validateRecords.
"""

from headrace.errors import CorruptMessage, ErrorCode, InvalidRecord, KafkaError, KeylessRecord, MessageTooLarge
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX
from headrace.records.codecs.compression import decompress
from headrace.records.codecs.crc import crc32c
from headrace.records.format2 import kernel
from headrace.records.format2.header import (
    CHECKED_FROM,
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    read_header,
    set_max_timestamp,
)

_CODEC_BITS = 0x07
_MAGIC_AT = 16


def check_produced(
    buf: memoryview,
    *,
    max_message_bytes: int,
    compacted: bool = False,
    check_records: bool = True,
    max_decompressed_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX,
) -> BatchHeader:
    """Check the one batch that fills `buf` by the rules above, and return its header.

    Corrects a wrong max timestamp in a writable `buf`, and refuses it in a read-only one. Without `check_records` only
    the frame and the header are checked. `compacted` requires a key in each record. Raises CorruptMessage,
    MessageTooLarge, UnsupportedCompressionType, InvalidRecord (or its subclass KeylessRecord), or KafkaError with
    INVALID_TIMESTAMP.
    """
    size = len(buf)
    if size > _MAGIC_AT and buf[_MAGIC_AT] < MAGIC:
        raise InvalidRecord(
            f"magic {buf[_MAGIC_AT]} is refused: this version of Produce requires batches of format {MAGIC}"
        )
    if size < HEADER_BYTES:  # as for every other batch that is not whole
        raise InvalidRecord(f"the batch has only {size} bytes: fewer than the {HEADER_BYTES} of its header")
    header = read_header(buf)
    batch_bytes = LOG_OVERHEAD_BYTES + header.batch_length
    if batch_bytes != size:
        if batch_bytes > size:
            raise InvalidRecord(f"the batch has only {size} of its {batch_bytes} bytes")
        raise InvalidRecord(f"{size - batch_bytes} bytes follow the batch: a partition must have exactly one batch")
    if size > max_message_bytes:
        raise MessageTooLarge(f"the batch has {size} bytes, more than max.message.bytes={max_message_bytes}")
    if crc32c(buf[CHECKED_FROM:]) != header.crc:
        raise CorruptMessage(f"the batch does not match its CRC {header.crc}")
    _check_header(header)
    if check_records:
        return _check_records(buf, header, compacted, max_decompressed_bytes)
    return header


def _check_header(header: BatchHeader) -> None:
    """Check the header of a producer's batch. Raises InvalidRecord, or KafkaError with INVALID_TIMESTAMP."""
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(
            f"the batch has {header.record_count} records, but the last offset delta {header.last_offset_delta}"
        )
    attributes = header.attributes
    if attributes > _CODEC_BITS:
        if attributes & CONTROL_BIT:
            raise InvalidRecord("a producer cannot write control records")
        if attributes & LOG_APPEND_TIME_BIT:
            raise KafkaError("a producer cannot set the timestamp type LogAppendTime", ErrorCode.INVALID_TIMESTAMP)
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(
            f"producer {header.producer_id} sent a batch with the invalid sequence {header.base_sequence}"
        )


def _check_records(buf: memoryview, header: BatchHeader, compacted: bool, max_decompressed_bytes: int) -> BatchHeader:
    """Check the records. Returns the header, with the max timestamp corrected."""
    records: bytes | bytearray | memoryview = buf
    start = HEADER_BYTES
    if header.attributes & _CODEC_BITS:
        records = decompress(header.codec, buf[HEADER_BYTES:], max_decompressed_bytes)
        start = 0
    problem, record, max_timestamp = kernel.walk(
        records, start, len(records), header.record_count, header.base_timestamp, compacted
    )
    if problem:
        kind = KeylessRecord if problem == kernel.NO_KEY else InvalidRecord
        raise kind(f"record {record} of the batch: {kernel.PROBLEMS[problem]}")
    if max_timestamp == header.max_timestamp:
        return header
    if buf.readonly:
        raise InvalidRecord(f"the batch has the max timestamp {header.max_timestamp}, but a record has {max_timestamp}")
    return set_max_timestamp(buf, header, max_timestamp)
