"""Records of consumer groups that Apache Kafka's own coordinator wrote: ours reads them, writes the same bytes, and
writes the same records in the same order for the same requests."""

import uuid
from typing import Any, cast

import pytest

from headrace.coordinators.groups.consumer.group import ConsumerGroup
from headrace.coordinators.groups.consumer.records import Resolved, read_record
from headrace.coordinators.groups.kinds import CONSUMER_KEY_VERSIONS, replay_of
from headrace.coordinators.groups.loading import GroupLoading
from headrace.coordinators.groups.records import read_version
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.coordinators.groups.consumer.consumers import GROUP, Consumer, World, topic
from tests.coordinators.groups.scenario import GivenTopics
from tests.coordinators.groups.test_peer_records import all_records
from tests.eventually import eventually

PARTITION_COUNT = 4


class Peer:
    """Apache Kafka in the place of a `World`."""

    def __init__(self, asker: Asker, group: str, name: str) -> None:
        self._asker, self._group, self._name = asker, group, name
        self.topics = GivenTopics(topic(name, PARTITION_COUNT))
        self.now_ms = 0

    def ask(self, request: m.ConsumerGroupHeartbeatRequest, version: int = 1) -> Any:
        """A heartbeat, and its answer."""
        request.group_id = self._group
        return self._asker.ask(request, version)


def play(world: World, name: str) -> None:
    """Members come, share, subscribe to something else, and go; one is static, and comes back under another id."""
    one, two = Consumer(world, "one", topics=(name,)), Consumer(world, "two", topics=(name,))
    one.join(rack_id="r", server_assignor="range")
    two.join()
    for _ in range(2):
        one.beat()
        two.beat()
    static = Consumer(world, "static", topics=(name,), instance_id="instance")
    static.join()
    for _ in range(2):
        for each in (one, two, static):
            each.beat()
    static.leave(-2)
    again = Consumer(world, "static2", topics=(name,), instance_id="instance")
    again.join()
    again.beat()
    two.beat(subscribed_topic_names=["no-such-topic"])
    two.beat()
    for each in (one, again, two, one, again):
        each.beat()
    again.leave()
    two.leave()
    one.beat()
    one.leave()


@pytest.mark.peer
def test_the_same_requests_lead_to_the_same_records_as_at_apache_kafka(apache_kafka: str) -> None:
    group = f"consumer-{uuid.uuid4().hex[:8]}"
    name = f"lines-{group}"
    with Asker(apache_kafka) as asker:
        new = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=PARTITION_COUNT, replication_factor=1)
        asker.ask(m.CreateTopicsRequest(topics=[new], timeout_ms=10_000), 5)
        find = m.FindCoordinatorRequest(key=group)
        eventually(lambda: asker.ask(find, 3).error_code == 0, "the coordinator")
        warm = Consumer(cast("World", Peer(asker, f"{group}-warm", name)), "warm", topics=(name,))

        def sees_the_topic() -> bool:
            warm.join()
            return bool(warm.owned)

        eventually(sees_the_topic, "the topic at the coordinator")
        play(cast("World", Peer(asker, group, name)), name)
    written, loading = [], GroupLoading(0, replay_of)
    for _, key, value in all_records(apache_kafka):
        version = read_version(key)
        if version not in CONSUMER_KEY_VERSIONS:
            continue
        named, record = read_record(version, key, value)
        if named != group or record is None:
            continue
        if not isinstance(record, Resolved):  # its version is the broker's own
            assert record.encode(group) == (key, value)
        written.append(_shape(record))
        loading.record(key, value, 0)
    world = World(topics=GivenTopics(topic(name, PARTITION_COUNT)))
    play(world, name)
    own = []
    for key, value in world.log:
        _, record = read_record(read_version(key), key, value)
        own.append(_shape(record))
    assert own == written
    left = loading.groups[group]
    assert isinstance(left, ConsumerGroup)
    assert (left.epoch, left.target_epoch, left.members) == (world.group.epoch, world.group.target_epoch, {})
    assert GROUP in {each.group_id for each in world.coordinator.overview()[1]}


def _shape(record: Any) -> tuple[Any, ...]:
    """What does not depend on topic ids and the time."""
    member = getattr(record, "member", None)
    member_id = getattr(record, "member_id", None) if member is None else member.member_id
    epochs = (
        (getattr(record, "epoch", None),) if member is None else (member.epoch, member.previous_epoch, member.state)
    )
    partitions = [sorted(each) for each in (getattr(record, "partitions", None) or {}).values()]
    owned = [] if member is None else [dict(each) for each in (*member.assigned.values(), *member.revoking.values())]
    return (type(record).__name__, member_id, *epochs, partitions, owned)
