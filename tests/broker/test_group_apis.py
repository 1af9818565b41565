"""The group APIs over a socket, in every version, and the same conversations with Apache Kafka: the same answers."""

import uuid
from collections.abc import Iterator

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.conftest import StartHeadrace
from tests.wire import Wire, batch

pytestmark = pytest.mark.slow  # processes of its own

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}


def join(group: str, member_id: str = "", instance_id: str | None = None) -> m.JoinGroupRequest:
    protocols = [m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")]
    return m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=protocols,
    )


def sync(group: str, generation: int, member_id: str, version: int) -> m.SyncGroupRequest:
    return m.SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
        assignments=[m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")],
    )


def heartbeat(group: str, generation: int, member_id: str) -> m.HeartbeatRequest:
    return m.HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)


def leave(group: str, member_id: str, version: int) -> m.LeaveGroupRequest:
    if version < 3:
        return m.LeaveGroupRequest(group_id=group, member_id=member_id)
    return m.LeaveGroupRequest(group_id=group, members=[m.LeaveGroupRequest.MemberIdentity(member_id=member_id)])


def commit(group: str, topic: str, generation: int, member_id: str, partition: int = 0) -> m.OffsetCommitRequest:
    each = m.OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=1, committed_metadata="note"
    )
    return m.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[each])],
    )


def fetch(group: str, topic: str | None, version: int) -> m.OffsetFetchRequest:
    if version >= 8:
        topics = (
            None
            if topic is None
            else [m.OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1])]
        )
        return m.OffsetFetchRequest(
            groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=topics)]
        )
    only = (
        None if topic is None else [m.OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1])]
    )
    return m.OffsetFetchRequest(group_id=group, topics=only)


def fetched(answer: m.OffsetFetchResponse) -> list[tuple[int, int, str | None, int]]:
    topics = answer.groups[0].topics if answer.groups else answer.topics
    return [
        (each.partition_index, each.committed_offset, each.metadata, each.error_code)
        for topic in topics
        for each in topic.partitions
    ]


def find(group: str, version: int) -> m.FindCoordinatorRequest:
    return m.FindCoordinatorRequest(coordinator_keys=[group]) if version >= 4 else m.FindCoordinatorRequest(key=group)


def a_topic(bootstrap: str) -> str:
    """A topic that is there, and a coordinator that has answered."""
    topic = f"group-apis-{uuid.uuid4().hex[:8]}"
    asker = Asker(bootstrap)
    with Wire(bootstrap) as wire:
        assert wire.create_topic(topic) == 0
        while wire.produce(topic, batch([b"value"])).error_code != 0:
            pass
    while True:
        answer = asker.ask(find("any", 4), 4)
        if answer.coordinators[0].error_code == 0:
            answer = asker.ask(fetch("any", topic, 8), 8)
            if answer.groups[0].error_code == 0:
                return topic


def the_life_of_a_member(asker: Asker, topic: str, join_v: int, others: dict[str, int]) -> Iterator[object]:
    """Everything that a member does from its first to its last request, and what it is told."""
    group = f"life-{uuid.uuid4().hex[:8]}"
    answer = asker.ask(join(group), join_v)
    member_id = answer.member_id
    yield ErrorCode(answer.error_code).name, answer.generation_id, answer.protocol_name
    yield answer.leader.replace(member_id, "itself"), len(answer.members), len(member_id)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = asker.ask(join(group, member_id), join_v)
    assert answer.leader == answer.member_id == member_id
    yield ErrorCode(answer.error_code).name, answer.generation_id, answer.protocol_type, answer.protocol_name
    yield len(answer.members), answer.skip_assignment
    sync_v, commit_v, fetch_v, leave_v = (others[each] for each in ("sync", "commit", "fetch", "leave"))
    beat_v = others["heartbeat"]
    answer = asker.ask(sync(group, 1, member_id, sync_v), sync_v)
    yield "sync", ErrorCode(answer.error_code).name, answer.assignment, answer.protocol_type, answer.protocol_name
    yield "heartbeat", asker.ask(heartbeat(group, 1, member_id), beat_v).error_code
    yield "of another generation", asker.ask(heartbeat(group, 9, member_id), beat_v).error_code
    yield "of a stranger", asker.ask(heartbeat(group, 1, "stranger"), beat_v).error_code
    yield "sync of a stranger", asker.ask(sync(group, 1, "stranger", sync_v), sync_v).error_code
    for what, request in {
        "commit": commit(group, topic, 1, member_id),
        "of a partition that is not there": commit(group, topic, 1, member_id, partition=9),
        "of a topic that is not there": commit(group, "no-such-topic", 1, member_id),
        "by another generation": commit(group, topic, 0, member_id),
        "by a stranger": commit(group, topic, 1, "stranger"),
        "by a simple consumer": commit(group, topic, -1, ""),
    }.items():
        answer = asker.ask(request, commit_v)
        yield what, [(each.partition_index, each.error_code) for topic in answer.topics for each in topic.partitions]
    yield fetched(asker.ask(fetch(group, topic, fetch_v), fetch_v))
    if fetch_v >= 2:
        yield fetched(asker.ask(fetch(group, None, fetch_v), fetch_v))
    for each in ("stranger", member_id, member_id):
        answer = asker.ask(leave(group, each, leave_v), leave_v)
        yield "leave", answer.error_code, [member.error_code for member in answer.members]
    yield "after all", asker.ask(heartbeat(group, 1, member_id), beat_v).error_code
    yield "joins again", asker.ask(join(group, member_id), join_v).error_code
    yield "without a group", asker.ask(join(""), join_v).error_code
    yield "a simple consumer", asker.ask(commit(group, topic, -1, ""), commit_v).topics[0].partitions[0].error_code


def the_life_of_a_static_member(asker: Asker, join_v: int) -> Iterator[object]:
    """It leads its group, restarts without its id, and whoever still uses the old id is fenced."""
    group = f"static-{uuid.uuid4().hex[:8]}"
    first = asker.ask(join(group, instance_id="i"), join_v)
    old_id = first.member_id
    yield first.error_code, first.generation_id, len(first.members), old_id.partition("-")[0]
    yield asker.ask(sync(group, 1, old_id, 5), 5).assignment
    again = asker.ask(join(group, instance_id="i"), join_v)
    yield again.error_code, again.generation_id, len(again.members), again.skip_assignment
    yield "it leads" if again.leader == again.member_id else "the old one leads" if again.leader == old_id else "?"
    yield asker.ask(sync(group, 1, again.member_id, 5), 5).assignment
    for member_id in (old_id, again.member_id, "stranger"):
        beat, wanted = heartbeat(group, 1, member_id), sync(group, 1, member_id, 5)
        beat.group_instance_id = wanted.group_instance_id = "i"
        yield asker.ask(beat, 4).error_code
        yield asker.ask(wanted, 5).error_code
    yield asker.ask(join(group, old_id, "i"), join_v).error_code
    yield asker.ask(join(group, "stranger", "nobody"), join_v).error_code
    identities = [
        m.LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance)
        for member_id, instance in (("", "nobody"), (old_id, "i"), ("", "i"), ("", "i"))
    ]
    answer = asker.ask(m.LeaveGroupRequest(group_id=group, members=identities), 5)
    yield [(each.group_instance_id, each.error_code) for each in answer.members]


VERSIONS = [
    # JoinGroup, then the others; the oldest that Apache Kafka 4 serves, up to the newest
    (0, {"sync": 0, "heartbeat": 0, "leave": 0, "commit": 2, "fetch": 1}),
    (1, {"sync": 1, "heartbeat": 1, "leave": 1, "commit": 3, "fetch": 2}),
    (2, {"sync": 2, "heartbeat": 2, "leave": 2, "commit": 4, "fetch": 3}),
    (3, {"sync": 2, "heartbeat": 2, "leave": 2, "commit": 5, "fetch": 4}),
    (4, {"sync": 3, "heartbeat": 3, "leave": 3, "commit": 6, "fetch": 5}),
    (5, {"sync": 3, "heartbeat": 3, "leave": 3, "commit": 7, "fetch": 5}),
    (6, {"sync": 4, "heartbeat": 4, "leave": 4, "commit": 8, "fetch": 6}),
    (7, {"sync": 5, "heartbeat": 4, "leave": 4, "commit": 8, "fetch": 7}),
    (8, {"sync": 5, "heartbeat": 4, "leave": 5, "commit": 9, "fetch": 8}),
    (9, {"sync": 5, "heartbeat": 4, "leave": 5, "commit": 9, "fetch": 9}),
]


def all_lives(bootstrap: str) -> dict[int, list[object]]:
    """What a member of each JoinGroup version is told; a static one under its version and 100."""
    topic = a_topic(bootstrap)
    asker = Asker(bootstrap)
    lives = {join_v: list(the_life_of_a_member(asker, topic, join_v, others)) for join_v, others in VERSIONS}
    return lives | {100 + join_v: list(the_life_of_a_static_member(asker, join_v)) for join_v in range(5, 10)}


def test_a_member_of_any_version_lives_and_leaves(headrace_server: StartHeadrace) -> None:
    lives = all_lives(headrace_server(settings=SETTINGS).bootstrap)
    assert lives[0][0][0] == lives[3][0][0] == "NONE"  # type: ignore[index]
    assert lives[4][0][0] == lives[9][0][0] == "MEMBER_ID_REQUIRED"  # type: ignore[index]
    for version, told in lives.items():
        if version >= 100:
            assert told[3] == ("it leads" if version == 109 else "the old one leads")
            continue
        assert ("commit", [(0, 0)]) in told, version
        assert [(0, 1, "note", 0), (1, -1, "", 0)] in told, version


def test_apache_kafka_tells_a_member_the_same(headrace_server: StartHeadrace, apache_kafka: str) -> None:
    ours, theirs = all_lives(headrace_server(settings=SETTINGS).bootstrap), all_lives(apache_kafka)
    for version, told in theirs.items():
        assert ours[version] == told, f"JoinGroup {version}"


@pytest.mark.parametrize("version", [0, 1])
def test_offsets_of_the_oldest_clients_are_kept_like_any_other(headrace_server: StartHeadrace, version: int) -> None:
    server = headrace_server(settings=SETTINGS)
    topic, asker = a_topic(server.bootstrap), Asker(server.bootstrap)
    answer = asker.ask(commit("old", topic, -1, ""), version)
    assert answer.topics[0].partitions[0].error_code == 0
    none = 0 if version else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # what ZooKeeper's offsets said
    assert fetched(asker.ask(fetch("old", topic, version), version)) == [(0, 1, "note", 0), (1, -1, "", none)]


def test_every_version_finds_the_coordinator_and_none_for_transactions(headrace_server: StartHeadrace) -> None:
    server = headrace_server(settings=SETTINGS)
    asker = Asker(server.bootstrap)
    for version in range(7):
        answer = asker.ask(find("a group", version), version)
        found = answer.coordinators[0] if version >= 4 else answer
        assert (found.error_code, f"{found.host}:{found.port}") == (0, server.bootstrap), version
        if version:
            request = find("a transaction", version)
            request.key_type = 1
            answer = asker.ask(request, version)
            found = answer.coordinators[0] if version >= 4 else answer
            assert (found.error_code, f"{found.host}:{found.port}") == (0, server.bootstrap), version


def test_a_waiting_join_keeps_its_place_before_later_requests_of_its_connection(headrace_server: StartHeadrace) -> None:
    server = headrace_server(settings=SETTINGS | {"group.initial.rebalance.delay.ms": "300"})
    topic, asker = a_topic(server.bootstrap), Asker(server.bootstrap)
    asker.send(join("ordered"), 3)
    asker.send(fetch("ordered", topic, 8), 8)
    assert asker.receive(join("ordered"), 3).error_code == 0
    assert fetched(asker.receive(fetch("ordered", topic, 8), 8)) == [(0, -1, "", 0), (1, -1, "", 0)]


def test_after_a_kill_with_other_settings_every_group_is_where_it_was(headrace_server: StartHeadrace) -> None:
    server = headrace_server(settings=SETTINGS)
    topic, asker = a_topic(server.bootstrap), Asker(server.bootstrap)
    for number in range(20):
        answer = asker.ask(commit(f"group-{number}", topic, -1, ""), 9)
        assert answer.topics[0].partitions[0].error_code == 0
    server.kill()
    again = headrace_server(server.data, settings=SETTINGS | {"offsets.topic.num.partitions": "7"})
    asker = Asker(again.bootstrap)
    for number in range(20):
        assert asker.ask(find(f"group-{number}", 3), 3).error_code == 0
        found = fetched(asker.ask(fetch(f"group-{number}", topic, 9), 9))
        assert found == [(0, 1, "note", 0), (1, -1, "", 0)]
