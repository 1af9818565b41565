"""The short reading of a plain Produce agrees with the general decoder, and its answer with the general encoder."""

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.protocol import messages as m
from headrace.protocol import plain_produce as compiled
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import read_request_header, response_header, write_request_header
from tests.uncompiled import uncompiled

FORMS = [compiled, uncompiled(compiled)]
VERSIONS = st.integers(3, 13)
names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=200)
parts = st.lists(st.tuples(st.integers(0, (1 << 31) - 1), st.binary(min_size=1, max_size=300)), min_size=1, max_size=4)
topics = st.lists(st.tuples(names, st.binary(min_size=16, max_size=16), parts), min_size=1, max_size=4)
Topics = list[tuple[str, bytes, list[tuple[int, bytes]]]]


def request_of(topics: Topics, acks: int = 1, transactional_id: str | None = None) -> m.ProduceRequest:
    return m.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            m.ProduceRequest.TopicProduceData(
                name=name,
                topic_id=topic_id,
                partition_data=[m.ProduceRequest.PartitionProduceData(index=i, records=r) for i, r in partitions],
            )
            for name, topic_id, partitions in topics
        ],
    )


def frame_of(version: int, request: m.ProduceRequest, correlation_id: int = 7, client: str | None = "me") -> memoryview:
    head = write_request_header(ApiKey.PRODUCE, version, correlation_id, client)
    return memoryview(bytearray(head + request.encode(version)))


@pytest.mark.parametrize("form", FORMS, ids=["compiled", "uncompiled"])
@given(version=VERSIONS, topics=topics, acks=st.sampled_from([1, -1]), client=st.none() | names | st.just(""))
def test_a_plain_request_is_read_as_the_general_decoder_reads_it(
    form: ModuleType, version: int, topics: Topics, acks: int, client: str | None
) -> None:
    frame = frame_of(version, request_of(topics, acks), 1 << 30, client)
    plain = form.read_plain_produce(frame)
    assert (plain.api_version, plain.correlation_id, plain.acks) == (version, 1 << 30, acks)
    expected = [(i if version >= 13 else name, n, r) for name, i, partitions in topics for n, r in partitions]
    assert [(each.topic, each.index, bytes(each.records)) for each in plain.batches] == expected
    assert plain.counts == [len(partitions) for _, _, partitions in topics]
    assert all(each.records.obj is frame.obj for each in plain.batches)


@pytest.mark.parametrize("form", FORMS, ids=["compiled", "uncompiled"])
@given(version=VERSIONS, topics=topics, data=st.data())
def test_the_answer_is_byte_for_byte_that_of_the_general_encoder(
    form: ModuleType, version: int, topics: Topics, data: st.DataObject
) -> None:
    plain = form.read_plain_produce(frame_of(version, request_of(topics)))
    offsets = st.integers(-1, (1 << 63) - 1)
    placed = [data.draw(st.tuples(offsets, offsets, offsets)) for _ in plain.batches]
    left = iter(placed)
    response = m.ProduceResponse(
        responses=[
            m.ProduceResponse.TopicProduceResponse(
                name=name,
                topic_id=topic_id,
                partition_responses=[
                    m.ProduceResponse.PartitionProduceResponse(
                        index=index, base_offset=base, log_append_time_ms=time, log_start_offset=start
                    )
                    for (index, _), (base, time, start) in zip(partitions, left, strict=False)
                ],
            )
            for name, topic_id, partitions in topics
        ]
    )
    expected = response_header(ApiKey.PRODUCE, version, 7) + response.encode(version)
    assert form.write_plain_answer(plain, placed) == len(expected).to_bytes(4, "big") + expected


@pytest.mark.parametrize("form", FORMS, ids=["compiled", "uncompiled"])
@pytest.mark.parametrize("version", range(3, 14))
def test_what_is_not_plain_is_left_to_the_general_decoder(form: ModuleType, version: int) -> None:
    part: Topics = [("t", bytes(16), [(0, b"records")])]
    nothing: list[tuple[int, bytes]] = []
    for request in (
        request_of(part, acks=0),
        request_of(part, acks=2),
        request_of(part, transactional_id="t"),
        request_of(part, transactional_id=""),
        request_of([]),
        request_of([("t", bytes(16), nothing)]),
        request_of([("t", bytes(16), [(0, b"")])]),
    ):
        assert form.read_plain_produce(frame_of(version, request)) is None
    good = frame_of(version, request_of(part))
    assert form.read_plain_produce(good) is not None
    assert form.read_plain_produce(memoryview(bytes(good) + b"\0")) is None
    if version < 13:
        assert form.read_plain_produce(frame_of(version, request_of([("tö", bytes(16), part[0][2])]))) is None
    assert form.read_plain_produce(frame_of(version, request_of(part), client="ö")) is None


@pytest.mark.parametrize("form", FORMS, ids=["compiled", "uncompiled"])
@given(version=VERSIONS, topics=topics, data=st.data())
def test_damaged_requests_are_read_as_the_general_decoder_reads_them_or_not_at_all(
    form: ModuleType, version: int, topics: Topics, data: st.DataObject
) -> None:
    frame = bytearray(frame_of(version, request_of(topics)))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(0, len(frame)))] if data.draw(st.booleans()) else frame
    plain = form.read_plain_produce(memoryview(frame))
    if plain is None:
        return
    try:
        header, at = read_request_header(memoryview(frame))
        request, end = m.ProduceRequest.decode(header.api_version, memoryview(frame), at)
    except InvalidRequest:
        pytest.fail("what the general decoder refuses was read")
    assert (header.api_key, header.correlation_id, header.api_version, end, request.acks) == (
        ApiKey.PRODUCE, plain.correlation_id, plain.api_version, len(frame), plain.acks,
    )  # fmt: skip
    by_id = header.api_version >= 13
    assert [
        (topic.topic_id if by_id else topic.name, each.index, bytes(each.records or b""))
        for topic in request.topic_data
        for each in topic.partition_data
    ] == [(each.topic, each.index, bytes(each.records)) for each in plain.batches]
