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

from collections.abc import Mapping

from headrace.metadata.znodes import CorruptNode, as_number, dump_json, load_object
from headrace.types import BrokerId, TopicPartition

REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"

Targets = Mapping[TopicPartition, tuple[BrokerId, ...]]


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """The target replicas of each partition. Raises `CorruptNode`."""
    return {
        partition: tuple(BrokerId(as_number(each)) for each in _list(entry.get("replicas")))
        for partition, entry in _partitions(data)
    }


def encode_reassignment(targets: Targets) -> bytes:
    """The inverse of `decode_reassignment`."""
    entries = [{"topic": t, "partition": p, "replicas": list(replicas)} for (t, p), replicas in targets.items()]
    return dump_json({"version": 1, "partitions": entries})


def decode_partitions(data: bytes) -> list[TopicPartition]:
    """The partitions of a preferred election or of a notification of ISR changes. Raises `CorruptNode`."""
    return [partition for partition, _ in _partitions(data)]


def decode_log_dir_event(data: bytes) -> BrokerId:
    """The broker that has a failed log directory. Raises `CorruptNode`."""
    return BrokerId(as_number(load_object(data).get("broker")))


def encode_log_dir_event(broker: BrokerId) -> bytes:
    """The inverse of `decode_log_dir_event`."""
    return dump_json({"version": 1, "broker": broker, "event": 1})


def _partitions(data: bytes) -> list[tuple[TopicPartition, dict[str, object]]]:
    found = []
    for entry in _list(load_object(data).get("partitions", [])):
        if not isinstance(entry, dict) or not isinstance(entry.get("topic"), str):
            raise CorruptNode(f"{entry!r} has no topic name")
        found.append((TopicPartition(entry["topic"], as_number(entry.get("partition"))), entry))
    return found


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise CorruptNode(f"{value!r} is not a list")
    return value
