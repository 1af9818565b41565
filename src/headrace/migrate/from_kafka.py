"""The migration from Apache Kafka to headrace: data directories, and metadata from KRaft or ZooKeeper."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from shlex import quote

from headrace.config import TOPIC_SETTINGS, read_broker
from headrace.config.dynamic import DYNAMIC
from headrace.errors import InvalidConfig
from headrace.migrate import kraft, transactions
from headrace.migrate.acls import has_rules
from headrace.migrate.directories import Sources, hold
from headrace.migrate.embedded import has_tree, write_embedded
from headrace.migrate.move import (
    Migration,
    begin_outcome,
    check,
    copy,
    directories_of,
    look,
    open_once,
    plan,
    undone_on_failure,
)
from headrace.migrate.nodes import DEFAULT_BROKER, ClusterNodes, Nodes, carried, left_behind, understood, with_topic_ids
from headrace.migrate.outcome import MigrationOutcome, shown
from headrace.migrate.refusal import MigrationRefused, some
from headrace.topics import OFFSETS_TOPIC


def from_kafka(
    migration: Migration,
    *,
    read_tree: Callable[[], tuple[str, Nodes]] | None = None,
    metadata_directory: Path | None = None,
) -> MigrationOutcome:
    """Take a broker's directories over. `read_tree` gives where the metadata is from, and the tree, of a ZooKeeper
    cluster; without it the metadata is that of KRaft. Raises MigrationRefused, OSError."""
    with ExitStack() as stack:
        sources = look(migration, stack)
        for path in migration.sources:
            if has_tree(migration.files, path):
                raise MigrationRefused(f"{path} is already a data directory of headrace: copy it with any tool")
        notes: list[str] = []
        if read_tree is not None:
            origin, everything = read_tree()
            behind = left_behind(everything)
        else:
            directory = kraft.find(migration.files, sources, metadata_directory)
            if directory.parent not in migration.sources:
                hold(migration.files, [directory.parent], stack)
            origin, everything, behind = kraft.read(migration.files, sources, directory, notes)
        nodes = carried(everything)
        cluster = understood(nodes)
        check(migration, everything, cluster, sources)
        outcome = begin_outcome("from Apache Kafka", migration, sources, cluster, origin)
        outcome.left_behind += behind
        outcome.notes += notes
        if has_rules(nodes):
            outcome.notes.append(
                "access control lists need an authorizer: set authorizer.class.name and super.users as before"
            )
        copies = plan(migration, sources, outcome)
        _say_what_changes(migration, sources, cluster, outcome)
        outcome.next_steps.append(_command(migration, cluster, outcome.broker_id))
        if not migration.is_dry_run:
            cluster = with_topic_ids(nodes, cluster)
            with undone_on_failure(migration):
                copy(migration, sources, cluster, copies)
                outcome.partitions = open_once(migration, cluster, outcome.broker_id)
                write_embedded(migration.targets[0], nodes)
    return outcome


def _command(migration: Migration, cluster: ClusterNodes, broker_id: int) -> str:
    """The command that starts a broker on the copy, with those dynamic settings of Apache Kafka that are fixed at the
    start here. The others take effect from the tree."""
    command = f"headrace serve --data {shown(list(migration.targets))} --broker-id {broker_id}"
    own = {**cluster.broker_settings.get(DEFAULT_BROKER, {}), **cluster.broker_settings.get(str(broker_id), {})}
    for name, text in sorted(own.items()):
        if name in DYNAMIC:
            continue
        try:
            is_known = not read_broker({name: text}, strict=True).ignored
        except InvalidConfig:
            continue
        if is_known:
            command += f" --set {quote(f'{name}={text}')}"
    return command


def _say_what_changes(migration: Migration, sources: Sources, cluster: ClusterNodes, outcome: MigrationOutcome) -> None:
    groups = transactions.newer_groups(migration.files, directories_of(sources, OFFSETS_TOPIC))
    for protocol, count in sorted(groups.items()):
        kept = "their members join anew" if protocol != "consumer" else "their committed offsets are kept"
        outcome.left_behind.append(f"membership of groups of the {protocol} protocol ({count}; {kept})")
    own = {name for settings in cluster.broker_settings.values() for name in settings if name not in DYNAMIC}
    if own:
        outcome.left_behind.append(
            f"effect of brokers' dynamic settings that are not dynamic here ({some(sorted(own))}: kept in the tree)"
        )
    if other := _unknown_settings(cluster):
        outcome.left_behind.append(
            f"effect of topics' settings that headrace does not have ({some(other)}: kept in the tree)"
        )
    outcome.notes.append(
        "server.properties is not in the data directories: give what you set there to headrace serve with --set or "
        "--config (the names are the same)"
    )


def _unknown_settings(cluster: ClusterNodes) -> list[str]:
    """Topic settings that headrace does not support."""
    return sorted({name for own in cluster.topic_settings.values() for name in own if name not in TOPIC_SETTINGS})
