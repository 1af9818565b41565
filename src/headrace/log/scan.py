"""Going through the batches of a segment file: their headers alone, or everything with its CRC.

Headers alone are for look-ups: small reads, one for every few batches. Everything is for recovery: reads of a
megabyte, each batch checked. Both stop before a batch that the file does not hold completely. A batch may be of any
format, also one behind the other in one file; before format 2 each message, or wrapper of messages, is one.
"""

from collections.abc import Iterator

from headrace.errors import CorruptMessage
from headrace.log.files import LogFile
from headrace.log.index_file import RELATIVE_OFFSET_MAX
from headrace.records.any_format import (
    ANY_HEADER_BYTES_MIN,
    any_crc_is_valid,
    any_header_bytes,
    read_any_header,
)
from headrace.records.batch import Record, decode_records
from headrace.records.header import HEADER_BYTES, MAGIC, BatchHeader, read_header
from headrace.records.message_set import decode_message_set

HEADERS_CHUNK_BYTES = 8192
RECOVERY_CHUNK_BYTES = 1 << 20
_MAGIC_AT = 16


def read_headers(file: LogFile, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each complete batch from `position` to `end`. Raises CorruptMessage."""
    chunk = b""
    chunk_start = position
    while position + ANY_HEADER_BYTES_MIN <= end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_start, at = file.read(min(HEADERS_CHUNK_BYTES, end - position), position), position, 0
        if at + HEADER_BYTES <= len(chunk) and chunk[at + _MAGIC_AT] == MAGIC:
            header = read_header(chunk, at)
        elif position + any_header_bytes(chunk, at) <= end:
            header = read_any_header(chunk, at)
        else:
            return
        next_position = position + header.size_bytes
        if next_position > end:
            return
        yield position, header
        position = next_position


def read_checked(file: LogFile, end: int, base_offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from the beginning of the file up to the first bad one.

    Bad is a batch that is torn, whose header makes no sense, whose CRC is wrong, or whose offsets do not follow the
    ones before.
    """
    window = b""
    window_start = position = 0
    offset_max = base_offset + RELATIVE_OFFSET_MAX  # a segment's; no checksum covers an offset
    while position < end:
        at = position - window_start
        if at + HEADER_BYTES > len(window):
            window, window_start, at = file.read(RECOVERY_CHUNK_BYTES, position), position, 0
        try:
            header = read_any_header(window, at)
        except CorruptMessage:
            return
        if header.size_bytes > end - position or not (
            base_offset <= header.base_offset <= offset_max - header.last_offset_delta
        ):
            return
        if at + header.size_bytes > len(window):
            window, window_start, at = file.read(max(RECOVERY_CHUNK_BYTES, header.size_bytes), position), position, 0
        if not any_crc_is_valid(window, at, header):
            return
        yield position, header
        base_offset = header.next_offset
        position += header.size_bytes


def records_in(batch: bytes | memoryview, header: BatchHeader) -> list[Record]:
    """The records of one batch of any format, its CRC unchecked. Raises CorruptMessage."""
    return decode_records(batch, header) if header.magic == MAGIC else decode_message_set(batch, check_crcs=False)
