"""Records of streams groups that Apache Kafka's own coordinator wrote, read and written again by ours: equal bytes."""

import uuid

import pytest

from headrace.coordinators.groups.loading import GroupLoading
from headrace.coordinators.groups.records import read_version
from headrace.coordinators.groups.streams.group import StreamsGroup
from headrace.coordinators.groups.streams.records import KEY_VERSIONS, read_change, replay
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.coordinators.groups.streams.samples import requested, subtopology
from tests.coordinators.groups.test_peer_records import all_records
from tests.eventually import eventually

Request = m.StreamsGroupHeartbeatRequest


@pytest.mark.peer
def test_every_record_of_apache_kafka_is_read_and_written_again_byte_for_byte(apache_kafka: str) -> None:
    group = f"streams-{uuid.uuid4().hex[:8]}"
    topic = f"lines-{group}"
    with Asker(apache_kafka) as asker:
        new = m.CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=3, replication_factor=1)
        asker.ask(m.CreateTopicsRequest(topics=[new], timeout_ms=10_000), 5)
        asker.ask(m.FindCoordinatorRequest(key=group), 3)  # creates __consumer_offsets
        use_a_group(asker, group, topic)
    found: dict[int, int] = {}
    loading = GroupLoading(0, lambda version: replay if version in KEY_VERSIONS else None)
    most_members = 0
    for _, key, value in all_records(apache_kafka):
        version = read_version(key)
        if version not in KEY_VERSIONS or group.encode() not in key:
            continue
        found[version] = found.get(version, 0) + 1
        named, change = read_change(version, key, value)
        assert named == group
        if change is not None:
            assert change.key_value(group) == (key, value)
        loading.record(key, value, 0)
        known = loading.groups.get(group)
        most_members = max(most_members, len(known.members) if isinstance(known, StreamsGroup) else 0)
    assert set(found) == set(KEY_VERSIONS)
    assert most_members == 2
    left = loading.groups[group]
    assert isinstance(left, StreamsGroup)
    assert list(left.members) == ["one"]
    assert left.topology is not None and left.topology.subtopologies[0].source_topics == (topic,)


def use_a_group(asker: Asker, group: str, topic: str) -> None:
    """Two members join, with all that a member can say about itself; the second leaves."""
    topology = requested(subtopology("0", [topic]))

    def beat(member: str, epoch: int, **fields: object) -> m.StreamsGroupHeartbeatResponse:
        request = Request(group_id=group, member_id=member, member_epoch=epoch, **fields)  # type: ignore[arg-type]
        answer: m.StreamsGroupHeartbeatResponse = asker.ask(request, 0)
        return answer

    def join(member: str) -> m.StreamsGroupHeartbeatResponse:
        return beat(
            member,
            0,
            topology=topology,
            rebalance_timeout_ms=60_000,
            process_id=f"process-{member}",
            rack_id="rack",
            user_endpoint=Request.Endpoint(host="host.example", port=8080),
            client_tags=[Request.KeyValue(key=each, value="v") for each in ("zone", "cluster")],
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )

    def has_joined() -> m.StreamsGroupHeartbeatResponse | None:
        answer = join("one")
        return answer if answer.error_code == ErrorCode.NONE and not answer.status else None

    first = eventually(has_joined, "a group whose topics are known")
    assert first is not None
    join("two")
    kept = beat("one", first.member_epoch)
    assert kept.active_tasks is not None
    owned = [Request.TaskIds(subtopology_id="0", partitions=each.partitions) for each in kept.active_tasks]
    beat("one", kept.member_epoch, active_tasks=owned, standby_tasks=[], warmup_tasks=[])
    beat("two", -1)
