"""Going through the batches of a segment file: their headers alone, or everything with its CRC.

Headers alone are for look-ups: small reads, one for every few batches. Everything is for recovery: reads of a
megabyte, each batch checked. Both stop before a batch that the file does not hold completely.
"""

import zlib
from collections.abc import Iterator

from headrace.errors import CorruptMessage, UnsupportedForMessageFormat
from headrace.log.files import LogFile
from headrace.records.header import HEADER_BYTES, BatchHeader, crc_is_valid, read_header

LENGTH_START = 8
LENGTH_END = 12
"""Base offset and length come first; neither is counted in the length."""

HEADERS_CHUNK_BYTES = 8192
RECOVERY_CHUNK_BYTES = 1 << 20
LEGACY_CRC_END = 16
LEGACY_BYTES_MIN = 26


def read_headers(file: LogFile, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each complete batch from `position` to `end`. Raises CorruptMessage."""
    chunk = b""
    chunk_start = position
    while position + HEADER_BYTES <= end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_start, at = file.read(min(HEADERS_CHUNK_BYTES, end - position), position), position, 0
        header = read_header(chunk, at)
        next_position = position + header.size_bytes
        if next_position > end:
            return
        yield position, header
        position = next_position


def read_checked(file: LogFile, end: int, base_offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from the beginning of the file up to the first bad one.

    Bad is a batch that is torn, whose header makes no sense, whose CRC is wrong, or whose offsets do not follow the
    ones before. Raises UnsupportedForMessageFormat for a good message of the formats before v2, which must not be
    taken for garbage.
    """
    window = b""
    window_start = position = 0
    while position < end:
        at = position - window_start
        if at + HEADER_BYTES > len(window):
            window, window_start, at = file.read(RECOVERY_CHUNK_BYTES, position), position, 0
        try:
            header = read_header(window, at)
        except CorruptMessage:
            _refuse_legacy(window, at, position)
            return
        if header.size_bytes > end - position or header.base_offset < base_offset:
            return
        if at + header.size_bytes > len(window):
            window, window_start, at = file.read(max(RECOVERY_CHUNK_BYTES, header.size_bytes), position), position, 0
        if not crc_is_valid(window, at, header):
            return
        yield position, header
        base_offset = header.next_offset
        position += header.size_bytes


def _refuse_legacy(window: bytes, at: int, position: int) -> None:
    """Raise if a whole message of format v0 or v1 begins at `at`."""
    end = at + LENGTH_END + int.from_bytes(window[at + LENGTH_START : at + LENGTH_END], "big", signed=True)
    if end - at < LEGACY_BYTES_MIN or end > len(window) or window[at + LEGACY_CRC_END] > 1:
        return
    crc = int.from_bytes(window[at + LENGTH_END : at + LEGACY_CRC_END], "big")
    if crc == zlib.crc32(window[at + LEGACY_CRC_END : end]):
        raise UnsupportedForMessageFormat(f"at position {position} is a message of a format before v2")
