"""The data directories that a migration reads: their identity, their partitions, and locks on them.

The lock is a shared lock on `.lock`. It conflicts with the exclusive lock of a broker, headrace's and Apache Kafka's. A
missing file is not created, because a migration changes nothing in a source.

    <topic>-<partition>/                       a partition
    __cluster_metadata-0/                      KRaft's metadata
    <topic>-<partition>.<uuid>-delete/         on its way out: not taken
    <topic>-<partition>.<uuid>-stray/          unknown to the cluster that Kafka last ran in: not taken
    <topic>-<partition>.<uuid>-future/         a copy on its way to this directory: not taken, the other one counts
"""

import fcntl
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from headrace.log.directories import meta_properties
from headrace.log.directories.checkpoints import LEADER_EPOCH, CorruptCheckpoint, read_epochs
from headrace.log.directories.data_directory import CLEAN_SHUTDOWN, LOCK
from headrace.log.directories.meta_properties import CorruptMetaProperties, MetaProperties
from headrace.log.directories.partition_metadata import CorruptPartitionMetadata, read_topic_id
from headrace.log.filenames import parse_partition
from headrace.log.files import Files, LogFile
from headrace.migrate import metadata_log
from headrace.migrate.refusal import MigrationRefused, some
from headrace.types import TopicPartition

PASSED_OVER = ("-delete", "-stray", "-future")


class FoundPartition(NamedTuple):
    """A partition's directory, with its own metadata."""

    directory: Path
    topic_id: bytes | None
    latest_epoch: int  # of a leader; -1 for none
    was_clean: bool


class SourceDirectory(NamedTuple):
    """One data directory."""

    path: Path
    identity: MetaProperties
    partitions: dict[TopicPartition, FoundPartition]
    metadata: Path | None  # __cluster_metadata-0
    passed_over: list[str]
    was_clean: bool


class Sources(NamedTuple):
    """The data directories of one broker."""

    each: list[SourceDirectory]

    @property
    def identity(self) -> MetaProperties:
        """The properties of the first directory; cluster and broker are the same in all."""
        return self.each[0].identity

    @property
    def partitions(self) -> dict[TopicPartition, FoundPartition]:
        """The partitions of all directories."""
        return {partition: found for source in self.each for partition, found in source.partitions.items()}

    @property
    def was_clean(self) -> bool:
        """Whether the broker's last stop was clean."""
        return all(source.was_clean for source in self.each)


def hold(files: Files, paths: Sequence[Path], stack: ExitStack) -> None:
    """Lock these directories until the stack unwinds. Raises MigrationRefused if a broker uses one."""
    for path in paths:
        lock = path / LOCK
        if not files.exists(lock):
            continue
        file = files.open_readonly(lock)
        try:
            fcntl.flock(file.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.lockf(file.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise MigrationRefused(f"{path} is in use by a running broker: stop the broker first") from None
        stack.callback(_let_go, file)


def _let_go(file: LogFile) -> None:
    fcntl.lockf(file.fd, fcntl.LOCK_UN)
    fcntl.flock(file.fd, fcntl.LOCK_UN)


def look_into(files: Files, paths: Sequence[Path]) -> Sources:
    """The contents of these directories. Raises MigrationRefused if they belong to different brokers; OSError."""
    resolved = [path.resolve() for path in paths]
    if len(set(resolved)) < len(resolved):
        raise MigrationRefused(f"a directory is given twice: {some(paths)}")
    sources = Sources([_look_into(files, path) for path in paths])
    first = sources.each[0]
    held: dict[TopicPartition, Path] = {}
    reasons = []
    for source in sources.each:
        ours, theirs = first.identity, source.identity
        if (ours.cluster_id, ours.broker_id) != (theirs.cluster_id, theirs.broker_id):
            reasons.append(
                f"{first.path} belongs to broker {ours.broker_id} of cluster {ours.cluster_id}, and {source.path} to "
                f"broker {theirs.broker_id} of cluster {theirs.cluster_id}: name the directories of one broker"
            )
        for partition in source.partitions:
            if partition in held:
                reasons.append(
                    f"{partition} is in {held[partition]} and in {source.path}: remove the one that is stale"
                )
            held[partition] = source.path
    if reasons:
        raise MigrationRefused(*reasons)
    return sources


def _look_into(files: Files, path: Path) -> SourceDirectory:
    if not files.is_directory(path):
        raise MigrationRefused(f"{path} is not a directory")
    try:
        identity = meta_properties.read(files, path)
    except CorruptMetaProperties as error:
        raise MigrationRefused(str(error)) from error
    if identity is None:
        raise MigrationRefused(
            f"{path} has no meta.properties: name the directories in log.dirs, not a partition's or one above them"
        )
    was_clean = files.exists(path / CLEAN_SHUTDOWN)
    source = SourceDirectory(path, identity, {}, None, [], was_clean)
    for name in files.names(path):
        if not files.is_directory(path / name):
            continue
        partition = parse_partition(name)
        if name == metadata_log.DIRECTORY:
            source = source._replace(metadata=path / name)
        elif partition is not None:
            source.partitions[partition] = _partition(files, path / name, was_clean)
        elif name.endswith(PASSED_OVER):
            source.passed_over.append(f"{name}/")
    return source


def _partition(files: Files, directory: Path, was_clean: bool) -> FoundPartition:
    try:
        topic_id = read_topic_id(files, directory)
    except CorruptPartitionMetadata as error:
        raise MigrationRefused(str(error)) from error
    try:
        epochs = read_epochs(files, directory / LEADER_EPOCH)
    except CorruptCheckpoint:
        epochs = []  # rebuilt from the batches when the copy is opened
    return FoundPartition(directory, topic_id, epochs[-1][0] if epochs else -1, was_clean)
