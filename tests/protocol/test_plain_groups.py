"""The short reading of a member's plain requests agrees with the general decoder, and the answers with the encoder."""

from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol import messages as m
from headrace.protocol import plain_groups as compiled
from headrace.protocol.headers import response_header, write_request_header
from tests.uncompiled import uncompiled

FORMS = pytest.mark.parametrize("form", [compiled, uncompiled(compiled)], ids=["compiled", "uncompiled"])
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.text(st.characters(codec="ascii"), max_size=20)
long_names = st.one_of(names, st.just("n" * 200))
clients = st.one_of(st.none(), names)
instances = st.one_of(st.none(), names)
heartbeats = st.builds(
    m.HeartbeatRequest, group_id=long_names, generation_id=int32, member_id=long_names, group_instance_id=instances
)
consumer_heartbeats = st.builds(
    m.ConsumerGroupHeartbeatRequest,
    group_id=long_names,
    member_id=long_names,
    member_epoch=int32,
    instance_id=instances,
)
Topic, Partition = (
    m.OffsetCommitRequest.OffsetCommitRequestTopic,
    m.OffsetCommitRequest.OffsetCommitRequestPartition,
)
partitions = st.builds(
    Partition,
    partition_index=int32,
    committed_offset=int64,
    committed_leader_epoch=int32,
    committed_metadata=st.one_of(st.none(), long_names),
)
commits = st.builds(
    m.OffsetCommitRequest,
    group_id=long_names,
    generation_id_or_member_epoch=int32,
    member_id=names,
    group_instance_id=instances,
    topics=st.lists(
        st.builds(
            Topic,
            name=names,
            topic_id=st.binary(min_size=16, max_size=16),
            partitions=st.lists(partitions, min_size=1, max_size=4),
        ),
        min_size=1,
        max_size=4,
    ),
)


def frame_of(request: Any, version: int, client: str | None = "me") -> bytes:
    return write_request_header(request.API_KEY, version, 7, client) + bytes(request.encode(version))


class Read:
    """What one of the forms has read of a frame, with other bytes around it."""

    def __init__(self, form: ModuleType, name: str, frame: bytes, *, rows: bool = False) -> None:
        self.fields = memoryview(array("q", bytes(8 * form.REQUEST_FIELDS)))
        self.rows = memoryview(array("q", bytes(8 * form.ROW_FIELDS * form.PARTITIONS_MAX)))
        self.buf = memoryview(b"\0\1" * 3 + frame + b"\0\1" * 50)
        more = (self.rows,) if rows else ()
        self.result = getattr(form, name)(self.buf, 6, 6 + len(frame), self.fields, *more)
        self.form = form

    def text(self, at: int, values: Any = None) -> str | None:
        found = self.fields if values is None else values
        return None if found[at] < 0 else str(self.buf[found[at] : found[at + 1]], "ascii")

    def head(self) -> tuple[Any, ...]:
        form, fields = self.form, self.fields
        return (
            fields[form.API_VERSION], fields[form.CORRELATION_ID], self.text(form.CLIENT_AT), self.text(form.GROUP_AT),
            fields[form.EPOCH], self.text(form.MEMBER_AT), self.text(form.INSTANCE_AT),
        )  # fmt: skip


def framed(api_key: int, version: int, answer: Any) -> bytes:
    body = response_header(api_key, version, 7) + bytes(answer.encode(version))
    return len(body).to_bytes(4, "big") + body


@FORMS
@given(heartbeats, clients, st.integers(0, 4))
def test_a_heartbeat_is_read_and_answered(
    form: ModuleType, request: m.HeartbeatRequest, client: str | None, version: int
) -> None:
    if version < 3:
        request.group_instance_id = None
    read = Read(form, "read_plain_heartbeat", frame_of(request, version, client))
    assert read.result
    assert read.head() == (
        version, 7, client, request.group_id, request.generation_id, request.member_id, request.group_instance_id,
    )  # fmt: skip
    out = memoryview(bytearray(100))
    end = form.write_heartbeat_answer(read.fields, out, 9)
    assert out[9:end] == framed(request.API_KEY, version, m.HeartbeatResponse())


@FORMS
@given(consumer_heartbeats, clients, st.integers(0, 1), st.integers(1, 1 << 31 - 1))
def test_a_consumer_heartbeat_that_tells_nothing_is_read_and_answered(
    form: ModuleType, request: m.ConsumerGroupHeartbeatRequest, client: str | None, version: int, interval_ms: int
) -> None:
    read = Read(form, "read_plain_consumer_heartbeat", frame_of(request, version, client))
    assert read.result
    assert read.head() == (
        version, 7, client, request.group_id, request.member_epoch, request.member_id, request.instance_id,
    )  # fmt: skip
    answer = m.ConsumerGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=interval_ms
    )
    expected = framed(request.API_KEY, version, answer)
    size = form.consumer_heartbeat_answer_bytes(read.fields)
    out = memoryview(bytearray(9 + size))
    end = form.write_consumer_heartbeat_answer(read.fields, interval_ms, read.buf, out, 9)
    assert out[9:end] == expected


@FORMS
@given(long_names, long_names, int32, clients, st.integers(1, 1 << 31 - 1))
def test_a_share_heartbeat_that_tells_nothing_is_read_and_answered(
    form: ModuleType, group_id: str, member_id: str, epoch: int, client: str | None, interval_ms: int
) -> None:
    request = m.ShareGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=epoch)
    read = Read(form, "read_plain_share_heartbeat", frame_of(request, 1, client))
    assert read.result
    assert read.head() == (1, 7, client, group_id, epoch, member_id, None)
    answer = m.ShareGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=interval_ms)
    out = memoryview(bytearray(9 + form.consumer_heartbeat_answer_bytes(read.fields)))
    end = form.write_consumer_heartbeat_answer(read.fields, interval_ms, read.buf, out, 9)
    assert out[9:end] == framed(request.API_KEY, 1, answer)
    telling: tuple[dict[str, Any], ...] = (
        {"rack_id": "r"}, {"subscribed_topic_names": []}, {"subscribed_topic_names": ["t"]},
    )  # fmt: skip
    for told in telling:
        request = m.ShareGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=epoch, **told)
        assert not Read(form, "read_plain_share_heartbeat", frame_of(request, 1, client)).result


@FORMS
@pytest.mark.parametrize(
    "told",
    [
        {"rack_id": "r"},
        {"rebalance_timeout_ms": 5},
        {"subscribed_topic_names": []},
        {"subscribed_topic_regex": "x"},
        {"server_assignor": "uniform"},
        {"topic_partitions": []},
    ],
    ids=lambda told: next(iter(told)),
)
def test_a_consumer_heartbeat_that_tells_something_is_not_plain(form: ModuleType, told: dict[str, Any]) -> None:
    for version in (0, 1):
        if version or "subscribed_topic_regex" not in told:
            request = m.ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=3, **told)
            assert not Read(form, "read_plain_consumer_heartbeat", frame_of(request, version)).result


@FORMS
@given(commits, clients, st.integers(2, 10))
def test_a_commit_is_read_and_answered(
    form: ModuleType, request: m.OffsetCommitRequest, client: str | None, version: int
) -> None:
    if version < 7:
        request.group_instance_id = None
    if version < 6:
        for topic in request.topics:
            for each in topic.partitions:
                each.committed_leader_epoch = -1
    read = Read(form, "read_plain_commit", frame_of(request, version, client), rows=True)
    everything = [(topic, each) for topic in request.topics for each in topic.partitions]
    assert read.result == len(everything)
    assert read.head() == (
        version, 7, client, request.group_id, request.generation_id_or_member_epoch, request.member_id,
        request.group_instance_id,
    )  # fmt: skip
    for number, (topic, each) in enumerate(everything):
        row = read.rows[number * form.ROW_FIELDS : (number + 1) * form.ROW_FIELDS]
        name = bytes(read.buf[row[form.TOPIC_AT] : row[form.TOPIC_END]])
        assert name == (topic.topic_id if version >= 10 else topic.name.encode())
        assert row[form.OF_TOPIC] == (len(topic.partitions) if each is topic.partitions[0] else 0)
        assert (row[form.INDEX], row[form.OFFSET], row[form.LEADER_EPOCH]) == (
            each.partition_index, each.committed_offset, each.committed_leader_epoch,
        )  # fmt: skip
        assert read.text(form.METADATA_AT, row) == (each.committed_metadata or "")
    response = m.OffsetCommitResponse
    answer = response(
        topics=[
            response.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    response.OffsetCommitResponsePartition(partition_index=each.partition_index)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    expected = framed(request.API_KEY, version, answer)
    out = memoryview(bytearray(9 + form.commit_answer_bytes(read.rows, read.result)))
    end = form.write_commit_answer(read.fields, read.rows, read.result, read.buf, out, 9)
    assert out[9:end] == expected


@FORMS
def test_a_commit_with_a_retention_time_or_too_many_partitions_is_not_plain(form: ModuleType) -> None:
    def commit(count: int, **more: Any) -> m.OffsetCommitRequest:
        parts = [Partition(partition_index=number, committed_offset=1) for number in range(count)]
        return m.OffsetCommitRequest(group_id="g", topics=[Topic(name="t", partitions=parts)], **more)

    def read(request: m.OffsetCommitRequest, version: int) -> int:
        return int(Read(form, "read_plain_commit", frame_of(request, version), rows=True).result)

    most = form.PARTITIONS_MAX
    assert read(commit(most), 8) == most
    assert read(commit(most + 1), 8) == form.NOT_PLAIN
    assert read(commit(0), 8) == form.NOT_PLAIN
    assert read(commit(1), 4) == 1
    assert read(commit(1, retention_time_ms=0), 4) == form.NOT_PLAIN
    assert read(commit(1), 1) == read(commit(1), 0) == form.NOT_PLAIN
    assert read(m.OffsetCommitRequest(group_id="g"), 8) == form.NOT_PLAIN


@FORMS
@pytest.mark.parametrize(
    ("name", "request_", "versions"),
    [
        ("read_plain_heartbeat", m.HeartbeatRequest(group_id="g\u00fc", generation_id=1, member_id="m"), range(5)),
        ("read_plain_heartbeat", m.HeartbeatRequest(group_id="g", generation_id=1, member_id="\u00fc"), range(5)),
        ("read_plain_consumer_heartbeat", m.ConsumerGroupHeartbeatRequest(group_id="\u00fc", member_id="m"), range(2)),
        ("read_plain_commit", m.OffsetCommitRequest(group_id="\u00fc"), range(2, 11)),
    ],
    ids=["group", "member", "consumer group", "commit"],
)
def test_texts_beyond_ascii_are_not_plain(form: ModuleType, name: str, request_: Any, versions: range) -> None:
    for version in versions:
        read = Read(form, name, frame_of(request_, version), rows=name == "read_plain_commit")
        assert read.result in (False, form.NOT_PLAIN)


@FORMS
def test_every_prefix_of_a_request_and_every_longer_one_is_not_plain(form: ModuleType) -> None:
    topics = [Topic(name="t", topic_id=b"i" * 16, partitions=[Partition(committed_metadata="x" * 5)] * 2)] * 2
    for name, request, versions in (
        ("read_plain_heartbeat", m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), range(5)),
        ("read_plain_consumer_heartbeat", m.ConsumerGroupHeartbeatRequest(group_id="g", member_id="m"), range(2)),
        ("read_plain_share_heartbeat", m.ShareGroupHeartbeatRequest(group_id="g", member_id="m"), range(1, 2)),
        ("read_plain_commit", m.OffsetCommitRequest(group_id="g", member_id="m", topics=topics), range(2, 11)),
    ):
        has_rows = name == "read_plain_commit"
        for version in versions:
            frame = frame_of(request, version)
            assert Read(form, name, frame, rows=has_rows).result > 0
            for size in range(len(frame)):
                assert Read(form, name, frame[:size], rows=has_rows).result in (False, form.NOT_PLAIN)
            assert Read(form, name, frame + b"\0", rows=has_rows).result in (False, form.NOT_PLAIN)


@given(st.sampled_from(["read_plain_heartbeat", "read_plain_consumer_heartbeat", "read_plain_commit"]), st.data())
def test_both_forms_read_a_damaged_request_alike(name: str, data: st.DataObject) -> None:
    kinds = {"read_plain_heartbeat": heartbeats, "read_plain_commit": commits}
    request: Any = data.draw(kinds.get(name, consumer_heartbeats))
    version = data.draw(st.integers(*{"read_plain_heartbeat": (3, 4), "read_plain_commit": (7, 10)}.get(name, (0, 1))))
    frame = bytearray(frame_of(request, version))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    one, other = (Read(form, name, bytes(frame), rows=name == "read_plain_commit") for form in (compiled, PLAIN))
    assert one.result == other.result
    if one.result > 0:
        assert (one.fields, one.rows) == (other.fields, other.rows)


PLAIN = uncompiled(compiled)
