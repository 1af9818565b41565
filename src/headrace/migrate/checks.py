"""Finds the reasons why directories and a tree do not belong together. Pure.

another cluster's tree            every partition would be a stray
a partition the tree lacks        Apache Kafka renames it to -stray and deletes it, so it would be lost silently
a partition the directories lack  its records would be lost
another topic of that name        deleted and created again: the records do not belong to that topic
a tree older than the logs        a leader epoch would be used twice
replicas on other brokers         a broker's directories are not the cluster's
records in a remote store         they are not in the directories
"""

from collections.abc import Mapping

from headrace.metadata.model import NO_UUID
from headrace.metadata.uuids import to_text
from headrace.migrate.directories import FoundPartition, Sources
from headrace.migrate.nodes import ClusterNodes
from headrace.migrate.refusal import some
from headrace.types import BrokerId, TopicPartition

REMOTE_STORAGE = "remote.storage.enable"


def reasons_against(cluster: ClusterNodes, sources: Sources) -> list[str]:
    """The reasons as sentences; empty if there are none."""
    identity = sources.identity
    if cluster.cluster_id != identity.cluster_id:
        return [
            f"the directories belong to cluster {identity.cluster_id}, the metadata to cluster {cluster.cluster_id}: "
            "with it, every partition would be a stray"
        ]
    return [
        *_replicas(cluster, BrokerId(identity.broker_id)),
        *_directories(cluster, sources.partitions),
        *_remote(cluster),
    ]


def _replicas(cluster: ClusterNodes, broker_id: BrokerId) -> list[str]:
    elsewhere, moving = [], []
    for name, topic in cluster.topics.items():
        for number, replicas in topic.partitions.items():
            if replicas.adding or replicas.removing:
                moving.append(TopicPartition(name, number))
            elif replicas.replicas != (broker_id,):
                elsewhere.append(TopicPartition(name, number))
    found = []
    if elsewhere:
        found.append(
            f"{some(elsewhere)}: replicas are not on broker {broker_id} alone. Bring every partition to this broker, "
            "and to no other, with kafka-reassign-partitions, and try again"
        )
    if moving:
        found.append(f"{some(moving)}: being reassigned. Let that finish, or cancel it, and try again")
    return found


def _directories(cluster: ClusterNodes, found: Mapping[TopicPartition, FoundPartition]) -> list[str]:
    known = {TopicPartition(name, number) for name, topic in cluster.topics.items() for number in topic.partitions}
    strays = sorted(found.keys() - known)
    missing = sorted(known - found.keys())
    others, ahead = [], []
    for partition in sorted(found.keys() & known):
        each, topic = found[partition], cluster.topics[partition.topic]
        if each.topic_id is not None and topic.id not in (NO_UUID, each.topic_id):
            others.append(f"{partition} (is {to_text(each.topic_id)}, should be {to_text(topic.id)})")
        state = cluster.leadership.get(partition)
        if each.latest_epoch > (-1 if state is None else state.leader_epoch):
            ahead.append(partition)
    reasons = []
    if strays:
        reasons.append(
            f"{some(strays)}: in the directories, but not in the metadata. They would be taken for strays and deleted. "
            "Use the metadata of that very stop, or move these directories away if their topics are deleted"
        )
    if missing:
        reasons.append(
            f"{some(missing)}: in the metadata, but not in the directories. Name every directory in log.dirs; if the "
            "broker was killed while it made or deleted a topic, start it and stop it cleanly once"
        )
    if others:
        reasons.append(
            f"{some(others)}: of another topic of the same name. If that was deleted, start the broker once more: "
            "it removes what is left of it"
        )
    if ahead:
        reasons.append(f"{some(ahead)}: the metadata is older than the log. Use the metadata of the broker's last stop")
    return reasons


def _remote(cluster: ClusterNodes) -> list[str]:
    tiered = [name for name, own in cluster.topic_settings.items() if own.get(REMOTE_STORAGE) == "true"]
    if not tiered:
        return []
    return [
        f"{some(tiered)}: tiered storage keeps a part of the records elsewhere. Set {REMOTE_STORAGE}=false and wait "
        "until the local log holds all, or leave these topics out by deleting them"
    ]
