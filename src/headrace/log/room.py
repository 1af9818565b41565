"""Room behind the last batch of a segment's file: `preallocate` makes it, and a broker that was killed leaves it.

    file:   batch | batch | … | zeros up to `segment.bytes`

To a reader zeros are the end. Whether they were ever written is another question: a power failure can put zeros where
acknowledged records were to go. What was made in advance is a hole, and takes no space. Source: Kafka's FileRecords.
"""

from pathlib import Path

from headrace.log.files import Files, LogFile

CHUNK_BYTES = 1 << 20


def is_zeros(file: LogFile, position: int, size: int) -> bool:
    """Whether there is nothing but zeros from `position` to `size`."""
    while position < size:
        data = file.read(min(CHUNK_BYTES, size - position), position)
        if not data or data.count(0) < len(data):
            return False
        position += len(data)
    return True


def is_room(files: Files, path: Path, file: LogFile, position: int) -> bool:
    """Whether a segment's file ends at `position` with zeros that nobody wrote."""
    return files.allocated_bytes(path) < file.size() and is_zeros(file, position, file.size())
