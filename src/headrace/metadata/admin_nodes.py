"""The nodes by which Kafka's ZooKeeper-mode tools, and brokers of old versions, send requests to the controller. Pure.

    /admin/delete_topics/T              delete the topic; the controller deletes the node with the topic
    /admin/reassign_partitions          {"version":1,"partitions":[{"topic":T,"partition":P,"replicas":[N,...]},...]}
                                        reassignments under way stay in it; deleted when none is left
    /admin/preferred_replica_election   {"version":1,"partitions":[{"topic":T,"partition":P},...]}; deleted when tried
    /isr_change_notification/isr_change_#        {"version":1,"partitions":[{"topic":T,"partition":P},...]}
    /log_dir_event_notification/log_dir_event_#  {"version":1,"broker":N,"event":1}

Tools create topics and add partitions by writing /brokers/topics/T itself.
Source: Kafka's `ZkData.scala`; the wiki's "Kafka data structures in Zookeeper".
"""

import json
from collections.abc import Mapping

from headrace.metadata.znodes import CorruptNode
from headrace.types import BrokerId, TopicPartition

REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"

Targets = Mapping[TopicPartition, tuple[BrokerId, ...]]


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """The target replicas of each partition. Raises `CorruptNode`."""
    return {
        partition: tuple(BrokerId(_number(each)) for each in _list(entry.get("replicas")))
        for partition, entry in _partitions(data)
    }


def encode_reassignment(targets: Targets) -> bytes:
    """The inverse of `decode_reassignment`."""
    entries = [{"topic": t, "partition": p, "replicas": list(replicas)} for (t, p), replicas in targets.items()]
    return _dump({"version": 1, "partitions": entries})


def decode_partitions(data: bytes) -> list[TopicPartition]:
    """The partitions of a preferred election or of a notification of ISR changes. Raises `CorruptNode`."""
    return [partition for partition, _ in _partitions(data)]


def encode_partitions(partitions: list[TopicPartition]) -> bytes:
    """The inverse of `decode_partitions`."""
    return _dump({"version": 1, "partitions": [{"topic": topic, "partition": number} for topic, number in partitions]})


def decode_log_dir_event(data: bytes) -> BrokerId:
    """The broker that has a failed log directory. Raises `CorruptNode`."""
    return BrokerId(_number(_load(data).get("broker")))


def encode_log_dir_event(broker: BrokerId) -> bytes:
    """The inverse of `decode_log_dir_event`."""
    return _dump({"version": 1, "broker": broker, "event": 1})


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _load(data: bytes) -> dict[str, object]:
    try:
        value = json.loads(data)
    except ValueError:
        raise CorruptNode(f"the data is not JSON: {data[:200]!r}") from None
    if not isinstance(value, dict):
        raise CorruptNode(f"the data is not a JSON object: {data[:200]!r}")
    return value


def _partitions(data: bytes) -> list[tuple[TopicPartition, dict[str, object]]]:
    found = []
    for entry in _list(_load(data).get("partitions", [])):
        if not isinstance(entry, dict) or not isinstance(entry.get("topic"), str):
            raise CorruptNode(f"{entry!r} has no topic name")
        found.append((TopicPartition(entry["topic"], _number(entry.get("partition"))), entry))
    return found


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise CorruptNode(f"{value!r} is not a list")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise CorruptNode(f"{value!r} is not a number")
    return value
