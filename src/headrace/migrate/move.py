"""The steps that migrations in both directions share: inspect, check, plan, copy, open the copy once.

The copy is opened as a broker would open it. After an unclean stop this repairs it; after a clean stop there is nothing
to do. The copy is closed cleanly, so that a broker that starts on it needs no recovery.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headrace.config import TopicConfig, topic_config
from headrace.errors import InvalidConfig, KafkaError
from headrace.log.directories import meta_properties
from headrace.log.directories.meta_properties import MetaProperties
from headrace.log.files import Files, LocalFiles
from headrace.log.manager import LogManager
from headrace.migrate import copying, transactions
from headrace.migrate.checks import reasons_against
from headrace.migrate.copying import PartitionCopy, Progress
from headrace.migrate.directories import Sources, hold, look_into
from headrace.migrate.nodes import ClusterNodes, Nodes, in_flight
from headrace.migrate.outcome import MigrationOutcome
from headrace.migrate.refusal import MigrationRefused, some
from headrace.topics import TRANSACTIONS_TOPIC


@dataclass(slots=True)
class Migration:
    """The parameters of a migration in either direction."""

    sources: Sequence[Path]
    targets: Sequence[Path]
    now_ms: int
    is_dry_run: bool = False
    progress: Progress = lambda done, of: None
    files: Files = field(default_factory=LocalFiles)

    def target_of(self, source: Path) -> Path:
        """The target of the partitions of a source."""
        return self.targets[0] if len(self.targets) == 1 else self.targets[list(self.sources).index(source)]


def look(migration: Migration, stack: ExitStack) -> Sources:
    """The sources, locked until the stack unwinds. Raises MigrationRefused, OSError."""
    if not migration.sources or len(migration.targets) not in (1, len(migration.sources)):
        raise MigrationRefused(
            f"{len(migration.sources)} directories cannot go into {len(migration.targets)}: "
            "name one destination for all, or one for each"
        )
    if len({target.resolve() for target in migration.targets}) < len(migration.targets):
        raise MigrationRefused(f"a destination is given twice: {some(migration.targets)}")
    hold(migration.files, migration.sources, stack)
    sources = look_into(migration.files, migration.sources)
    for target in migration.targets:
        copying.check_target(migration.files, target, migration.sources)
    return sources


def check(migration: Migration, nodes: Nodes, cluster: ClusterNodes, sources: Sources) -> None:
    """Raises MigrationRefused with all reasons."""
    reasons = [*in_flight(nodes), *reasons_against(cluster, sources)]
    files, partitions = migration.files, sources.partitions
    hanging = [
        f"{partition} (producer {producer_id} since offset {offset})"
        for partition, found in sorted(partitions.items())
        for producer_id, offset in transactions.open_transactions(
            files, found.directory, was_clean=found.was_clean
        ).items()
    ]
    if hanging:
        reasons.append(
            f"transactions are in flight: {some(hanging)}. Let their producers finish, or start the broker until "
            "transaction.timeout.ms has aborted them (kafka-transactions abort does it at once)"
        )
    undecided = [f"{name} ({state})" for name, state in transactional_ids(migration, sources).items() if state]
    if undecided:
        reasons.append(
            f"transactional ids are undecided: {some(sorted(undecided))}. Start the broker until their coordinator has "
            "ended them"
        )
    if reasons:
        raise MigrationRefused(*reasons)


def transactional_ids(migration: Migration, sources: Sources) -> dict[str, str | None]:
    """Transactional id -> the undecided state that it is in, or None."""
    return transactions.transactional_ids(migration.files, directories_of(sources, TRANSACTIONS_TOPIC))


def directories_of(sources: Sources, topic: str) -> list[Path]:
    """The directories of a topic's partitions."""
    return [found.directory for partition, found in sorted(sources.partitions.items()) if partition.topic == topic]


def plan(migration: Migration, sources: Sources, outcome: MigrationOutcome) -> list[PartitionCopy]:
    """The copies to make. Raises MigrationRefused if they do not fit."""
    copies = []
    needed = dict.fromkeys(migration.targets, 0)
    unknown: list[str] = []
    for source in sources.each:
        target = migration.target_of(source.path)
        outcome.directories.append((str(source.path), str(target)))
        if source.passed_over:
            outcome.notes.append(f"{source.path}: not taken: {some(source.passed_over)}")
        for partition, found in sorted(source.partitions.items()):
            copy, others = copying.plan_partition(migration.files, partition, found.directory, target)
            copies.append(copy)
            unknown += others
            needed[target] += copy.size_bytes
    if unknown:
        outcome.notes.append(f"files that are no part of a log were not taken: {some(unknown)}")
    copying.check_space(migration.files, needed)
    outcome.size_bytes = sum(needed.values())
    outcome.partitions = [
        {"topic": each.partition.topic, "partition": each.partition.partition, "size_bytes": each.size_bytes}
        for each in copies
    ]
    return copies


def copy(migration: Migration, sources: Sources, cluster: ClusterNodes, copies: Sequence[PartitionCopy]) -> None:
    """Copy everything except the metadata."""
    files = migration.files
    for target in migration.targets:
        files.make_directory(target)
        identity = MetaProperties(sources.identity.broker_id, cluster.cluster_id)
        meta_properties.write(files, target, identity)
        into = [source for source in sources.each if migration.target_of(source.path) == target]
        copying.copy_checkpoints(files, into, target, sources.partitions)
    copying.copy_partitions(files, copies, migration.progress)


def open_once(migration: Migration, cluster: ClusterNodes, broker_id: int) -> list[dict[str, str | int]]:
    """Open and close the copy like a broker; returns each partition's first and end offset. Raises MigrationRefused."""
    manager = LogManager(
        list(migration.targets),
        broker_id=broker_id,
        topic_config=lambda topic: _config(cluster.topic_settings.get(topic, {})),
        files=migration.files,
    )
    try:
        manager.load(migration.now_ms)
        found: list[dict[str, str | int]] = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "log_start_offset": log.log_start_offset,
                "log_end_offset": log.log_end_offset,
            }
            for partition, log in sorted(manager.logs.items())
        ]
        manager.close(migration.now_ms)
    except KafkaError as error:
        raise MigrationRefused(f"the copy cannot be opened: {error.message}") from error
    finally:
        manager.release()
    os.sync()  # one for all: a sync for each file took five times as long with 5,000 partitions
    return found


def _config(own: Mapping[str, str]) -> TopicConfig:
    config = TopicConfig()
    for name, text in own.items():
        try:
            config = topic_config(config, {name: text})
        except InvalidConfig:
            continue  # of another version: kept in the tree, and reported
    return config


@contextmanager
def undone_on_failure(migration: Migration) -> Iterator[None]:
    """Removes a partial copy after a failure; the destinations were empty before."""
    files = migration.files
    existed = [target for target in migration.targets if files.exists(target)]
    try:
        yield
    except BaseException:
        for target in migration.targets:
            for name in files.names(target) if files.exists(target) else ():
                if name == "lost+found":
                    continue
                if files.is_directory(target / name):
                    files.remove_tree(target / name)
                else:
                    files.remove(target / name)
            if target not in existed and files.exists(target):
                files.remove_tree(target)
        raise


def begin_outcome(
    direction: str, migration: Migration, sources: Sources, cluster: ClusterNodes, origin: str
) -> MigrationOutcome:
    """The outcome before the plan."""
    return MigrationOutcome(
        direction,
        cluster.cluster_id,
        sources.identity.broker_id,
        origin,
        sources.was_clean,
        migration.is_dry_run,
        topics=len(cluster.topics),
    )
