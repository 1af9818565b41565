"""The header of a record batch, format 2, and what a broker changes in it.

      0  base_offset        int64   set by the broker
      8  batch_length       int32   bytes that follow this field: 49 or more
     12  leader_epoch       int32   set by the broker
     16  magic              int8    2; the formats before have it at the same place
     17  crc                uint32  CRC-32C of everything below
     21  attributes         int16   0-2 codec | 3 log append time | 4 transactional | 5 control | 6 delete horizon
     23  last_offset_delta  int32
     27  base_timestamp     int64   ms; the records' are counted from it (or the delete horizon, when bit 6 is set)
     35  max_timestamp      int64   ms
     43  producer_id        int64   -1: not idempotent
     51  producer_epoch     int16
     53  base_sequence      int32
     57  record_count       int32
     61  records, compressed together when a codec is set

The two fields that a broker sets when it appends lie outside the checksum, so the producer's bytes go to disk, and
from there to the consumer, as they came. Source: Kafka's DefaultRecordBatch; KIP-98, KIP-101, KIP-534.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from headrace.errors import CorruptMessage
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX
from headrace.records.compression import Codec, decompress
from headrace.records.crc import crc32c

Bytes = bytes | bytearray | memoryview
Writable = bytearray | memoryview

MAGIC = 2
HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
"""Base offset and length, which `batch_length` does not count."""

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
"""Where in a batch the bytes start that its CRC covers."""

_SEQUENCES = 1 << 31  # after the last one comes 0

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
        """The whole batch, header included."""
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """The offset of the last record, or of the last one there was before compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset of whatever follows this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, -1 without an idempotent producer; wraps to 0 after 2^31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCES

    @property
    def codec(self) -> Codec:
        """How the records are compressed. UnsupportedCompressionType for a number that is no codec."""
        return Codec.of_attributes(self.attributes)

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record's timestamp is `max_timestamp`, set by the broker."""
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a marker instead of records."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer wrote it."""
        return self.producer_id >= 0


def read_header(buf: Bytes, pos: int = 0) -> BatchHeader:
    """The header of the batch at `pos`; the batch itself may reach past the buffer.

    CorruptMessage when fewer than 61 bytes are there, the magic is not 2, or the length is shorter than a header.
    """
    if len(buf) - pos < HEADER_BYTES:
        raise CorruptMessage(f"a batch header is {HEADER_BYTES} bytes, {max(0, len(buf) - pos)} are there")
    # The magic lies before everything that other formats have elsewhere, so it is looked at first.
    if buf[pos + _MAGIC_AT] != MAGIC:
        raise CorruptMessage(f"magic {buf[pos + _MAGIC_AT]} where a batch of format {MAGIC} should be")
    header: BatchHeader = tuple.__new__(BatchHeader, _header.unpack_from(buf, pos))
    if header.batch_length < _BATCH_LENGTH_MIN:
        raise CorruptMessage(f"batch length {header.batch_length} is less than a header's {_BATCH_LENGTH_MIN}")
    return header


def iter_headers(buf: Bytes, pos: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each complete batch from `pos` to `end` (exclusive; None: the buffer's end).

    Stops before a batch that is cut off, as the last one of a Fetch answer may be. CorruptMessage as `read_header`.
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
    """Whether the complete batch at `pos` is what its producer, or the broker after it, put the checksum on."""
    return crc32c(memoryview(buf)[pos + CHECKED_FROM : pos + LOG_OVERHEAD_BYTES + header.batch_length]) == header.crc


def records_of(
    buf: Bytes, pos: int, header: BatchHeader, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> tuple[Bytes, int, int]:
    """The records of the complete batch at `pos`: a buffer, and where in it they start and end.

    `buf` itself when they are not compressed. CorruptMessage when they do not decompress, or to over `max_bytes`.
    """
    start, end = pos + HEADER_BYTES, pos + header.size_bytes
    codec = header.codec
    if codec is Codec.NONE:
        return buf, start, end
    records = decompress(codec, memoryview(buf)[start:end], max_bytes)
    return records, 0, len(records)


def pack_header(buf: Writable, pos: int, header: BatchHeader) -> BatchHeader:
    """Write a header before the records that are there already, with the CRC that they give; returns it with that."""
    _header.pack_into(buf, pos, *header)
    return _seal(buf, pos, header)


def set_base_offset(buf: Writable, base_offset: int, leader_epoch: int, pos: int = 0) -> None:
    """Give the batch at `pos` its place in the log, in place; the checksum does not cover these fields."""
    _int64.pack_into(buf, pos, base_offset)
    _int32.pack_into(buf, pos + _LEADER_EPOCH_AT, leader_epoch)


def set_log_append_time(buf: Writable, header: BatchHeader, now_ms: int, pos: int = 0) -> BatchHeader:
    """Make `now_ms` every record's timestamp, in place: the attribute's bit, the max timestamp and a new CRC."""
    attributes = header.attributes | LOG_APPEND_TIME_BIT
    _attributes.pack_into(buf, pos + _ATTRIBUTES_AT, attributes)
    return set_max_timestamp(buf, header._replace(attributes=attributes), now_ms, pos)


def set_max_timestamp(buf: Writable, header: BatchHeader, max_timestamp: int, pos: int = 0) -> BatchHeader:
    """Set the max timestamp, in place, with a new CRC."""
    _max_timestamp.pack_into(buf, pos + _MAX_TIMESTAMP_AT, max_timestamp)
    return _seal(buf, pos, header._replace(max_timestamp=max_timestamp))


def _seal(buf: Writable, pos: int, header: BatchHeader) -> BatchHeader:
    crc = crc32c(memoryview(buf)[pos + CHECKED_FROM : pos + header.size_bytes])
    _uint32.pack_into(buf, pos + _CRC_AT, crc)
    return header._replace(crc=crc)
