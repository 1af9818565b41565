"""Writes a partition as a broker of Kafka 0.7 did: `.kafka` files named by byte position."""

from collections.abc import Iterable
from pathlib import Path

from headrace.log.filenames import offset_file
from headrace.log.files import Bytes, Files
from headrace.offline.segments_07 import SUFFIX, list_segments
from headrace.records.codecs.compression import Codec
from headrace.records.legacy.format_07 import encode_set

SEGMENT_BYTES = 512 << 20
"""0.7's default of `log.file.size`."""


class LogWriter07:
    """Appends to a partition's directory, which it makes if need be."""

    def __init__(self, files: Files, directory: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._files = files
        self._directory = directory
        self._segment_bytes = segment_bytes
        files.make_directory(directory)
        segments = list_segments(files, directory)
        self._base_offset = segments[-1].base_offset if segments else 0
        self._file = files.open(directory / offset_file(self._base_offset, SUFFIX), create=True)
        self._size = self._file.size()

    @property
    def next_offset(self) -> int:
        """The position that the next entry will begin at."""
        return self._base_offset + self._size

    def append(self, payloads: Iterable[Bytes], *, magic: int = 1, codec: Codec = Codec.NONE) -> int:
        """Write a set; the offset of its first entry. ValueError as `encode_set`."""
        return self.append_set(encode_set(payloads, magic=magic, codec=codec))

    def append_set(self, entries: Bytes) -> int:
        """Write a set of entries as it is; its offset. A segment that is over its size is left for a new one first."""
        if self._size > self._segment_bytes:
            self.flush()
            self._base_offset, self._size = self.next_offset, 0
            self._file = self._files.open(self._directory / offset_file(self._base_offset, SUFFIX), create=True)
        offset = self.next_offset
        self._file.write(entries, self._size)
        self._size += len(entries)
        return offset

    def flush(self) -> None:
        """Return once what was appended is on the disk."""
        self._file.sync()
        self._files.sync_directory(self._directory)
