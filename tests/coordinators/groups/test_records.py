"""Keys and values of __consumer_offsets: bytes that Apache Kafka 3.9.2 and 4.3.1 wrote, and values at random."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinators.groups.classic.group import ClassicGroup, GroupState
from headrace.coordinators.groups.classic.members import Member
from headrace.coordinators.groups.classic.records import read_group, read_group_key, write_group, write_group_key
from headrace.coordinators.groups.kinds import replay_of
from headrace.coordinators.groups.loading import GroupLoading
from headrace.coordinators.groups.offsets import CommittedOffset
from headrace.coordinators.groups.records import (
    OffsetKey,
    read_offset,
    read_offset_key,
    write_offset,
    write_offset_key,
)
from headrace.errors import CorruptMessage, KafkaError
from headrace.protocol import messages as m
from headrace.types import TopicPartition

OFFSET_KEY = "00010006676f6c64656e000b706565722d67726f75707300000000"
OFFSET_392 = "00030000000000000001ffffffff000761206e6f746500000001a1fdcc6d7b"
# With the topic's id, as a tagged field:
OFFSET_431 = "00040000000000000001ffffffff0861206e6f746500000001a1fdcbf22c010010081754382a684419856279ec81092f1d"
GROUP_KEY = "0002000d676f6c64656e2d737461746963"
EMPTY_GROUP_392 = "00030008636f6e73756d657200000002ffffffff000001a1fdcc6d8a00000000"
NEW_GROUP_431 = "0003000000000000ffffffff000001a1fdcbf39400000000"
STATIC_MEMBER_392 = (
    "00030008636f6e73756d657200000001000572616e6765002d696e7374616e63652d36666430306563642d356332332d343664312d623066"
    "322d643239326461313231393036000001a1fdcc6ddd00000001002d696e7374616e63652d36666430306563642d356332332d343664312d"
    "623066322d6432393264613132313930360008696e7374616e6365000772646b61666b61000a2f3132372e302e302e31000493e00000afc8"
    "00000021000300000001000b706565722d67726f7570730000000000000000ffffffff00000000001f000000000001000b706565722d6772"
    "6f757073000000010000000000000000"
)


def assignments_of(group: ClassicGroup) -> dict[str, bytes]:
    return {each.member_id: each.assignment for each in group.members.values()}


def test_an_offset_of_kafka_39() -> None:
    key, value = bytes.fromhex(OFFSET_KEY), bytes.fromhex(OFFSET_392)
    assert read_offset_key(key) == OffsetKey("golden", TopicPartition("peer-groups", 0))
    offset = read_offset(value, 17)
    assert offset == CommittedOffset(1, -1, "a note\0", 1795259395451, record_offset=17)
    assert write_offset_key("golden", TopicPartition("peer-groups", 0)) == key
    assert write_offset(offset) == value


def test_an_offset_of_kafka_43_keeps_its_topic_id() -> None:
    offset = read_offset(bytes.fromhex(OFFSET_431), 0)
    assert offset.topic_id.hex() == "081754382a684419856279ec81092f1d"
    assert write_offset(offset).hex() == OFFSET_431


def test_a_group_with_a_static_member() -> None:
    key, value = bytes.fromhex(GROUP_KEY), bytes.fromhex(STATIC_MEMBER_392)
    assert read_group_key(key) == "golden-static"
    group = read_group("golden-static", 7, value)
    assert (group.state, group.generation, group.protocol_type) == (GroupState.STABLE, 1, "consumer")
    assert group.subscribed_topics == frozenset({"peer-groups"})
    (member,) = group.members.values()
    assert group.leader_id == member.member_id == group.static_members["instance"]
    assert (member.client_id, member.client_host) == ("rdkafka", "/127.0.0.1")
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (45_000, 300_000)
    assert write_group_key("golden-static") == key
    assert write_group(group, assignments_of(group)) == value


@pytest.mark.parametrize(("written", "protocol_type"), [(EMPTY_GROUP_392, "consumer"), (NEW_GROUP_431, None)])
def test_a_group_without_members(written: str, protocol_type: str | None) -> None:
    group = read_group("golden", 7, bytes.fromhex(written))
    assert (group.state, group.leader_id, group.protocol_name) == (GroupState.EMPTY, None, None)
    assert group.protocol_type == protocol_type
    assert write_group(group, {}).hex() == written


def test_a_group_of_before_version_1_has_one_timeout_for_both() -> None:
    member = Member("a-1", None, "a", "/h", 10_000, 10_000, (("range", b"meta"),), b"mine")
    value = (
        b"\0\0" + b"\0\x08consumer" + b"\0\0\0\x05" + b"\0\x05range" + b"\0\x03a-1"
        + b"\0\0\0\x01" + b"\0\x03a-1" + b"\0\x01a" + b"\0\x02/h" + b"\0\0\x27\x10"
        + b"\0\0\0\x04meta" + b"\0\0\0\x04mine"
    )  # fmt: skip
    group = read_group("g", 7, value)
    assert group.members == {"a-1": member}
    assert group.state_since_ms is None


def test_an_offset_with_its_own_expiry_is_written_as_version_1() -> None:
    offset = CommittedOffset(5, 3, "", 100, expire_timestamp_ms=200)
    written = write_offset(offset)
    assert written[:2] == b"\0\x01"
    assert read_offset(written, -1) == offset._replace(leader_epoch=-1)  # version 1 has no room for it


def test_a_key_of_another_coordinators_is_left_alone() -> None:
    loading = GroupLoading(0, replay_of)
    loading.record(b"\0\x63whatever", None, 0)
    assert not loading.finish(0)
    with pytest.raises(CorruptMessage):
        loading.record(b"\0", None, 0)
    with pytest.raises(CorruptMessage):
        read_offset(b"\0\x05" + bytes(40), 0)
    with pytest.raises(CorruptMessage):
        read_group("g", 7, b"\0\x05")


NAMES = st.text(max_size=20)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)


@given(NAMES, NAMES, INT32)
def test_offset_keys_come_back(group_id: str, topic: str, partition: int) -> None:
    key = write_offset_key(group_id, TopicPartition(topic, partition))
    assert read_offset_key(key) == OffsetKey(group_id, TopicPartition(topic, partition))


@given(NAMES, NAMES, INT32, INT64, INT32, INT64)
def test_keys_and_offsets_are_what_the_schemas_say(
    group_id: str, text: str, partition: int, offset: int, epoch: int, at_ms: int
) -> None:
    key = m.OffsetCommitKey(group=group_id, topic=text, partition=partition)
    assert write_offset_key(group_id, TopicPartition(text, partition)) == b"\0\x01" + key.encode(1)
    value = m.OffsetCommitValue(offset=offset, metadata=text, commit_timestamp=at_ms, leader_epoch=epoch)
    assert write_offset(CommittedOffset(offset, epoch, text, at_ms)) == b"\0\x03" + value.encode(3)


def test_names_that_no_key_has_room_for_are_refused() -> None:
    longest, longer = "g" * 32_767, "g" * 32_768
    assert read_offset_key(write_offset_key(longest, TopicPartition(longest, 0))).group_id == longest
    for group_id, topic in ((longer, "t"), ("g", longer)):
        with pytest.raises(ValueError, match="OffsetCommitKey"):
            write_offset_key(group_id, TopicPartition(topic, 0))
    with pytest.raises(ValueError, match="OffsetCommitValue"):
        write_offset(CommittedOffset(1, 1, longer, 1))


@given(INT64, INT32, NAMES, INT64, st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16)))
def test_offsets_come_back(offset: int, epoch: int, metadata: str, at_ms: int, topic_id: bytes) -> None:
    committed = CommittedOffset(offset, epoch, metadata, at_ms, topic_id=topic_id, record_offset=1)
    assert read_offset(write_offset(committed), 1) == committed


MEMBERS = st.builds(
    Member,
    member_id=NAMES,
    instance_id=st.none() | NAMES,
    client_id=NAMES,
    client_host=NAMES,
    session_timeout_ms=INT32,
    rebalance_timeout_ms=INT32,
    protocols=st.binary(max_size=20).map(lambda metadata: (("range", metadata),)),
    assignment=st.binary(max_size=20),
    is_new=st.just(False),
)


@given(
    st.lists(MEMBERS, max_size=4, unique_by=(lambda each: each.member_id, lambda each: each.instance_id or id(each)))
)
def test_groups_come_back(members: list[Member]) -> None:
    group = ClassicGroup.loaded(
        "g",
        7,
        generation=7,
        protocol_type="consumer",
        protocol_name="range" if members else None,
        leader_id=members[0].member_id if members else None,
        state_since_ms=123,
        members=members,
    )
    again = read_group("g", 7, write_group(group, assignments_of(group)))
    assert again == group


@given(st.sampled_from([OFFSET_392, OFFSET_431, STATIC_MEMBER_392, EMPTY_GROUP_392]), st.data())
def test_broken_bytes_give_a_typed_error_or_another_value(written: str, data: st.DataObject) -> None:
    value = bytearray.fromhex(written)
    if data.draw(st.booleans()):
        value[data.draw(st.integers(0, len(value) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = bytes(value[: data.draw(st.integers(0, len(value)))])
    for read in (lambda: read_offset(cut, 0), lambda: read_group("g", 7, cut), lambda: read_offset_key(cut)):
        try:
            read()
        except KafkaError:
            pass
