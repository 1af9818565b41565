"""Preallocated space after the last batch of a segment's file: made by `preallocate`, left by a killed broker.

    file:   batch | batch | … | zeros up to `segment.bytes`

For a reader, zeros are the end of the log. But zeros are not always preallocated space: a power failure can leave zeros
in place of acknowledged records. Preallocated space is a hole in the file and takes no disk. Source: Kafka's
FileRecords.
"""

from pathlib import Path

from headrace.log.files import Files, LogFile

CHUNK_BYTES = 1 << 20


def is_zeros(file: LogFile, position: int, size: int) -> bool:
    """Whether the file has only zeros from `position` to `size` (exclusive, in bytes). Raises OSError."""
    while position < size:
        data = file.read(min(CHUNK_BYTES, size - position), position)
        if not data or data.count(0) < len(data):
            return False
        position += len(data)
    return True


def is_room(files: Files, path: Path, file: LogFile, position: int) -> bool:
    """Whether a segment's file has only preallocated space from `position` on. Raises OSError."""
    return files.allocated_bytes(path) < file.size() and is_zeros(file, position, file.size())
