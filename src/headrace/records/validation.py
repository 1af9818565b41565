"""What a broker asks of a produced batch before it appends the very same bytes.

    frame     one batch of format 2 that fills its bytes, no larger than `max.message.bytes`, CRC-32C right
    header    count and offset range agree; no control bit; no log append time; a producer id comes with a sequence
    records   exactly as many as counted, one behind the other to the last byte, offset deltas 0, 1, 2…; every length
              inside its record; a key in each when the topic is compacted; and the largest timestamp is the header's

One lying batch would stop every reader of its partition, so the records are walked, by the kernel and without an
object for any of them. Damage on the way (the CRC) is CorruptMessage, which clients retry; a batch that its producer
made wrong is InvalidRecord, which they do not. Source: Kafka's LogValidator and ProduceRequest.validateRecords, which
also sets a wrong max timestamp right, as we do.
"""

from headrace.errors import CorruptMessage, ErrorCode, InvalidRecord, KafkaError, MessageTooLarge
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX
from headrace.records import kernel
from headrace.records.compression import decompress
from headrace.records.crc import crc32c
from headrace.records.header import (
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
    """The header of the one batch that fills `buf`, once everything above holds.

    A wrong max timestamp is put right in `buf` where that is writable (and refused where not). Without
    `check_records` the producer is trusted from the CRC on. CorruptMessage, MessageTooLarge,
    UnsupportedCompressionType, InvalidRecord, or KafkaError with INVALID_TIMESTAMP.
    """
    size = len(buf)
    if size > _MAGIC_AT and buf[_MAGIC_AT] < MAGIC:
        raise InvalidRecord(f"magic {buf[_MAGIC_AT]}: this version of Produce carries batches of format {MAGIC} only")
    header = read_header(buf)
    batch_bytes = LOG_OVERHEAD_BYTES + header.batch_length
    if batch_bytes != size:
        if batch_bytes > size:
            raise InvalidRecord(f"exactly one batch per partition: of one of {batch_bytes} bytes {size} are there")
        raise InvalidRecord(f"exactly one batch per partition: {size - batch_bytes} bytes follow it")
    if size > max_message_bytes:
        raise MessageTooLarge(f"a batch of {size} bytes, over max.message.bytes ({max_message_bytes})")
    if crc32c(buf[CHECKED_FROM:]) != header.crc:
        raise CorruptMessage(f"CRC {header.crc} does not match the batch")
    _check_header(header)
    if check_records:
        return _check_records(buf, header, compacted, max_decompressed_bytes)
    return header


def _check_header(header: BatchHeader) -> None:
    """The rules that a producer's header must obey."""
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(f"{header.record_count} records and a last offset delta of {header.last_offset_delta}")
    attributes = header.attributes
    if attributes > _CODEC_BITS:
        if attributes & CONTROL_BIT:
            raise InvalidRecord("control records are the broker's to write")
        if attributes & LOG_APPEND_TIME_BIT:
            raise KafkaError("a producer does not set the log append time", ErrorCode.INVALID_TIMESTAMP)
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(f"producer {header.producer_id} sent a batch with sequence {header.base_sequence}")


def _check_records(buf: memoryview, header: BatchHeader, compacted: bool, max_decompressed_bytes: int) -> BatchHeader:
    """Walk the records; the header again, or what it should have been."""
    records: bytes | bytearray | memoryview = buf
    start = HEADER_BYTES
    if header.attributes & _CODEC_BITS:
        records = decompress(header.codec, buf[HEADER_BYTES:], max_decompressed_bytes)
        start = 0
    problem, record, max_timestamp = kernel.walk(
        records, start, len(records), header.record_count, header.base_timestamp, compacted
    )
    if problem:
        raise InvalidRecord(f"record {record} of the batch: {kernel.PROBLEMS[problem]}")
    if max_timestamp == header.max_timestamp:
        return header
    if buf.readonly:
        raise InvalidRecord(f"max timestamp {header.max_timestamp}, and a record has {max_timestamp}")
    return set_max_timestamp(buf, header, max_timestamp)
