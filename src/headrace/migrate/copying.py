"""Copies a broker's directories: every byte is written again, without links or shared extents.

Known files are copied: segments with their indexes, snapshots, leader epochs, topic ids, checkpoints. Holes stay holes
(an index of an active segment has 10 MiB of them), and modification times are kept. Unknown files are listed, not
copied.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from headrace.log.directories import checkpoints
from headrace.log.directories.data_directory import CLEAN_SHUTDOWN
from headrace.log.directories.partition_metadata import FILE_NAME as PARTITION_METADATA
from headrace.log.filenames import CLEANED, DELETED, INDEX, LOG, SNAPSHOT, SWAP, TIME_INDEX, TXN_INDEX
from headrace.log.files import Files
from headrace.migrate.directories import SourceDirectory
from headrace.migrate.refusal import MigrationRefused
from headrace.types import TopicPartition

CHUNK_BYTES = 1 << 20
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CHECKPOINTS = (checkpoints.RECOVERY_POINT, checkpoints.LOG_START_OFFSET, checkpoints.HIGH_WATERMARK, CLEANER_OFFSETS)
SPARE_BYTES = 64 << 20

_ZEROS = bytes(CHUNK_BYTES)
_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT)
_INTERRUPTED = (SWAP, CLEANED)

Progress = Callable[[int, int], None]
"""Called with the partitions copied, and to be copied."""


class PartitionCopy(NamedTuple):
    """One partition and its target."""

    partition: TopicPartition
    source: Path
    target: Path
    names: list[str]
    size_bytes: int


def plan_partition(
    files: Files, partition: TopicPartition, source: Path, target: Path
) -> tuple[PartitionCopy, list[str]]:
    """The copy of a partition, and the unknown files."""
    names, unknown = [], []
    for name in files.names(source):
        if _is_known(name):
            names.append(name)
        elif not name.endswith((DELETED, ".tmp")):
            unknown.append(f"{source / name}")
    size = sum((source / name).stat().st_blocks * 512 for name in names)
    return PartitionCopy(partition, source, target / str(partition), names, size), unknown


def _is_known(name: str) -> bool:
    if name in (checkpoints.LEADER_EPOCH, PARTITION_METADATA):
        return True
    for interrupted in _INTERRUPTED:
        name = name.removesuffix(interrupted)
    digits, dot, suffix = name.partition(".")
    return digits.isdigit() and dot + suffix in _SUFFIXES


def check_target(files: Files, target: Path, sources: Iterable[Path]) -> None:
    """Raises MigrationRefused unless a directory is new or empty, and separate from the sources."""
    if files.exists(target) and (
        not files.is_directory(target) or any(name != "lost+found" for name in files.names(target))
    ):
        raise MigrationRefused(f"{target} is not empty: name an empty directory, or one that does not exist")
    resolved = target.resolve()
    for source in map(Path.resolve, sources):
        if resolved.is_relative_to(source) or source.is_relative_to(resolved):
            raise MigrationRefused(f"one of {target} and {source} contains the other: name another directory")


def check_space(files: Files, needed: Mapping[Path, int]) -> None:
    """Raises MigrationRefused if the targets' disks lack the space."""
    by_disk: dict[int, tuple[Path, int]] = {}
    for target, size in needed.items():
        there = target.resolve()
        while not files.exists(there):
            there = there.parent
        disk = there.stat().st_dev
        by_disk[disk] = (there, by_disk.get(disk, (there, SPARE_BYTES))[1] + size)
    for there, size in by_disk.values():
        usable = files.space(there).usable_bytes
        if usable < size:
            raise MigrationRefused(f"the disk of {there} has {usable} bytes left, but {size} are needed")


def copy_partitions(files: Files, plan: Sequence[PartitionCopy], progress: Progress) -> None:
    """Copy all partitions, without sync. Raises OSError."""
    buffer = memoryview(bytearray(CHUNK_BYTES))
    for number, each in enumerate(plan):
        progress(number, len(plan))
        files.make_directory(each.target)
        for name in each.names:
            copy_file(files, each.source / name, each.target / name, buffer)
    progress(len(plan), len(plan))


def copy_file(files: Files, source: Path, target: Path, buffer: memoryview) -> None:
    """Copy one file, holes as holes, without sync."""
    read, written = files.open_readonly(source), files.open(target, create=True)
    size = read.size()
    position = 0
    while position < size:
        count = read.read_into(buffer[: min(len(buffer), size - position)], position)
        if not count:
            break
        if buffer[:count] != _ZEROS[:count]:
            written.write(buffer[:count], position)
        position += count
    written.truncate(position)
    files.set_modified_ms(target, files.modified_ms(source))


def copy_checkpoints(
    files: Files, sources: Sequence[SourceDirectory], target: Path, known: Iterable[TopicPartition]
) -> None:
    """Copy the checkpoints of the source directories of one target, for the migrated partitions, and the clean mark.

    An unreadable checkpoint is left out: recovery then finds its values in the logs.
    """
    wanted = set(known)
    for name in CHECKPOINTS:
        merged: dict[TopicPartition, int] = {}
        for source in sources:
            with suppress(checkpoints.CorruptCheckpoint):
                found = checkpoints.read_offsets(files, source.path / name)
                merged |= {
                    partition: found[partition] for partition in found.keys() & wanted & source.partitions.keys()
                }
        if merged:
            checkpoints.write_offsets(files, target / name, merged)
    if all(source.was_clean for source in sources):
        files.replace(target / CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":-1}')
