"""The nodes by which Kafka's ZooKeeper-mode tools, and brokers of old versions, ask something of the controller. Pure.

    /admin/delete_topics/T              delete the topic; gone when it is
    /admin/reassign_partitions          {"version":1,"partitions":[{"topic":T,"partition":P,"replicas":[N,...]},...]}
                                        what is under way stays in it; gone when everything is done
    /admin/preferred_replica_election   {"version":1,"partitions":[{"topic":T,"partition":P},...]}; gone when tried
    /isr_change_notification/isr_change_#        {"version":1,"partitions":[{"topic":T,"partition":P},...]}
    /log_dir_event_notification/log_dir_event_#  {"version":1,"broker":N,"event":1}

Topics are made, and get more partitions, by writing /brokers/topics/T itself.
Source: Kafka's `ZkData.scala`; the wiki's "Kafka data structures in Zookeeper".
"""

import json
from collections.abc import Mapping

from headrace.coordination.paths import CorruptNode
from headrace.types import BrokerId, TopicPartition

REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"

Targets = Mapping[TopicPartition, tuple[BrokerId, ...]]


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """Which partitions are to be moved where. Raises `CorruptNode`."""
    return {
        partition: tuple(BrokerId(_number(each)) for each in _list(entry.get("replicas")))
        for partition, entry in _partitions(data)
    }


def encode_reassignment(targets: Targets) -> bytes:
    """The inverse of `decode_reassignment`."""
    entries = [{"topic": t, "partition": p, "replicas": list(replicas)} for (t, p), replicas in targets.items()]
    return _dump({"version": 1, "partitions": entries})


def decode_partitions(data: bytes) -> list[TopicPartition]:
    """Of a preferred election, or of a change of ISRs. Raises `CorruptNode`."""
    return [partition for partition, _ in _partitions(data)]


def encode_partitions(partitions: list[TopicPartition]) -> bytes:
    """The inverse of `decode_partitions`."""
    return _dump({"version": 1, "partitions": [{"topic": topic, "partition": number} for topic, number in partitions]})


def decode_log_dir_event(data: bytes) -> BrokerId:
    """The broker of which a log directory failed. Raises `CorruptNode`."""
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
        raise CorruptNode(f"not JSON: {data[:200]!r}") from None
    if not isinstance(value, dict):
        raise CorruptNode(f"not a JSON object: {data[:200]!r}")
    return value


def _partitions(data: bytes) -> list[tuple[TopicPartition, dict[str, object]]]:
    found = []
    for entry in _list(_load(data).get("partitions", [])):
        if not isinstance(entry, dict) or not isinstance(entry.get("topic"), str):
            raise CorruptNode(f"{entry!r} names no topic")
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
