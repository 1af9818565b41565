"""The short writing of a follower's Fetch agrees with the general encoder, and the short reading of an answer with the
general decoder."""

from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.protocol import follower_fetch as compiled
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import read_response_header, response_header, write_request_header
from tests.uncompiled import uncompiled

FORMS = pytest.mark.parametrize("form", [compiled, uncompiled(compiled)], ids=["compiled", "uncompiled"])
VERSIONS = st.integers(compiled.VERSION_MIN, compiled.VERSION_MAX)
SESSION_ID = 4711
int16 = st.integers(-(1 << 15), (1 << 15) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
ids = st.binary(min_size=16, max_size=16)
asked = st.builds(
    m.FetchRequest.FetchPartition,
    partition=int32,
    current_leader_epoch=int32,
    fetch_offset=int64,
    last_fetched_epoch=int32,
    log_start_offset=int64,
    partition_max_bytes=int32,
)
requests = st.builds(
    m.FetchRequest,
    max_wait_ms=int32,
    min_bytes=int32,
    max_bytes=int32,
    session_id=int32,
    session_epoch=int32,
    replica_state=st.builds(m.FetchRequest.ReplicaState, replica_id=st.integers(0, (1 << 31) - 1), replica_epoch=int64),
    topics=st.lists(
        st.builds(m.FetchRequest.FetchTopic, topic_id=ids, partitions=st.lists(asked, min_size=1, max_size=4)),
        max_size=4,
    ),
)
Answered = m.FetchResponse.PartitionData
plain_partitions = st.builds(
    Answered,
    partition_index=int32,
    high_watermark=int64,
    last_stable_offset=int64,
    log_start_offset=int64,
    aborted_transactions=st.sampled_from([None, []]),
    preferred_read_replica=int32,
    records=st.one_of(st.none(), st.binary(max_size=300)),
)
partitions = st.one_of(
    plain_partitions,
    plain_partitions,
    st.builds(
        Answered,
        partition_index=int32,
        error_code=int16,
        diverging_epoch=st.builds(m.FetchResponse.EpochEndOffset, epoch=int32, end_offset=int64),
        current_leader=st.builds(m.FetchResponse.LeaderIdAndEpoch, leader_id=int32, leader_epoch=int32),
        aborted_transactions=st.lists(
            st.builds(m.FetchResponse.AbortedTransaction, producer_id=int64, first_offset=int64), max_size=2
        ),
        records=st.binary(max_size=20),
    ),
)


def answers(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        m.FetchResponse,
        throttle_time_ms=int32,
        error_code=st.sampled_from([0] * 9 + [71]),
        session_id=st.sampled_from([SESSION_ID] * 9 + [5]),
        responses=st.lists(
            st.builds(
                m.FetchResponse.FetchableTopicResponse, topic_id=ids, partitions=st.lists(of, min_size=1, max_size=3)
            ),
            max_size=4,
        ),
    )


def written(form: ModuleType, version: int, request: m.FetchRequest, client: str) -> bytes:
    out = memoryview(bytearray(2000))
    pos = form.begin_request(
        version,
        7,
        client.encode(),
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.session_id,
        request.session_epoch,
        len(request.topics),
        out,
    )
    for topic in request.topics:
        pos = form.put_topic(topic.topic_id, len(topic.partitions), out, pos)
        for each in topic.partitions:
            before = pos
            pos = form.put_partition(
                each.partition,
                each.current_leader_epoch,
                each.fetch_offset,
                each.last_fetched_epoch,
                each.log_start_offset,
                each.partition_max_bytes,
                out,
                pos,
            )
            assert pos - before <= form.PARTITION_BYTES
        pos = form.end_topic(out, pos)
    end = form.end_request(request.replica_state.replica_id, request.replica_state.replica_epoch, out, pos)
    assert end - pos <= form.END_BYTES
    return bytes(out[:end])


@FORMS
@settings(deadline=None)
@given(version=VERSIONS, request=requests, client=st.text(max_size=30))
def test_a_request_has_the_bytes_of_the_general_encoder(
    form: ModuleType, version: int, request: m.FetchRequest, client: str
) -> None:
    expected = write_request_header(ApiKey.FETCH, version, 7, client) + request.encode(version)
    assert written(form, version, request, client) == len(expected).to_bytes(4, "big") + expected


def frame_of(version: int, answer: m.FetchResponse) -> bytes:
    return response_header(ApiKey.FETCH, version, 9) + answer.encode(version)


def read(form: ModuleType, frame: bytes) -> list[tuple[Any, ...]] | None:
    """What was read; None if it was not."""
    rows = memoryview(array("q", bytes(8 * form.ROW_FIELDS * form.PARTITIONS_MAX)))
    padded = memoryview(bytes(frame) + b"\0\1" * 50)  # as in a buffer where other bytes are left
    count = form.read_answer(padded, 0, len(frame), SESSION_ID, rows)
    if count < 0:
        return None
    found = []
    for row in range(0, count * form.ROW_FIELDS, form.ROW_FIELDS):
        topic_at, index, high_watermark, log_start, at, end = rows[row : row + form.ROW_FIELDS]
        found.append((frame[topic_at : topic_at + 16], index, high_watermark, log_start, frame[at:end]))
    return found


def plain_content(version: int, frame: bytes) -> list[tuple[Any, ...]] | None:
    """The same by the general decoder; None for an answer that is not plain."""
    _, pos = read_response_header(frame, ApiKey.FETCH, version)
    answer, end = m.FetchResponse.decode(version, frame, pos)
    if end != len(frame) or answer.error_code or answer.session_id != SESSION_ID:
        return None
    found = []
    for topic in answer.responses:
        for each in topic.partitions:
            if each.error_code or each.aborted_transactions:
                return None
            if each.diverging_epoch != m.FetchResponse.EpochEndOffset():
                return None
            found.append(
                (
                    topic.topic_id,
                    each.partition_index,
                    each.high_watermark,
                    each.log_start_offset,
                    bytes(each.records or b""),
                )
            )
    return found


@FORMS
@settings(deadline=None)
@given(version=VERSIONS, answer=answers(plain_partitions))
def test_a_plain_answer_is_read_as_the_general_decoder_reads_it(
    form: ModuleType, version: int, answer: m.FetchResponse
) -> None:
    frame = frame_of(version, answer)
    assert read(form, frame) == plain_content(version, frame)
    if not answer.error_code and answer.session_id == SESSION_ID:
        assert read(form, frame) is not None


@FORMS
@settings(deadline=None)
@given(version=VERSIONS, answer=answers(partitions), data=st.data())
def test_another_answer_and_a_damaged_one_are_left_or_read_alike(
    form: ModuleType, version: int, answer: m.FetchResponse, data: st.DataObject
) -> None:
    frame = frame_of(version, answer)
    found = read(form, frame)
    assert found is None or found == plain_content(version, frame)
    for end in range(len(frame)):
        assert read(form, frame[:end]) is None
    bit = data.draw(st.integers(40, 8 * len(frame) - 1))  # behind the correlation id and the header's tags
    damaged = bytearray(frame)
    damaged[bit // 8] ^= 1 << bit % 8
    found = read(form, bytes(damaged))
    if found is not None:
        try:
            assert found == plain_content(version, bytes(damaged))
        except InvalidRequest:
            pytest.fail("an answer was read that the general decoder refuses")


@FORMS
def test_an_answer_with_more_partitions_than_there_are_rows_is_not_plain(form: ModuleType) -> None:
    def answer(count: int) -> bytes:
        parts = [Answered(partition_index=each, records=b"") for each in range(count)]
        topics = [
            m.FetchResponse.FetchableTopicResponse(topic_id=bytes([each]) * 16, partitions=parts[each::2])
            for each in range(2)
        ]
        return frame_of(18, m.FetchResponse(session_id=SESSION_ID, responses=topics))

    assert len(read(form, answer(form.PARTITIONS_MAX)) or []) == form.PARTITIONS_MAX
    assert read(form, answer(form.PARTITIONS_MAX + 1)) is None
