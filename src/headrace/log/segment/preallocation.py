"""Preallocated space after the last batch of an active segment's file. A killed broker leaves it.

    file:   batch | batch | … | zeros up to `segment.bytes`                   `preallocate`: a hole, which takes no disk
    file:   batch | batch | … | zeros up to the next multiple of 128 KiB      room, of a file with 1 MiB and more

Room makes appends cheaper. Linux keeps a file in memory in folios, and a file system with large folios makes one of
what a single write brings to new pages. Batches of 15 KiB, each written to new pages, are in many small ones. The write
that needs new pages takes zeros along instead, and the writes after it find a large folio to copy to: an append of
15 KiB, with the flush and the deletion that follow it, takes the kernel half the time. On file systems without
large folios zeros are one more copy; there is no room there. Nor is there for topics that flush by themselves: the disk
would write the room twice.

For a reader, zeros are the end of the log. But zeros are not always preallocated space: a power failure can leave zeros
in place of acknowledged records. Source: Kafka's FileRecords, for `preallocate`.
"""

from os.path import dirname
from pathlib import Path

from headrace.config import TopicConfig
from headrace.limits import INT64_MAX, ROOM_BYTES
from headrace.log.files import Files, LogFile

AUTO, ALWAYS, NEVER = "auto", "always", "never"
"""Rules for room: where it pays, everywhere, nowhere."""
ROOM_FROM_BYTES = 1 << 20
"""The size from which on a file has room: room is an eighth of it at most."""

CHUNK_BYTES = 1 << 20


def rule_of(config: TopicConfig) -> str:
    """The rule for room of a topic with these settings."""
    flushes = config.flush_count < INT64_MAX or config.flush_ms < INT64_MAX
    return NEVER if flushes else config.preallocate_room


def makes_room(rule: str, files: Files, folder: str) -> bool:
    """Whether a segment in the partition's directory `folder` has room."""
    return rule != NEVER and (rule != AUTO or files.has_large_folios(dirname(folder)))  # noqa: PTH120 - a text


def is_zeros(file: LogFile, position: int, size: int) -> bool:
    """Whether the file has only zeros from `position` to `size` (exclusive, in bytes). Raises OSError."""
    while position < size:
        data = file.read(min(CHUNK_BYTES, size - position), position)
        if not data or data.count(0) < len(data):
            return False
        position += len(data)
    return True


def filled_to(file: LogFile, size: int) -> int:
    """The position behind the last byte before `size` that is no zero. Raises OSError.

    A reader of a file that a broker writes to asks for it first, and reads the batches that begin before it: those
    behind it come while it reads, and are not whole yet.
    """
    while size:
        start = max(0, size - CHUNK_BYTES)
        filled = len(file.read(size - start, start).rstrip(b"\0"))
        if filled:
            return start + filled
        size = start
    return 0


def is_room(files: Files, path: Path, file: LogFile, position: int) -> bool:
    """Whether a segment's file has only preallocated space from `position` on. Raises OSError."""
    size = file.size()
    return may_be_room(files.allocated_bytes(path), position, size) and is_zeros(file, position, size)


def may_be_room(allocated_bytes: int, position: int, size: int) -> bool:
    """Whether zeros from `position` to `size`, the file's, may be preallocated space.

    It is a hole, or ends where room does. Zeros that a power failure leaves have neither, but for one in 131,072.
    """
    return allocated_bytes < size or (size % ROOM_BYTES == 0 and size - position <= ROOM_BYTES)
