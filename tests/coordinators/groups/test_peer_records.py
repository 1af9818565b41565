"""Records that Apache Kafka's own coordinator wrote, read and written again by ours: the same bytes."""

import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from headrace.coordinators.groups.classic.group import ClassicGroup, GroupState
from headrace.coordinators.groups.classic.records import (
    GROUP_KEY_VERSION,
    read_group,
    read_group_key,
    write_group,
    write_group_key,
)
from headrace.coordinators.groups.offsets import CommittedOffset
from headrace.coordinators.groups.partitioning import partition_for
from headrace.coordinators.groups.records import (
    OFFSET_KEY_VERSIONS,
    read_offset,
    read_offset_key,
    read_version,
    write_offset,
    write_offset_key,
)
from tests.eventually import WITHIN_SECONDS

DYNAMIC, STATIC = "peer-groups dynamic", "peer-groups static \u00fc\U0001f600"
OWN = {DYNAMIC, STATIC}
"""The groups of this test. Other tests use the same peer, some with settings that write other versions."""
PARTITIONS = 3  # of __consumer_offsets, in the peer's settings


def use_a_group(bootstrap: str, group_id: str, **settings: str) -> None:
    """One member joins, reads, commits and goes."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("peer-groups", b"value")
    producer.flush(30)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        | settings
    )
    consumer.subscribe(["peer-groups"])
    deadline = time.monotonic() + WITHIN_SECONDS
    while consumer.poll(0.2) is None:
        assert time.monotonic() < deadline, "the peer gave nothing to read"
    consumer.commit(offsets=[TopicPartition("peer-groups", 0, 1, metadata="a note")], asynchronous=False)
    consumer.close()


def all_records(bootstrap: str) -> list[tuple[int, bytes, bytes | None]]:
    """(partition, key, value) of everything in __consumer_offsets, also of transactions that other tests left open."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_uncommitted"}
    consumer = Consumer(settings | {"enable.partition.eof": True})
    consumer.assign([TopicPartition("__consumer_offsets", each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    found: list[tuple[int, bytes, bytes | None]] = []
    ended: set[int | None] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            ended.add(message.partition())
        else:
            partition, key = message.partition(), message.key()
            assert partition is not None and key is not None
            found.append((partition, key, message.value()))
    consumer.close()
    return found


def test_every_record_of_apache_kafka_is_read_and_written_again_byte_for_byte(apache_kafka: str) -> None:
    use_a_group(apache_kafka, DYNAMIC)
    use_a_group(apache_kafka, STATIC, **{"group.instance.id": "instance"})
    groups: dict[str, list[ClassicGroup]] = {}
    offsets: dict[str, CommittedOffset] = {}
    for partition, key, value in all_records(apache_kafka):
        version = read_version(key)
        if version in OFFSET_KEY_VERSIONS and (known := read_offset_key(key)).group_id in OWN:
            group_id = known.group_id
            assert write_offset_key(group_id, known.partition) == key
            if value is not None:
                offsets[group_id] = read_offset(value, 0)
                assert write_offset(offsets[group_id]) == value
        elif version == GROUP_KEY_VERSION and (group_id := read_group_key(key)) in OWN:
            assert write_group_key(group_id) == key
            if value is not None:
                group = read_group(group_id, partition, value)
                assignments = {each.member_id: each.assignment for each in group.members.values()}
                assert write_group(group, assignments) == value
                groups.setdefault(group_id, []).append(group)
        else:
            continue
        assert partition == partition_for(group_id, PARTITIONS)
    assert groups.keys() & offsets.keys() == OWN
    assert offsets[DYNAMIC].metadata.startswith("a note")  # this client sends the NUL along
    assert GroupState.STABLE in {each.state for each in groups[DYNAMIC]}
    assert groups[DYNAMIC][-1].state is GroupState.EMPTY
    (member,) = groups[STATIC][-1].members.values()
    assert member.instance_id == "instance"
