"""The nodes in ZooKeeper by which clients of Kafka 0.7 find brokers, below a chroot of their own. Pure.

    /brokers/ids/N                 CREATOR:HOST:PORT       ephemeral
    /brokers/topics/T/N            COUNT                   ephemeral; broker N has the partitions 0 to COUNT-1 of T
    /headrace/cluster              the id of the cluster; ours
    /headrace/partitions/T/N       {"version":1,"topic_id":HEX,"partitions":[0,3]}; ours

In Kafka 0.7 each broker had partitions of its own, from 0 on: `N-0`, `N-1`. Here the partitions of a topic are numbered
once, and a broker has those that it is the preferred leader of. The last node says which: of broker N with [0,3],
`N-1` is partition 3. It only grows, so that what consumers of 0.7 have stored for `N-1` stays theirs.

Source: Kafka 0.7's `KafkaZooKeeper`.
"""

from collections.abc import Sequence

from headrace.metadata.image import TopicMetadata
from headrace.metadata.znodes import CorruptNode, as_number, as_text, dump_json, load_object
from headrace.types import BrokerId

CLUSTER = "/headrace/cluster"
TODAYS_CLUSTER_ID = "/cluster/id"
"""A node that Kafka 0.7 had not: whoever has it is a cluster of today."""

Numbers = tuple[int, ...]
"""The partitions of one topic on one broker: the number in the topic, by the number that clients of 0.7 know."""


def broker_path(broker: BrokerId) -> str:
    """The registration of a broker."""
    return f"/brokers/ids/{broker}"


def topic_path(topic: str) -> str:
    """The parent of the registrations of a topic."""
    return f"/brokers/topics/{topic}"


def count_path(topic: str, broker: BrokerId) -> str:
    """The registration of a topic's partitions on a broker."""
    return f"{topic_path(topic)}/{broker}"


def numbers_parent(topic: str) -> str:
    """The parent of a topic's numbers."""
    return f"/headrace/partitions/{topic}"


def numbers_path(topic: str, broker: BrokerId) -> str:
    """The numbers of a topic's partitions on a broker."""
    return f"{numbers_parent(topic)}/{broker}"


def encode_broker(host: str, port: int, now_ms: int) -> bytes:
    """The content of a broker's registration. The creator is its host and the time, as in Kafka 0.7."""
    return f"{host}-{now_ms}:{host}:{port}".encode()


def encode_numbers(topic_id: bytes, numbers: Numbers) -> bytes:
    """The content of a node of numbers."""
    return dump_json({"version": 1, "topic_id": topic_id.hex(), "partitions": list(numbers)})


def decode_numbers(data: bytes, topic_id: bytes) -> Numbers:
    """The numbers in a node; none if they are of an earlier topic of that name. Raises `CorruptNode`."""
    value = load_object(data)
    if as_text(value.get("topic_id")) != topic_id.hex():
        return ()
    numbers = value.get("partitions")
    if not isinstance(numbers, list) or len(set(map(as_number, numbers))) < len(numbers):
        raise CorruptNode(f"{data[:200]!r} has no list of partitions")
    return tuple(numbers)


def grown(numbers: Numbers, topic: TopicMetadata, broker: BrokerId) -> Numbers:
    """The numbers, and after them the partitions that the broker leads as the preferred leader and that have none."""
    known = set(numbers)
    more = (
        number
        for number, each in sorted(topic.partitions.items())
        if number not in known and each.leader == broker and each.replicas[:1] == (broker,)
    )
    return (*numbers, *more)


def not_led(numbers: Sequence[int], topic: TopicMetadata, broker: BrokerId) -> list[int]:
    """The partitions that the broker does not lead."""
    found = topic.partitions
    return [number for number in numbers if number not in found or found[number].leader != broker]
