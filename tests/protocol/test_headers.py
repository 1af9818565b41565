"""Request and response headers of every API."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest
from headrace.protocol import headers
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec import schema
from headrace.protocol.headers import RequestHeader
from tests.protocol.random_messages import SCHEMAS

APIS = st.sampled_from(list(ApiKey))


@given(APIS, st.integers(0, 20), st.integers(-(1 << 31), (1 << 31) - 1), st.none() | st.text(max_size=50))
def test_a_request_header_reads_as_written(
    key: ApiKey, version: int, correlation_id: int, client_id: str | None
) -> None:
    if (key, version) == (ApiKey.CONTROLLED_SHUTDOWN, 0):
        client_id = None  # that one header has no client id
    data = headers.write_request_header(key, version, correlation_id, client_id)
    expected = RequestHeader(key, version, correlation_id, client_id)
    assert headers.read_request_header(b"xx" + data + b"body", 2) == (expected, 2 + len(data))


@given(APIS, st.integers(0, 20), st.integers(-(1 << 31), (1 << 31) - 1))
def test_a_response_header_reads_as_written(key: ApiKey, version: int, correlation_id: int) -> None:
    data = headers.response_header(key, version, correlation_id)
    assert headers.read_response_header(data + b"body", key, version) == (correlation_id, len(data))


def test_the_client_id_is_never_compact() -> None:
    assert (
        headers.write_request_header(ApiKey.PRODUCE, 9, 7, "me") == bytes.fromhex("0000 0009 00000007 0002") + b"me\0"
    )
    assert headers.write_request_header(ApiKey.PRODUCE, 8, 7, None) == bytes.fromhex("0000 0008 00000007 ffff")


@pytest.mark.parametrize("version", [0, 3, 4, 99])
def test_an_api_versions_answer_has_no_tagged_fields_in_its_header(version: int) -> None:
    assert headers.response_header(ApiKey.API_VERSIONS, version, 5) == b"\0\0\0\5"
    assert headers.response_header(ApiKey.METADATA, 9, 5) == b"\0\0\0\5\0"
    assert headers.response_header(ApiKey.METADATA, 8, 5) == b"\0\0\0\5"


def test_the_header_of_an_unknown_api_versions_version_is_readable() -> None:
    data = struct.pack(">hhih", 18, 77, 1234, 2) + b"me" + b"\0" + b"a body that nobody knows"
    header, _ = headers.read_request_header(data)
    assert header == RequestHeader(18, 77, 1234, "me")


def test_the_header_of_an_unknown_key_is_readable() -> None:
    header, _ = headers.read_request_header(struct.pack(">hhih", 999, 3, 1, -1))
    assert header == RequestHeader(999, 3, 1, None)


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    data = struct.pack(">hhih", 3, 9, 1, -1) + b"\x01\x05\x03abc"
    assert headers.read_request_header(data + b"body")[1] == len(data)
    assert headers.read_response_header(b"\0\0\0\1" + b"\x01\x05\x03abc", 3, 9) == (1, 10)


def test_more_tagged_fields_in_a_header_than_any_structure_has_are_refused() -> None:
    data = struct.pack(">hhih", 3, 9, 1, -1)
    with pytest.raises(InvalidRequest):
        headers.read_request_header(data + b"\x80" + bytes(1_000))


def test_a_torn_or_lying_header_is_a_typed_error() -> None:
    whole = headers.write_request_header(ApiKey.METADATA, 9, 1, "client")
    for end in range(len(whole)):
        with pytest.raises(InvalidRequest):
            headers.read_request_header(whole[:end])
    for length in (-2, 9999):
        with pytest.raises(InvalidRequest):
            headers.read_request_header(struct.pack(">hhih", 3, 1, 1, length) + b"abc")
    with pytest.raises(InvalidRequest):
        headers.read_request_header(struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe")
    for end in range(5):
        with pytest.raises(InvalidRequest):
            headers.read_response_header(b"\0\0\0\1\0"[:end], ApiKey.METADATA, 9)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_header_or_a_typed_error(data: bytes) -> None:
    try:
        headers.read_request_header(data)
    except InvalidRequest:
        pass


def test_every_api_has_its_key() -> None:
    described = {found.api_key: found.name for name, found in SCHEMAS.items() if name.endswith("Request")}
    assert {int(key): f"{key.title}Request" for key in ApiKey} == described
    assert headers.flexible_from(ApiKey.PRODUCE) == schema.load("ProduceRequest").flexible_from
