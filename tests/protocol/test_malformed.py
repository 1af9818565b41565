"""Bytes that are no message: a typed error or another valid value, never a hang, another exception or much memory."""

import random
import struct
import tracemalloc

import pytest

from headrace.errors import InvalidRequest
from headrace.limits import ELEMENTS_PER_ADMIN_REQUEST_MAX, TAGGED_FIELDS_MAX
from headrace.protocol import messages as m
from headrace.protocol.codec.wire import write_uvarint
from tests.protocol.random_messages import INITIALS, SCHEMAS, message_class, named, random_message, seeds

EMPTY_FIELD = b"\x63\0"
"""An unknown tagged field, number 99."""


def _decode(name: str, version: int, data: bytes) -> None:
    try:
        _, end = message_class(name).decode(version, data)
    except InvalidRequest:
        return
    assert 0 <= end <= len(data)


@pytest.mark.parametrize("initial", INITIALS)
def test_any_prefix_or_flipped_bit_is_a_typed_error_or_a_value(initial: str) -> None:
    for name, seed in seeds("damage", 1, SCHEMAS, initial):
        chance = random.Random(seed)
        for version in SCHEMAS[name].versions:
            with named(name, version, seed):
                _decode_damaged(name, version, random_message(name, version, seed).encode(version), chance)


def _decode_damaged(name: str, version: int, data: bytes, chance: random.Random) -> None:
    for _ in range(6):
        _decode(name, version, data[: chance.randrange(len(data) + 1)])
        damaged = bytearray(data)
        for _ in range(chance.randrange(1, 4) if data else 0):
            damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        _decode(name, version, bytes(damaged))
    _decode(name, version, chance.randbytes(chance.randrange(200)))


@pytest.mark.parametrize("version", [1, 9])
def test_every_proper_prefix_is_refused(version: int) -> None:
    data = random_message("MetadataResponse", version, 3).encode(version)
    for end in range(len(data)):
        with pytest.raises(InvalidRequest):
            m.MetadataResponse.decode(version, data[:end])


@pytest.mark.parametrize("count", [2, 1 << 20, (1 << 31) - 1, -2, -(1 << 31)])
def test_a_count_that_the_frame_cannot_hold_is_refused(count: int) -> None:
    with pytest.raises(InvalidRequest):
        m.MetadataRequest.decode(1, struct.pack(">i", count) + b"\0")


@pytest.mark.parametrize("length", [-2, -32768, 2, 32767])
def test_a_length_that_is_negative_or_past_the_end_is_refused(length: int) -> None:
    with pytest.raises(InvalidRequest):
        m.FindCoordinatorRequest.decode(0, struct.pack(">h", length) + b"x")


def test_null_where_the_schema_has_none_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="null"):
        m.FindCoordinatorRequest.decode(0, struct.pack(">h", -1))
    with pytest.raises(InvalidRequest, match="null"):
        m.MetadataRequest.decode(0, struct.pack(">i", -1))
    assert m.MetadataRequest.decode(1, struct.pack(">i", -1))[0].topics is None


@pytest.mark.parametrize("varint", [b"\xff" * 4 + b"\x7f", b"\xff" * 5 + b"\x01", b"\xff" * 200, b"\x80" * 5 + b"\0"])
def test_a_huge_or_endless_varint_is_refused(varint: bytes) -> None:
    with pytest.raises(InvalidRequest):
        m.ProduceRequest.decode(9, varint + bytes(20))
    with pytest.raises(InvalidRequest):
        m.ListGroupsRequest.decode(3, varint + bytes(20))  # a count of tagged fields


def test_a_string_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        m.FindCoordinatorRequest.decode(0, struct.pack(">h", 2) + b"\xff\xfe")


def test_a_tagged_field_must_fill_its_size() -> None:
    message = m.FetchRequest(cluster_id="c")
    data = message.encode(12)
    assert data.endswith(b"\x01\x00\x02\x02c")  # one field, tag 0, two bytes: compact string of one
    for lie in (b"\x01\x00\x03\x02cX", b"\x01\x00\x01\x02c", b"\x01\x00\x7f\x02c"):
        with pytest.raises(InvalidRequest):
            m.FetchRequest.decode(12, data[:-5] + lie)


def test_more_tagged_fields_than_any_structure_has_are_refused() -> None:
    """Each is a step of the event loop, though it is skipped."""
    known = m.FetchRequest().encode(12)[:-1]  # a structure that has tagged fields; the others skip them all
    for decode, before in ((m.ListGroupsRequest.decode, b""), (m.FetchRequest.decode, known)):
        version = 12 if before else 3
        decode(version, before + bytes([TAGGED_FIELDS_MAX]) + EMPTY_FIELD * TAGGED_FIELDS_MAX)
        with pytest.raises(InvalidRequest, match="tagged fields"):
            decode(version, before + b"\x80\x01" + EMPTY_FIELD * 0x80)


def test_tagged_fields_count_towards_the_elements_of_a_message() -> None:
    topic = b"\x02t" + bytes(16) + bytes([TAGGED_FIELDS_MAX]) + EMPTY_FIELD * TAGGED_FIELDS_MAX

    def deleting(count: int) -> bytes:
        return write_uvarint(count + 1) + topic * count + bytes(4) + b"\0"

    allowed = ELEMENTS_PER_ADMIN_REQUEST_MAX // (1 + TAGGED_FIELDS_MAX)
    assert len(m.DeleteTopicsRequest.decode(6, deleting(allowed))[0].topics) == allowed
    with pytest.raises(InvalidRequest, match="more elements and tagged fields"):
        m.DeleteTopicsRequest.decode(6, deleting(allowed + 1))


def test_a_frame_of_lies_costs_no_more_memory_than_a_true_one() -> None:
    lies = [(1, struct.pack(">i", (1 << 31) - 1) + bytes(64)), (9, b"\xff\xff\xff\xff\x07" + bytes(64))]
    tracemalloc.start()
    for version, lie in lies:
        with pytest.raises(InvalidRequest):
            m.MetadataRequest.decode(version, lie)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000
