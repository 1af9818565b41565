"""Reads the batches of a partition that no broker has open, without changing it, up to the first unreadable batch.

Messages of the formats before v2 are skipped: they never contained transactions or the coordinators' records, which
are the only contents needed here.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.errors import KafkaError
from headrace.log.filenames import LOG, is_segment_file, offset_of
from headrace.log.files import Files, LogFile
from headrace.records.format2.batch import HEADER_BYTES, BatchHeader, Record, crc_is_valid, decode_records, read_header

CHUNK_BYTES = 1 << 16
LENGTH_AT, MAGIC_AT = 8, 16
LOG_OVERHEAD_BYTES = 12


class FoundBatch(NamedTuple):
    """One batch, with its position."""

    header: BatchHeader
    file: LogFile
    position: int

    def read(self) -> bytes:
        """Its bytes."""
        return self.file.read(self.header.size_bytes, self.position)

    def records(self) -> list[Record]:
        """Its records. Raises CorruptMessage."""
        data = self.read()
        if not crc_is_valid(data, 0, self.header):
            raise KafkaError(f"the batch at offset {self.header.base_offset} has a wrong CRC")
        return decode_records(data, self.header)


def batches(files: Files, directory: Path, from_offset: int = 0) -> Iterator[FoundBatch]:
    """The batches of a partition from the one that holds `from_offset`, up to the first bad header of a segment."""
    names = [name for name in files.names(directory) if is_segment_file(name, LOG)]
    starts = [offset_of(name) for name in names]
    ends: list[int | None] = [*starts[1:], None]
    for name, next_start in zip(names, ends, strict=False):
        if next_start is not None and next_start <= from_offset:
            continue
        yield from _of_segment(files.open_readonly(directory / name), from_offset)


def _of_segment(file: LogFile, from_offset: int) -> Iterator[FoundBatch]:
    size = file.size()
    position = chunk_start = 0
    chunk = b""
    while position + HEADER_BYTES <= size:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_start, at = file.read(CHUNK_BYTES, position), position, 0
        if chunk[at + MAGIC_AT] < 2:
            length = int.from_bytes(chunk[at + LENGTH_AT : at + LOG_OVERHEAD_BYTES], "big", signed=True)
            if length <= 0:
                return
            position += LOG_OVERHEAD_BYTES + length
            continue
        try:
            header = read_header(chunk, at)
        except KafkaError:
            return
        if header.size_bytes > size - position:
            return
        if header.next_offset > from_offset:
            yield FoundBatch(header, file, position)
        position += header.size_bytes
