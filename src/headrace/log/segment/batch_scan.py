"""Batch scans of a segment file: headers only, or complete batches with their CRC.

Look-ups scan headers, with one small read for every few batches. Recovery scans complete batches, in reads of one MiB,
and checks each batch. Both scans stop before a batch that is not complete in the file. A file may mix batches of all
formats. Before format 2 each message, or wrapper of messages, counts as a batch.
"""

from collections.abc import Iterator
from typing import Protocol

from headrace.errors import CorruptMessage
from headrace.log.files import LogFile
from headrace.log.segment.index_file import RELATIVE_OFFSET_MAX
from headrace.records.any_format import (
    ANY_HEADER_BYTES_MIN,
    any_crc_is_valid,
    any_header_bytes,
    read_any_header,
)
from headrace.records.format2.batch import Record, decode_records
from headrace.records.format2.header import HEADER_BYTES, MAGIC, BatchHeader, read_header
from headrace.records.legacy.message_set import decode_message_set

HEADERS_CHUNK_BYTES = 8192
RECOVERY_CHUNK_BYTES = 1 << 20
_MAGIC_AT = 16


class Readable(Protocol):
    """A file, as far as a scan of headers needs it."""

    def read(self, size: int, position: int) -> bytes:
        """Read `size` bytes at `position`; fewer only at the end of the file. Raises OSError."""


def read_headers(file: Readable, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each complete batch from `position` to `end` (exclusive, in bytes).

    Raises CorruptMessage for a damaged header, and OSError.
    """
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
    """Position and header of each batch from the beginning of the file up to the first bad one. Raises OSError.

    A bad batch is incomplete, or has a damaged header, a wrong CRC, or offsets that do not follow the ones before. The
    scan ends at `end` (exclusive, in bytes). `base_offset` is the segment's.
    """
    window = b""
    window_start = position = 0
    offset_max = base_offset + RELATIVE_OFFSET_MAX  # the segment's limit; no checksum covers an offset
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
    """The records of one batch of any format, without a CRC check. Raises CorruptMessage."""
    return decode_records(batch, header) if header.magic == MAGIC else decode_message_set(batch, check_crcs=False)
