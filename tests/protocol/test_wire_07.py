"""Requests and responses of Kafka 0.7: bytes written out by hand, round trips, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ErrorCode, InvalidRequest
from headrace.limits import REQUEST_PARTS_07_MAX
from headrace.protocol.wire_07 import (
    ErrorCode07,
    FetchedPart07,
    FetchPart,
    FetchRequest07,
    OffsetsPart,
    OffsetsRequest07,
    ProducePart,
    ProduceRequest07,
    Request,
    code_07,
    encode_fetched,
    encode_offsets,
    encode_request,
    read_fetched,
    read_offsets,
    read_request,
)
from headrace.records.legacy.format_07 import encode_set

TOPICS = st.text(max_size=12)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
PRODUCED = st.builds(ProducePart, TOPICS, INT32, st.binary(max_size=40))
FETCHED = st.builds(FetchPart, TOPICS, INT32, INT64, INT32)
REQUESTS: st.SearchStrategy[Request] = st.one_of(
    st.lists(PRODUCED, max_size=4).map(ProduceRequest07),
    st.builds(lambda part: FetchRequest07([part], False), FETCHED),
    st.lists(FETCHED, max_size=4).map(lambda parts: FetchRequest07(parts, True)),
    st.builds(OffsetsPart, TOPICS, INT32, INT64, INT32).map(OffsetsRequest07),
)


def read(data: bytes) -> Request:
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return read_request(memoryview(data)[4:])


def as_bytes(request: Request) -> Request:
    """With the messages of a produce as bytes."""
    if isinstance(request, ProduceRequest07):
        return ProduceRequest07([part._replace(messages=bytes(part.messages)) for part in request.parts])
    return request


MESSAGES = encode_set([b"value"], magic=0)
"""The seed's on-disk format of a message: length (1 + 4 + n), magic, CRC-32, payload."""


@pytest.mark.parametrize(
    ("request_", "bytes_"),
    [
        (
            ProduceRequest07([ProducePart("test", 1, MESSAGES)]),
            "0000001e 0000 0004 74657374 00000001 0000000e 0000000a 00 1d775834 76616c7565",
        ),
        (
            FetchRequest07([FetchPart("test", 0, 4711, 1 << 20)], False),
            "00000018 0001 0004 74657374 00000000 0000000000001267 00100000",
        ),
        (
            FetchRequest07([FetchPart("a", 0, 0, 9), FetchPart("b", 2, 1, 8)], True),
            "0000002a 0002 0002 0001 61 00000000 0000000000000000 00000009 0001 62 00000002 0000000000000001 00000008",
        ),
        (
            ProduceRequest07([ProducePart("a", -1, MESSAGES), ProducePart("b", 0, b"")]),
            "00000028 0003 0002 0001 61 ffffffff 0000000e 0000000a 00 1d775834 76616c7565 0001 62 00000000 00000000",
        ),
        (
            OffsetsRequest07(OffsetsPart("test", 0, -2, 10)),
            "00000018 0004 0004 74657374 00000000 fffffffffffffffe 0000000a",
        ),
    ],
    ids=["produce", "fetch", "multifetch", "multiproduce", "offsets"],
)
def test_a_request_has_the_bytes_of_kafka_0_7(request_: Request, bytes_: str) -> None:
    data = bytes.fromhex(bytes_)
    assert encode_request(request_) == data
    assert as_bytes(read(data)) == request_


def test_a_response_has_the_bytes_of_the_seed() -> None:
    assert encode_fetched([FetchedPart07(ErrorCode07.NO_ERROR, MESSAGES)], is_multi=False) == bytes.fromhex(
        "00000010 0000 0000000a 00 1d775834 76616c7565"
    )
    parts = [FetchedPart07(ErrorCode07.NO_ERROR, MESSAGES), FetchedPart07(ErrorCode07.OFFSET_OUT_OF_RANGE)]
    assert encode_fetched(parts, is_multi=True) == bytes.fromhex(
        "0000001c 0000  00000010 0000 0000000a 00 1d775834 76616c7565  00000002 0001"
    )
    assert encode_offsets(ErrorCode07.NO_ERROR, [99, 0]) == bytes.fromhex(
        "00000016 0000 00000002 0000000000000063 0000000000000000"
    )


@given(REQUESTS)
def test_a_request_is_read_as_it_was_written(request: Request) -> None:
    assert as_bytes(read(encode_request(request))) == request


@given(st.lists(st.builds(FetchedPart07, st.sampled_from(ErrorCode07), st.binary(max_size=30)), min_size=1, max_size=5))
def test_fetched_parts_are_read_as_they_were_written(parts: list[FetchedPart07]) -> None:
    found = read_fetched(encode_fetched(parts, is_multi=True)[4:], is_multi=True)
    assert [(each.error, bytes(each.messages)) for each in found] == parts
    (one,) = read_fetched(encode_fetched(parts[:1], is_multi=False)[4:], is_multi=False)
    assert (one.error, bytes(one.messages)) == parts[0]


@given(st.lists(INT64, max_size=20))
def test_offsets_are_read_as_they_were_written(offsets: list[int]) -> None:
    assert read_offsets(encode_offsets(ErrorCode07.NO_ERROR, offsets)[4:]) == (ErrorCode07.NO_ERROR, offsets)


@given(REQUESTS, st.data())
def test_a_prefix_or_a_flipped_bit_is_another_request_or_refused(request: Request, data: st.DataObject) -> None:
    frame = bytearray(encode_request(request)[4:])
    cut = data.draw(st.integers(0, len(frame)))
    bit = data.draw(st.integers(0, 8 * len(frame) - 1))
    flipped = bytearray(frame)
    flipped[bit >> 3] ^= 1 << (bit & 7)
    for bad in (frame[:cut], flipped):
        try:
            read_request(memoryview(bad))
        except InvalidRequest as error:
            assert error.message
        else:
            assert bad is flipped or cut == len(frame)


def test_requests_of_today_and_too_many_parts_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="request type 18 is not one of Kafka 0.7"):
        read_request(memoryview(bytes.fromhex("0012 0000 00000001 ffff")))
    many = encode_request(FetchRequest07([FetchPart("t", 0, 0, 1)] * (REQUEST_PARTS_07_MAX + 1), True))
    with pytest.raises(InvalidRequest, match="1001 parts; the limit is 1000"):
        read(many)
    with pytest.raises(InvalidRequest, match="1 bytes too many"):
        read_request(memoryview(encode_request(OffsetsRequest07(OffsetsPart("t", 0, -1, 1)))[4:] + b"x"))


def test_errors_that_kafka_0_7_did_not_have_are_unknown() -> None:
    assert code_07(ErrorCode.TOPIC_AUTHORIZATION_FAILED) is ErrorCode07.UNKNOWN
    assert code_07(ErrorCode.NOT_LEADER_OR_FOLLOWER) is ErrorCode07.WRONG_PARTITION
    assert {code_07(code) for code in ErrorCode} == set(ErrorCode07)
