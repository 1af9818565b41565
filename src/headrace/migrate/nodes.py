"""A cluster's metadata as a tree of Kafka's znodes, path -> value; what of it goes along, and what does not. Pure.

carried over   topics with ids, replicas and partition states; settings of topics and brokers; the cluster's id; the
               controller's epoch; the block of producer ids; finalized features; offsets of 0.8's consumers
left behind    ACLs, SCRAM credentials, quotas, delegation tokens: `left_behind` counts them
momentary      who is alive, who is controller, notifications: made anew by whoever starts

Source: Kafka's ZkData.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.coordination import paths
from headrace.coordination.model import NO_UUID, PartitionLeadership, Topic
from headrace.coordination.tree import parent_of
from headrace.coordination.uuids import random_uuid
from headrace.migrate.refusal import MigrationRefused, some
from headrace.types import TopicPartition

Nodes = dict[str, bytes]

CARRIED = (
    paths.CLUSTER_ID,
    paths.TOPICS,
    paths.BROKER_SEQUENCE,
    paths.CONFIG_TOPICS,
    paths.CONFIG_BROKERS,
    paths.CONTROLLER_EPOCH,
    paths.PRODUCER_ID_BLOCK,
    paths.FEATURE,
    "/consumers",
)
"""Subtrees that a migration takes along."""

LOOKED_AT = (
    *CARRIED,
    paths.DELETE_TOPICS,
    "/admin/reassign_partitions",
    "/config/users",
    "/config/clients",
    "/config/ips",
    "/kafka-acl",
    "/kafka-acl-extended",
    "/delegation_token/tokens",
    "/migration",
)
"""Subtrees that are read: what goes along, what is in the way, and what is counted."""

DEFAULT_BROKER = "<default>"
"""The entity that holds what all brokers have set in common."""


class Cluster(NamedTuple):
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
    """What goes along, with the nodes above it, parents first."""
    taken: Nodes = {}
    for path in sorted(nodes):
        if any(path == each or path.startswith(each + "/") for each in CARRIED):
            above = [path]
            while (up := parent_of(above[-1])) != "/" and up not in taken:
                above.append(up)
            for each in reversed(above):
                taken[each] = nodes.get(each, b"")
    return taken


def understood(nodes: Mapping[str, bytes]) -> Cluster:
    """What the tree says. Raises MigrationRefused for one that is damaged, or is no Kafka cluster's."""
    if paths.CLUSTER_ID not in nodes:
        raise MigrationRefused(
            f"the tree has no {paths.CLUSTER_ID}: it is not one of a Kafka cluster (is the chroot right?)"
        )
    path = paths.CLUSTER_ID
    try:
        cluster = Cluster(paths.decode_cluster_id(nodes[path]), {}, {}, {}, {})
        for name in names_in(nodes, paths.TOPICS):
            path = paths.topic(name)
            if path not in nodes:
                raise paths.CorruptNode("is missing, though there are nodes below it")
            cluster.topics[name] = topic = paths.decode_topic(name, nodes[path])
            for number in topic.partitions:
                path = paths.partition_state(name, number)
                if path in nodes:
                    cluster.leadership[TopicPartition(name, number)] = paths.decode_leadership(nodes[path], 0, 0)
        for settings, above in ((cluster.topic_settings, "topics"), (cluster.broker_settings, "brokers")):
            for name in names_in(nodes, f"/config/{above}"):
                path = paths.config(above, name)
                settings[name] = paths.decode_config(nodes[path])
    except paths.CorruptNode as error:
        raise MigrationRefused(f"node {path}: {error}") from None
    return cluster


def with_topic_ids(nodes: Nodes, cluster: Cluster) -> Cluster:
    """Gives an id to each topic that has none: those made before Kafka 2.8. Changes `nodes` too."""
    topics = dict(cluster.topics)
    for name, topic in cluster.topics.items():
        if topic.id == NO_UUID:
            topics[name] = topic._replace(id=random_uuid())
            nodes[paths.topic(name)] = paths.encode_topic(topics[name])
    return cluster._replace(topics=topics)


def in_flight(nodes: Mapping[str, bytes]) -> list[str]:
    """What the cluster was in the middle of, as reasons to refuse."""
    found = []
    if doomed := names_in(nodes, paths.DELETE_TOPICS):
        found.append(f"topics are being deleted ({some(doomed)}): start the broker until they are gone, and stop it")
    if "/admin/reassign_partitions" in nodes:
        found.append("a reassignment of partitions is not finished: let it finish or cancel it first")
    if nodes.get("/migration"):
        found.append("the cluster is being moved from ZooKeeper to KRaft (/migration): finish that, or roll it back")
    return found


def left_behind(nodes: Mapping[str, bytes]) -> list[str]:
    """What the tree has that does not go along."""
    acls = [path for path in below(nodes, "/kafka-acl") if path.count("/") == 3]
    acls += [path for path in below(nodes, "/kafka-acl-extended") if path.count("/") == 4]
    scram, quotas = 0, 0
    for path in [*below(nodes, "/config/users"), *below(nodes, "/config/clients"), *below(nodes, "/config/ips")]:
        try:
            settings = paths.decode_config(nodes[path])
        except paths.CorruptNode:
            settings = {}
        secrets = sum(name.startswith("SCRAM-") for name in settings)
        scram += secrets
        quotas += len(settings) - secrets
    return counted(
        {
            "ACLs": (len(acls), "resource"),
            "SCRAM credentials": (scram, "credential"),
            "quotas": (quotas, "quota"),
            "delegation tokens": (len(below(nodes, "/delegation_token/tokens")), "token"),
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
