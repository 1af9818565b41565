"""The migration from headrace to Apache Kafka 3.9: data directories, and metadata as a file or in ZooKeeper."""

from collections.abc import Callable
from contextlib import ExitStack

from headrace.metadata import znodes
from headrace.migrate.acls import has_rules, without_newer_operations
from headrace.migrate.embedded import has_tree, read_embedded
from headrace.migrate.move import Migration, begin_outcome, check, copy, look, open_once, plan, undone_on_failure
from headrace.migrate.nodes import ClusterNodes, Nodes, carried, counted, left_behind, understood
from headrace.migrate.outcome import MigrationOutcome, shown
from headrace.migrate.refusal import MigrationRefused, some

_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
OURS_ALONE = "headrace."
"""How the names of settings begin that Apache Kafka has not."""


def to_kafka(
    migration: Migration,
    *,
    check_place: Callable[[], None],
    write_tree: Callable[[Nodes], str],
) -> MigrationOutcome:
    """Write a broker's directories out for Apache Kafka 3.9 with ZooKeeper. `check_place` raises when the tree could
    not be written; `write_tree` writes it and says where. Raises MigrationRefused, OSError."""
    with ExitStack() as stack:
        sources = look(migration, stack)
        first = migration.sources[0]
        if not has_tree(migration.files, first):
            raise MigrationRefused(
                f"{first} has no headrace metadata: name the directories in the order of log.dirs. "
                "Without metadata Apache Kafka treats every partition as stray and deletes it"
            )
        everything = read_embedded(migration.files, first)
        nodes = carried(everything)
        cluster = understood(nodes)
        check(migration, everything, cluster, sources)
        check_place()
        outcome = begin_outcome("to Apache Kafka", migration, sources, cluster, str(first))
        outcome.left_behind += left_behind(everything)
        _drop_our_settings(nodes, cluster, outcome)
        outcome.left_behind += counted(
            {"ACLs with operation TwoPhaseCommit": (without_newer_operations(nodes), "entry")}
        )
        if has_rules(nodes):
            outcome.next_steps.append(f"server.properties: authorizer.class.name={_AUTHORIZER}")
        copies = plan(migration, sources, outcome)
        if not migration.is_dry_run:
            with undone_on_failure(migration):
                copy(migration, sources, cluster, copies)
                outcome.partitions = open_once(migration, cluster, outcome.broker_id)
                where = write_tree(nodes)
        else:
            where = "ZooKeeper"
        outcome.next_steps += [
            f"tree: {where}",
            f"server.properties: broker.id={outcome.broker_id}",
            f"server.properties: log.dirs={shown(list(migration.targets))}",
        ]
    return outcome


def _drop_our_settings(nodes: Nodes, cluster: ClusterNodes, outcome: MigrationOutcome) -> None:
    for kind, entities in (("topics", cluster.topic_settings), ("brokers", cluster.broker_settings)):
        for name, own in entities.items():
            ours = sorted(key for key in own if key.startswith(OURS_ALONE))
            if ours:
                outcome.left_behind.append(f"settings of {name} that Apache Kafka does not have ({some(ours)})")
                kept = {key: text for key, text in own.items() if key not in ours}
                nodes[znodes.config(kind, name)] = znodes.encode_config(kept)
