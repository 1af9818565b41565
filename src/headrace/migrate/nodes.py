"""Cluster metadata as a tree of Kafka's znodes (path -> value), and the part that a migration carries over. Pure.

carried over   topics with ids, replicas and partition states; settings of topics and brokers; the cluster's id; the
               controller's epoch; the block of producer ids; finalized features; offsets of 0.8's consumers; ACLs
left behind    SCRAM credentials, quotas, delegation tokens, instances: `left_behind` counts them
momentary      live brokers, controller, notifications: a broker that starts creates them again

Source: Kafka's ZkData.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.metadata import znodes
from headrace.metadata.model import NO_UUID, PartitionLeadership, Topic
from headrace.metadata.stored_instances import INSTANCES
from headrace.metadata.uuids import random_uuid
from headrace.metastore.store import parent_of
from headrace.migrate import acls
from headrace.migrate.refusal import MigrationRefused, some
from headrace.types import TopicPartition

Nodes = dict[str, bytes]

CARRIED = (
    znodes.CLUSTER_ID,
    znodes.TOPICS,
    znodes.BROKER_SEQUENCE,
    znodes.CONFIG_TOPICS,
    znodes.CONFIG_BROKERS,
    znodes.CONTROLLER_EPOCH,
    znodes.PRODUCER_ID_BLOCK,
    znodes.FEATURE,
    "/consumers",
    *acls.ROOTS,
)
"""Subtrees that a migration takes along."""

LOOKED_AT = (
    *CARRIED,
    znodes.DELETE_TOPICS,
    "/admin/reassign_partitions",
    "/config/users",
    "/config/clients",
    "/config/ips",
    "/delegation_token/tokens",
    INSTANCES,
    "/migration",
)
"""Subtrees that are read: what goes along, what is in the way, and what is counted."""

DEFAULT_BROKER = "<default>"
"""The entity that holds what all brokers have set in common."""


class ClusterNodes(NamedTuple):
    """The tree as values."""

    cluster_id: str
    topics: dict[str, Topic]
    leadership: dict[TopicPartition, PartitionLeadership]
    topic_settings: dict[str, dict[str, str]]
    broker_settings: dict[str, dict[str, str]]


def below(nodes: Iterable[str], path: str) -> list[str]:
    """The paths below `path`, itself left out."""
    return [each for each in nodes if each.startswith(path + "/")]


def names_in(nodes: Iterable[str], path: str) -> list[str]:
    """The names of the children of `path`."""
    start = len(path) + 1
    return sorted({each[start:].partition("/")[0] for each in below(nodes, path)})


def carried(nodes: Mapping[str, bytes]) -> Nodes:
    """The nodes that are carried over, with their parents, parents first."""
    taken: Nodes = {}
    for path in sorted(nodes):
        if any(path == each or path.startswith(each + "/") for each in CARRIED):
            above = [path]
            while (up := parent_of(above[-1])) != "/" and up not in taken:
                above.append(up)
            for each in reversed(above):
                taken[each] = nodes.get(each, b"")
    return taken


def understood(nodes: Mapping[str, bytes]) -> ClusterNodes:
    """The tree as values. Raises MigrationRefused if it is damaged or not a Kafka cluster's."""
    if znodes.CLUSTER_ID not in nodes:
        raise MigrationRefused(
            f"the tree has no {znodes.CLUSTER_ID}, so it is not that of a Kafka cluster: check the chroot"
        )
    path = znodes.CLUSTER_ID
    try:
        cluster = ClusterNodes(znodes.decode_cluster_id(nodes[path]), {}, {}, {}, {})
        for name in names_in(nodes, znodes.TOPICS):
            path = znodes.topic(name)
            if path not in nodes:
                raise znodes.CorruptNode("the node is missing, although it has children")
            cluster.topics[name] = topic = znodes.decode_topic(name, nodes[path])
            for number in topic.partitions:
                path = znodes.partition_state(name, number)
                if path in nodes:
                    cluster.leadership[TopicPartition(name, number)] = znodes.decode_leadership(nodes[path], 0, 0)
        for settings, above in ((cluster.topic_settings, "topics"), (cluster.broker_settings, "brokers")):
            for name in names_in(nodes, f"/config/{above}"):
                path = znodes.config(above, name)
                settings[name] = znodes.decode_config(nodes[path])
    except znodes.CorruptNode as error:
        raise MigrationRefused(f"node {path}: {error}") from None
    acls.check_rules(nodes)
    return cluster


def with_topic_ids(nodes: Nodes, cluster: ClusterNodes) -> ClusterNodes:
    """Gives an id to each topic without one, created before Kafka 2.8. Changes `nodes` too."""
    topics = dict(cluster.topics)
    for name, topic in cluster.topics.items():
        if topic.id == NO_UUID:
            topics[name] = topic._replace(id=random_uuid())
            nodes[znodes.topic(name)] = znodes.encode_topic(topics[name])
    return cluster._replace(topics=topics)


def in_flight(nodes: Mapping[str, bytes]) -> list[str]:
    """Operations that the cluster had not finished, as reasons to refuse."""
    found = []
    if doomed := names_in(nodes, znodes.DELETE_TOPICS):
        found.append(f"topics are being deleted ({some(doomed)}): start the broker until they are gone, and stop it")
    if "/admin/reassign_partitions" in nodes:
        found.append("a reassignment of partitions is not finished: let it finish or cancel it first")
    if nodes.get("/migration"):
        found.append(
            "the cluster is migrating from ZooKeeper to KRaft (/migration): finish the migration, or roll it back"
        )
    return found


def left_behind(nodes: Mapping[str, bytes]) -> list[str]:
    """The parts of the tree that are not carried over."""
    scram, quotas = 0, 0
    for path in [*below(nodes, "/config/users"), *below(nodes, "/config/clients"), *below(nodes, "/config/ips")]:
        try:
            settings = znodes.decode_config(nodes[path])
        except znodes.CorruptNode:
            settings = {}
        secrets = sum(name.startswith("SCRAM-") for name in settings)
        scram += secrets
        quotas += len(settings) - secrets
    return counted(
        {
            "SCRAM credentials": (scram, "credential"),
            "quotas": (quotas, "quota"),
            "delegation tokens": (len(below(nodes, "/delegation_token/tokens")), "token"),
            "instances": (len(below(nodes, INSTANCES)), "definition"),
        }
    )


def counted(found: Mapping[str, tuple[int, str]]) -> list[str]:
    """`ACLs (3 resources)` for what there is of each kind."""
    plurals = {"entry": "entries"}
    return [
        f"{kind} ({count} {unit if count == 1 else plurals.get(unit, unit + 's')})"
        for kind, (count, unit) in found.items()
        if count
    ]
