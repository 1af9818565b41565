"""Checkpoint files: small text files with one offset for each partition (or each leader epoch).

    0                       version
    2                       number of entries
    flights 0 191427        entry: topic partition offset        (*-checkpoint in a data directory)
    flights 1 59266
                            entry: epoch start_offset            (leader-epoch-checkpoint in a partition)

A file is always replaced as a whole: written under another name, synced, renamed. An empty file has no entries; Apache
Kafka creates one before the first write. Source: Kafka's CheckpointFile, OffsetCheckpointFile,
LeaderEpochCheckpointFile.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from headrace.log.files import Files, PathText
from headrace.types import TopicPartition

VERSION = 0
RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET = "log-start-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
CLEANER_OFFSET = "cleaner-offset-checkpoint"
LEADER_EPOCH = "leader-epoch-checkpoint"


class CorruptCheckpoint(Exception):
    """A checkpoint file does not follow the format, or ends early."""


def format_lines(entries: Iterable[str]) -> bytes:
    """The content of a checkpoint file with these entries."""
    lines = list(entries)
    return "".join(f"{line}\n" for line in (VERSION, len(lines), *lines)).encode()


def parse_lines(data: bytes, name: str) -> list[list[str]]:
    """The words of each entry. `name` is for the error. Raises CorruptCheckpoint."""
    if not data:
        return []
    try:
        lines = data.decode().splitlines()
        if len(lines) < 2:
            raise CorruptCheckpoint(f"{name}: the line with the number of entries is missing")
        version, count, *entries = lines
        if int(version) != VERSION:
            raise CorruptCheckpoint(f"{name}: version {version} is not {VERSION}")
        if int(count) != len(entries):
            raise CorruptCheckpoint(f"{name}: the file claims {count} entries, but has {len(entries)}")
    except ValueError as error:
        raise CorruptCheckpoint(f"{name}: {error}") from error
    return [entry.split() for entry in entries]


def read_offsets(files: Files, path: Path) -> dict[TopicPartition, int]:
    """The offsets in a data directory's checkpoint; empty when there is no file. Raises CorruptCheckpoint, OSError."""
    if not files.exists(path):
        return {}
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partition, offset in parse_lines(files.read(path), path.name)
        }
    except ValueError as error:
        raise CorruptCheckpoint(f"{path.name}: {error}") from error


def write_offsets(files: Files, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace a data directory's checkpoint, synced. Raises OSError."""
    files.replace(path, format_lines(f"{p.topic} {p.partition} {offset}" for p, offset in sorted(offsets.items())))


def read_epochs(files: Files, path: PathText) -> list[tuple[int, int]]:
    """The (epoch, start offset) pairs of a partition; empty when there is no file.

    Raises CorruptCheckpoint, OSError.
    """
    if not files.exists(path):
        return []
    try:
        return [(int(epoch), int(start)) for epoch, start in parse_lines(files.read(path), LEADER_EPOCH)]
    except ValueError as error:
        raise CorruptCheckpoint(f"{LEADER_EPOCH}: {error}") from error


def write_epochs(files: Files, path: PathText, epochs: Iterable[tuple[int, int]], *, sync: bool) -> None:
    """Replace a partition's leader epochs, given as (epoch, start offset) pairs. Raises OSError."""
    files.replace(path, format_lines(f"{epoch} {start}" for epoch, start in epochs), sync=sync)


class NewestFirst:
    """Orders the writers of one file in each directory, which threads may run in any order.

    A writer does nothing when a newer one has already written.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[Path, int] = {}
        self._written: dict[Path, int] = {}

    def writer(self, directory: Path, write: Callable[[], None]) -> Callable[[], None]:
        """A function that calls `write`, unless a newer writer of this directory has written. Any thread."""
        number = self._made[directory] = self._made.get(directory, 0) + 1

        def run() -> None:
            with self._lock:
                if number > self._written.get(directory, 0):
                    write()
                    self._written[directory] = number

        return run
