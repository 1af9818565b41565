"""The batch of a plain commit is, byte for byte, the one that the general way appends."""

from array import array
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinators.groups import offset_batch as compiled
from headrace.coordinators.groups.offsets import CommittedOffset
from headrace.coordinators.groups.records import write_offset, write_offset_key
from headrace.protocol import messages as m
from headrace.protocol import plain_groups
from headrace.protocol.headers import write_request_header
from headrace.records.format2.batch import Record, encode_batch
from headrace.types import TopicPartition
from tests.uncompiled import uncompiled

FORMS = pytest.mark.parametrize("form", [compiled, uncompiled(compiled)], ids=["compiled", "uncompiled"])
NO_ID = bytes(16)
names = st.text(st.characters(codec="ascii"), min_size=1, max_size=10)
long_names = st.one_of(names, st.just("n" * 249))
Partition = m.OffsetCommitRequest.OffsetCommitRequestPartition
partitions = st.builds(
    Partition,
    partition_index=st.integers(0, (1 << 31) - 1),
    committed_offset=st.integers(-1, (1 << 63) - 1),
    committed_leader_epoch=st.integers(-1, (1 << 31) - 1),
    committed_metadata=st.one_of(st.none(), st.just(""), names, st.just("m" * 200)),
)
topics = st.builds(
    m.OffsetCommitRequest.OffsetCommitRequestTopic,
    name=long_names,
    topic_id=st.binary(min_size=16, max_size=16).filter(lambda each: each != NO_ID),
    partitions=st.lists(partitions, min_size=1, max_size=20, unique_by=lambda each: each.partition_index),
)


def written(form: ModuleType, request: m.OffsetCommitRequest, version: int, now_ms: int, room: int) -> bytes:
    header = write_request_header(m.OffsetCommitRequest.API_KEY, version, 7, "me")
    frame = memoryview(header + bytes(request.encode(version)))
    fields = memoryview(array("q", bytes(8 * plain_groups.REQUEST_FIELDS)))
    rows = memoryview(array("q", bytes(8 * plain_groups.ROW_FIELDS * plain_groups.PARTITIONS_MAX)))
    count = plain_groups.read_plain_commit(frame, 0, len(frame), fields, rows)
    assert count == sum(len(each.partitions) for each in request.topics)
    out = memoryview(bytearray(b"\xee" * room))
    named = [each.name.encode() for each in request.topics]
    size = form.write_offset_batch(frame, fields, rows, count, named, now_ms, out)
    assert not any(each != 0xEE for each in out[size:]) or not size
    return bytes(out[:size])


@FORMS
@given(
    st.lists(topics, min_size=1, max_size=4, unique_by=lambda each: each.name),
    long_names,
    st.integers(6, 10),
    st.integers(0, 1 << 50),
)
def test_a_plain_commit_is_the_batch_of_the_general_way(
    form: ModuleType,
    named: list[m.OffsetCommitRequest.OffsetCommitRequestTopic],
    group_id: str,
    version: int,
    now_ms: int,
) -> None:
    request = m.OffsetCommitRequest(group_id=group_id, topics=named)
    records = [
        Record(
            0,
            now_ms,
            write_offset_key(group_id, TopicPartition(topic.name, each.partition_index)),
            write_offset(
                CommittedOffset(
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.committed_metadata or "",
                    now_ms,
                    topic_id=topic.topic_id if version >= 10 else NO_ID,
                )
            ),
        )
        for topic in named
        for each in topic.partitions
    ]
    expected = bytes(encode_batch(records))
    assert written(form, request, version, now_ms, len(expected) + 5) == expected
    assert written(form, request, version, now_ms, len(expected)) == expected


@FORMS
def test_a_batch_that_does_not_fit_is_not_written(form: ModuleType) -> None:
    parts = [Partition(partition_index=number, committed_metadata="x" * 100) for number in range(3)]
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=parts)
    request = m.OffsetCommitRequest(group_id="g", topics=[topic])
    size = len(written(form, request, 8, 5, 2_000))
    assert written(form, request, 8, 5, size)
    for room in (61, 62, 200, size - 1):
        assert not written(form, request, 8, 5, room)
