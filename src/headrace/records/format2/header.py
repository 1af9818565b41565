"""The header of a record batch of format 2, and the fields that a broker sets in it.

      0  base_offset        int64   set by the broker
      8  batch_length       int32   bytes that follow this field: 49 or more
     12  leader_epoch       int32   set by the broker
     16  magic              int8    2; the older formats have it at the same position
     17  crc                uint32  CRC-32C of everything below
     21  attributes         int16   0-2 codec | 3 log append time | 4 transactional | 5 control | 6 delete horizon
     23  last_offset_delta  int32
     27  base_timestamp     int64   ms; records have deltas to it (the delete horizon, when bit 6 is set)
     35  max_timestamp      int64   ms
     43  producer_id        int64   -1: not idempotent
     51  producer_epoch     int16
     53  base_sequence      int32
     57  record_count       int32
     61  records, compressed together when a codec is set

The checksum does not cover the two fields that a broker sets at an append. So the producer's bytes go to the disk and
to the consumer unchanged. Source: Kafka's DefaultRecordBatch; KIP-98, KIP-101, KIP-534.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from headrace.errors import CorruptMessage
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX
from headrace.records.codecs.compression import Codec, decompress
from headrace.records.codecs.crc import crc32c

Bytes = bytes | bytearray | memoryview
Writable = bytearray | memoryview

MAGIC = 2
HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
"""The size of the base offset and the length, which `batch_length` does not count."""

NO_TIMESTAMP = -1
NO_SEQUENCE = -1

LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

_BATCH_LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES
_MAGIC_AT = 16
_CRC_AT = 17
CHECKED_FROM = 21
"""The position in a batch from which on the CRC covers its bytes."""

_SEQUENCES = 1 << 31  # the number of sequences; 0 follows the last one

_header = Struct(">qiibIhiqqqhii")
_int64 = Struct(">q")
_int32 = Struct(">i")
_uint32 = Struct(">I")
_attributes = Struct(">h")
_max_timestamp = Struct(">q")
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35
_LEADER_EPOCH_AT = 12


class BatchHeader(NamedTuple):
    """The fields of a batch's header, in the order of its bytes."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch in bytes, with its header."""
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """The offset of the last record (inclusive), or of the last one before compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, -1 without an idempotent producer; wraps to 0 after 2^31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES

    @property
    def codec(self) -> Codec:
        """The records' compression. Raises UnsupportedCompressionType for an unknown codec number."""
        return Codec.of_attributes(self.attributes)

    @property
    def is_log_append_time(self) -> bool:
        """Whether the broker has set `max_timestamp` as the timestamp of all records."""
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a marker instead of records."""
        return self.attributes & CONTROL_BIT != 0


def read_header(buf: Bytes, pos: int = 0) -> BatchHeader:
    """The header of the batch at `pos`. Its records may reach past the end of the buffer.

    Raises CorruptMessage for fewer than 61 bytes, a magic that is not 2, or a length shorter than a header.
    """
    if len(buf) - pos < HEADER_BYTES:
        raise CorruptMessage(f"{max(0, len(buf) - pos)} bytes are too few for a batch header, which has {HEADER_BYTES}")
    # All formats have the magic at the same position, and other fields elsewhere, so it is checked first.
    if buf[pos + _MAGIC_AT] != MAGIC:
        raise CorruptMessage(f"magic {buf[pos + _MAGIC_AT]} is not that of a batch of format {MAGIC}")
    header: BatchHeader = tuple.__new__(BatchHeader, _header.unpack_from(buf, pos))
    if header.batch_length < _BATCH_LENGTH_MIN:
        raise CorruptMessage(f"batch length {header.batch_length} is less than the minimum {_BATCH_LENGTH_MIN}")
    return header


def iter_headers(buf: Bytes, pos: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each complete batch from `pos` to `end` (exclusive; None: the buffer's end).

    Stops before an incomplete batch, as the last one of a Fetch response may be. Raises CorruptMessage as
    `read_header`.
    """
    if end is None:
        end = len(buf)
    while end - pos >= HEADER_BYTES:
        header = read_header(buf, pos)
        after = pos + header.size_bytes
        if after > end:
            return
        yield pos, header
        pos = after


def crc_is_valid(buf: Bytes, pos: int, header: BatchHeader) -> bool:
    """Whether the complete batch at `pos` matches its CRC."""
    return crc32c(memoryview(buf)[pos + CHECKED_FROM : pos + LOG_OVERHEAD_BYTES + header.batch_length]) == header.crc


def records_of(
    buf: Bytes, pos: int, header: BatchHeader, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> tuple[Bytes, int, int]:
    """The records of the complete batch at `pos`: a buffer, and their start and end (exclusive) in it.

    The buffer is `buf` itself when they are not compressed. Raises CorruptMessage when they do not decompress to at
    most `max_bytes`.
    """
    start, end = pos + HEADER_BYTES, pos + header.size_bytes
    codec = header.codec
    if codec is Codec.NONE:
        return buf, start, end
    records = decompress(codec, memoryview(buf)[start:end], max_bytes)
    return records, 0, len(records)


def pack_header(buf: Writable, pos: int, header: BatchHeader) -> BatchHeader:
    """Write a header in front of the records in `buf`, with their CRC. Returns the header with that CRC."""
    _header.pack_into(buf, pos, *header)
    return _seal(buf, pos, header)


def write_header(
    buf: Writable,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> None:
    """Write the header of a new batch, which is the whole of `buf`, with its CRC. As `pack_header`, without an object:
    small batches are many."""
    _header.pack_into(
        buf, 0, 0, len(buf) - LOG_OVERHEAD_BYTES, -1, MAGIC, 0, attributes, record_count - 1, base_timestamp,
        max_timestamp, producer_id, producer_epoch, base_sequence, record_count,
    )  # fmt: skip
    _uint32.pack_into(buf, _CRC_AT, crc32c(memoryview(buf)[CHECKED_FROM:]))


def set_base_offset(buf: Writable, base_offset: int, leader_epoch: int, pos: int = 0) -> None:
    """Set the base offset and the leader epoch of the batch at `pos`, in place. The CRC does not cover them."""
    _int64.pack_into(buf, pos, base_offset)
    _int32.pack_into(buf, pos + _LEADER_EPOCH_AT, leader_epoch)


def set_log_append_time(buf: Writable, header: BatchHeader, now_ms: int, pos: int = 0) -> BatchHeader:
    """Set `now_ms` as the log append time of all records, in place: attribute bit, max timestamp and CRC.

    Returns the new header.
    """
    attributes = header.attributes | LOG_APPEND_TIME_BIT
    _attributes.pack_into(buf, pos + _ATTRIBUTES_AT, attributes)
    return set_max_timestamp(buf, header._replace(attributes=attributes), now_ms, pos)


def set_transactional(buf: Writable, pos: int = 0) -> None:
    """Mark the complete batch at `pos` as transactional, in place: attribute bit and CRC."""
    header = read_header(buf, pos)
    header = header._replace(attributes=header.attributes | TRANSACTIONAL_BIT)
    _attributes.pack_into(buf, pos + _ATTRIBUTES_AT, header.attributes)
    _seal(buf, pos, header)


def set_max_timestamp(buf: Writable, header: BatchHeader, max_timestamp: int, pos: int = 0) -> BatchHeader:
    """Set the max timestamp, in place, with a new CRC. Returns the new header."""
    _max_timestamp.pack_into(buf, pos + _MAX_TIMESTAMP_AT, max_timestamp)
    return _seal(buf, pos, header._replace(max_timestamp=max_timestamp))


def _seal(buf: Writable, pos: int, header: BatchHeader) -> BatchHeader:
    crc = crc32c(memoryview(buf)[pos + CHECKED_FROM : pos + header.size_bytes])
    _uint32.pack_into(buf, pos + _CRC_AT, crc)
    return header._replace(crc=crc)
