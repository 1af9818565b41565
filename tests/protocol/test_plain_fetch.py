"""The short reading of a plain Fetch agrees with the general decoder, and its answer with the general encoder."""

from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.protocol import messages as m
from headrace.protocol import plain_fetch as compiled
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import read_request_header, response_header, write_request_header
from tests.examples import examples
from tests.uncompiled import uncompiled

FORMS = pytest.mark.parametrize("form", [compiled, uncompiled(compiled)], ids=["compiled", "uncompiled"])
VERSIONS = st.integers(4, 18)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=20)
partitions = st.builds(
    m.FetchRequest.FetchPartition,
    partition=int32,
    current_leader_epoch=int32,
    fetch_offset=int64,
    last_fetched_epoch=int32,
    log_start_offset=int64,
    partition_max_bytes=int32,
)
topics = st.builds(
    m.FetchRequest.FetchTopic,
    topic=names,
    topic_id=st.binary(min_size=16, max_size=16),
    partitions=st.lists(partitions, min_size=1, max_size=4),
)
requests = st.builds(
    m.FetchRequest,
    max_wait_ms=int32,
    min_bytes=int32,
    max_bytes=int32,
    isolation_level=st.integers(0, 1),
    session_id=int32,
    session_epoch=int32,
    topics=st.lists(topics, max_size=4),
)
Request = m.FetchRequest


def frame_of(version: int, request: Request, client: str | None = "me") -> bytearray:
    if version < 12:  # older versions cannot carry it
        for topic in request.topics:
            for each in topic.partitions:
                each.last_fetched_epoch = -1
    return bytearray(write_request_header(ApiKey.FETCH, version, 7, client) + request.encode(version))


def read(form: ModuleType, frame: bytes | bytearray | memoryview) -> tuple[int, memoryview, memoryview]:
    fields = memoryview(array("q", bytes(8 * form.REQUEST_FIELDS)))
    rows = memoryview(array("q", bytes(8 * form.ROW_FIELDS * form.PARTITIONS_MAX)))
    padded = memoryview(bytes(frame) + b"\0\1" * 50)  # as in a buffer where other frames follow
    return form.read_plain_fetch(padded, 0, len(frame), fields, rows), fields, rows


def content(form: ModuleType, frame: bytes | bytearray) -> dict[str, Any] | None:
    """What was read, in the terms of the message; None if it was not."""
    count, fields, rows = read(form, frame)
    if count < 0:
        return None
    version = fields[form.API_VERSION]
    found = []
    for row in range(0, count * form.ROW_FIELDS, form.ROW_FIELDS):
        name = bytes(frame[rows[row + form.TOPIC_AT] : rows[row + form.TOPIC_END]])
        at = (form.INDEX, form.LEADER_EPOCH, form.OFFSET, form.LAST_EPOCH, form.LOG_START, form.PARTITION_MAX_BYTES)
        found.append((name if version >= 13 else name.decode(), *(rows[row + each] for each in at)))
    return {
        "header": (version, fields[form.CORRELATION_ID]),
        "limits": (fields[form.MAX_WAIT_MS], fields[form.MIN_BYTES], fields[form.MAX_BYTES]),
        "committed": fields[form.IS_COMMITTED_ONLY],
        "session": (fields[form.SESSION_ID], fields[form.SESSION_EPOCH]),
        "partitions": found,
    }


def expected(frame: bytes | bytearray) -> dict[str, Any]:
    """The same by the general decoder."""
    header, at = read_request_header(memoryview(frame))
    request, end = Request.decode(header.api_version, memoryview(frame), at)
    assert end == len(frame)
    assert request.replica_id == -1 and not request.rack_id and not request.forgotten_topics_data
    return {
        "header": (header.api_version, header.correlation_id),
        "limits": (request.max_wait_ms, request.min_bytes, request.max_bytes),
        "committed": request.isolation_level,
        "session": (request.session_id, request.session_epoch),
        "partitions": [
            (
                topic.topic_id if header.api_version >= 13 else topic.topic,
                each.partition,
                each.current_leader_epoch,
                each.fetch_offset,
                each.last_fetched_epoch,
                each.log_start_offset,
                each.partition_max_bytes,
            )
            for topic in request.topics
            for each in topic.partitions
        ],
    }


@FORMS
@settings(max_examples=examples(40))
@given(version=VERSIONS, request=requests, client=st.none() | names | st.just(""))
def test_a_plain_request_is_read_as_the_general_decoder_reads_it(
    form: ModuleType, version: int, request: Request, client: str | None
) -> None:
    frame = frame_of(version, request, client)
    assert content(form, frame) == expected(frame)


@FORMS
@settings(max_examples=examples(40))
@given(version=VERSIONS, request=requests, data=st.data())
def test_the_answer_is_byte_for_byte_that_of_the_general_encoder(
    form: ModuleType, version: int, request: Request, data: st.DataObject
) -> None:
    count, fields, rows = read(form, frame_of(version, request))
    frame = frame_of(version, request)
    out, pos = memoryview(bytearray(1 << 16)), 0
    session_id = data.draw(int32) if version >= 7 else 0
    response = m.FetchResponse(session_id=session_id)
    pos = form.begin_fetch_answer(fields, session_id, len(request.topics), out, 5)
    row = 0
    for topic in request.topics:
        at, end = rows[row + form.TOPIC_AT], rows[row + form.TOPIC_END]
        start, pos = pos, form.put_topic(fields, frame, at, end, len(topic.partitions), out, pos)
        again = memoryview(bytearray(pos - start))
        assert form.put_known_topic(fields, bytes(frame[at:end]), len(topic.partitions), again, 0) == pos - start
        assert again == out[start:pos]
        answers = []
        for each in topic.partitions:
            high, stable, start = data.draw(int64), data.draw(int64), data.draw(int64)
            records = bytes(data.draw(st.sampled_from([0, 1, 126, 127, 128, 5000])))
            pos = form.put_partition(fields, each.partition, high, stable, start, len(records), out, pos)
            out[pos : pos + len(records)] = records
            pos = form.end_topic(fields, out, pos + len(records))
            answers.append(
                m.FetchResponse.PartitionData(
                    partition_index=each.partition,
                    high_watermark=high,
                    last_stable_offset=stable,
                    log_start_offset=start if version >= 5 else -1,
                    aborted_transactions=[] if request.isolation_level else None,
                    records=records,
                )
            )
            row += form.ROW_FIELDS
        pos = form.end_topic(fields, out, pos)
        response.responses.append(
            m.FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=answers)
        )
    pos = form.end_topic(fields, out, pos)
    form.end_fetch_answer(pos - 9, out, 5)
    body = response_header(ApiKey.FETCH, version, 7) + response.encode(version)
    assert bytes(out[5:pos]) == len(body).to_bytes(4, "big") + body
    assert row == count * form.ROW_FIELDS


@FORMS
@pytest.mark.parametrize("version", range(4, 19))
def test_what_is_not_plain_is_left_to_the_general_decoder(form: ModuleType, version: int) -> None:
    def asking(**more: Any) -> Request:
        part = m.FetchRequest.FetchPartition(partition_max_bytes=1)
        topic = m.FetchRequest.FetchTopic(topic="t", topic_id=bytes(range(16)), partitions=[part])
        request = m.FetchRequest(max_bytes=1, topics=[topic])
        for name, value in more.items():
            setattr(request, name, value)
        return request

    good = frame_of(version, asking())
    assert read(form, good)[0] == 1
    assert read(form, good + b"\0")[0] == form.NOT_PLAIN
    assert all(read(form, good[:size])[0] == form.NOT_PLAIN for size in range(len(good)))
    many = [m.FetchRequest.FetchPartition(partition=n) for n in range(form.PARTITIONS_MAX + 1)]
    one = m.FetchRequest.FetchTopic(topic="t", partitions=many)
    assert read(form, frame_of(version, asking(topics=[one])))[0] == form.NOT_PLAIN
    one.partitions = many[1:]
    assert read(form, frame_of(version, asking(topics=[one])))[0] == form.PARTITIONS_MAX
    one.partitions = []
    assert read(form, frame_of(version, asking(topics=[one])))[0] == form.NOT_PLAIN
    assert read(form, frame_of(version, asking(isolation_level=2)))[0] == form.NOT_PLAIN
    assert read(form, frame_of(version, asking(), client="ö"))[0] == form.NOT_PLAIN
    if version < 15:
        assert read(form, frame_of(version, asking(replica_id=1)))[0] == form.NOT_PLAIN
    else:
        follower = m.FetchRequest.ReplicaState(replica_id=1, replica_epoch=1)
        assert read(form, frame_of(version, asking(replica_state=follower)))[0] == form.NOT_PLAIN
    if version < 13:
        one = m.FetchRequest.FetchTopic(topic="tö", partitions=many[:1])
        assert read(form, frame_of(version, asking(topics=[one])))[0] == form.NOT_PLAIN
    if version >= 7:
        forgotten = m.FetchRequest.ForgottenTopic(topic="t", partitions=[0])
        assert read(form, frame_of(version, asking(forgotten_topics_data=[forgotten])))[0] == form.NOT_PLAIN
    if version >= 11:
        assert read(form, frame_of(version, asking(rack_id="r")))[0] == form.NOT_PLAIN
    if version >= 12:
        assert read(form, frame_of(version, asking(cluster_id="c")))[0] == form.NOT_PLAIN
    produce = bytes(good[:1]) + b"\0" + bytes(good[2:])
    assert read(form, produce)[0] == form.NOT_PLAIN


@FORMS
@settings(max_examples=examples(40))
@given(version=VERSIONS, request=requests, data=st.data())
def test_damaged_requests_are_read_as_the_general_decoder_reads_them_or_not_at_all(
    form: ModuleType, version: int, request: Request, data: st.DataObject
) -> None:
    frame = frame_of(version, request)
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(0, len(frame)))] if data.draw(st.booleans()) else frame
    found = content(form, frame)
    if found is None:
        return
    try:
        assert found == expected(frame)
    except InvalidRequest:
        pytest.fail("what the general decoder refuses was read")


@FORMS
@settings(max_examples=examples(40))
@given(version=st.integers(15, 18), request=requests, follower=st.integers(0, 1 << 30), epoch=int64, data=st.data())
def test_a_follower_request_is_read_as_the_general_decoder_reads_it(
    form: ModuleType, version: int, request: Request, follower: int, epoch: int, data: st.DataObject
) -> None:
    plain = content(form, frame_of(version, request))
    request.replica_state = Request.ReplicaState(replica_id=follower, replica_epoch=epoch)
    frame = frame_of(version, request)
    count, fields, _ = read(form, frame)
    assert count < 0, "a consumer has no replica id"
    rows = memoryview(array("q", bytes(8 * form.ROW_FIELDS * form.PARTITIONS_MAX)))
    assert form.is_of_follower(frame, 0, len(frame))
    assert form.read_follower_fetch(frame, 0, len(frame), fields, rows) == len((plain or {})["partitions"])
    assert (fields[form.REPLICA_ID], fields[form.REPLICA_EPOCH]) == (follower, epoch)
    assert [rows[row * form.ROW_FIELDS + form.OFFSET] for row in range(len((plain or {})["partitions"]))] == [
        each.fetch_offset for topic in request.topics for each in topic.partitions
    ]
    short = frame[: data.draw(st.integers(0, len(frame) - 1))]
    assert form.read_follower_fetch(short, 0, len(short), fields, rows) < 0
    request.rack_id = "a"
    frame = frame_of(version, request)
    assert form.read_follower_fetch(frame, 0, len(frame), fields, rows) < 0
