"""The messages themselves: defaults, constructors, what a version carries, chunks; and every version there and back."""

import random
from typing import NamedTuple

import pytest

from headrace.errors import UnsupportedVersion
from headrace.protocol import messages as m
from tests.protocol.random_messages import INITIALS, SCHEMAS, message_class, named, random_message, seeds


class Range(NamedTuple):
    """A file range, as far as the codec looks at it."""

    size: int


def _fetched(records: object) -> m.FetchResponse:
    partition = m.FetchResponse.PartitionData(partition_index=3, high_watermark=9, records=records)  # type: ignore[arg-type]
    return m.FetchResponse(responses=[m.FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])])


@pytest.mark.slow
@pytest.mark.parametrize("initial", INITIALS)
def test_every_version_decodes_what_it_encoded(initial: str) -> None:
    for name, seed in seeds("there and back", 2, SCHEMAS, initial):
        for version in SCHEMAS[name].versions:
            with named(name, version, seed):
                message = random_message(name, version, seed)
                data = message.encode(version)
                padded = bytearray(b"head" + data + b"tail")
                assert message_class(name).decode(version, padded, 4) == (message, 4 + len(data))
                assert b"".join(message.encode_chunks(version)) == data  # type: ignore[arg-type]


def test_a_message_without_keywords_has_the_schemas_defaults() -> None:
    request = m.FetchRequest()
    assert (request.max_bytes, request.replica_id, request.topics, request.rack_id) == (0x7FFFFFFF, -1, [], "")
    assert m.ProduceRequest().transactional_id is None
    assert m.FetchRequest().topics is not m.FetchRequest().topics


def test_a_field_that_the_version_lacks_decodes_to_its_default() -> None:
    old, _ = m.FetchRequest.decode(0, m.FetchRequest(max_wait_ms=5).encode(0))
    assert (old.max_wait_ms, old.max_bytes, old.session_epoch) == (5, 0x7FFFFFFF, -1)


def test_a_value_that_the_version_cannot_carry_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match=r"ProduceRequest v2 cannot carry transactional_id"):
        m.ProduceRequest(transactional_id="t").encode(2)


def test_a_value_that_may_be_ignored_is_left_out_of_a_version_that_lacks_it() -> None:
    metadata = m.MetadataResponse(cluster_id="c", throttle_time_ms=7)
    assert metadata.encode(0) == m.MetadataResponse().encode(0)


def test_a_version_that_does_not_exist_is_a_typed_error() -> None:
    for version in (-1, 99):
        with pytest.raises(UnsupportedVersion):
            m.ProduceRequest.decode(version, b"")
        with pytest.raises(UnsupportedVersion):
            m.ProduceRequest().encode(version)


def test_a_value_of_the_wrong_type_or_range_names_the_message() -> None:
    for wrong in (m.ProduceRequest(acks=1 << 20), m.ProduceRequest(acks=None)):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="ProduceRequest v9"):
            wrong.encode(9)
    with pytest.raises(ValueError, match="16 bytes"):
        m.ProduceRequest(topic_data=[m.ProduceRequest.TopicProduceData(topic_id=b"short")]).encode(13)


def test_the_default_of_a_struct_field_is_shared_and_cannot_be_changed() -> None:
    partition = m.FetchResponse.PartitionData()
    with pytest.raises(AttributeError, match="assign a new one"):
        partition.current_leader.leader_id = 1
    partition.current_leader = m.FetchResponse.LeaderIdAndEpoch(leader_id=1)
    assert m.FetchResponse.PartitionData().current_leader == m.FetchResponse.LeaderIdAndEpoch()
    assert partition != m.FetchResponse.PartitionData()


def test_messages_are_equal_by_value_and_not_hashable() -> None:
    assert _fetched(b"abc") == _fetched(memoryview(b"abc"))
    assert _fetched(b"abc") != _fetched(b"abd")
    assert m.ListGroupsRequest() != m.HeartbeatRequest()
    with pytest.raises(TypeError):
        hash(m.ListGroupsRequest())


def test_a_misspelt_field_is_refused() -> None:
    with pytest.raises(TypeError):
        m.ProduceRequest(ack=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        m.ProduceRequest().ack = 1  # type: ignore[attr-defined]


def test_repr_cuts_long_bytes() -> None:
    text = repr(_fetched(b"x" * 100_000))
    assert "<100000 bytes" in text
    assert len(text) < 1000


@pytest.mark.parametrize("version", list(m.FetchResponse.VERSIONS))
def test_a_file_range_is_a_chunk_of_its_own_in_its_place(version: int) -> None:
    size = random.choice((0, 1, 126, 127, 128, 70_000))
    file_range = Range(size)
    head, chunk, tail = [*_fetched(file_range).encode_chunks(version), b""][:3]
    assert chunk is file_range
    assert isinstance(head, bytes)
    assert isinstance(tail, bytes)
    assert head + bytes(size) + tail == _fetched(bytes(size)).encode(version)


def test_encode_refuses_file_ranges() -> None:
    with pytest.raises(ValueError, match="encode_chunks"):
        _fetched(Range(5)).encode(12)


def test_records_are_views_of_what_was_decoded() -> None:
    buf = bytearray(_fetched(b"RECORDS").encode(12))
    message, _ = m.FetchResponse.decode(12, buf)
    records = message.responses[0].partitions[0].records
    assert records is not None
    records[:3] = b"rec"
    assert b"recORDS" in buf


def test_an_unknown_tagged_field_is_ignored() -> None:
    request = m.ApiVersionsRequest(client_software_name="n", client_software_version="v")
    data = request.encode(3)
    assert data[-1:] == b"\0"
    long_value = bytes(200)
    extended = data[:-1] + b"\x02" + b"\x63\x01!" + b"\xe4\x01" + b"\xc8\x01" + long_value
    assert m.ApiVersionsRequest.decode(3, extended) == (request, len(extended))


def test_no_such_message_is_an_attribute_error() -> None:
    for name in ("NoSuchRequest", "../Produce", "Produce", "_private"):
        with pytest.raises(AttributeError):
            getattr(m, name)


def test_the_module_lists_its_messages() -> None:
    assert {"ProduceRequest", "ProduceResponse", "OffsetCommitKey"} <= set(dir(m))
    assert m.ProduceRequest.API_KEY == 0
    versions, flexible_from = m.ProduceRequest.VERSIONS, m.ProduceRequest.FLEXIBLE_FROM
    assert (versions, flexible_from) == (range(14), 9)
    assert m.OffsetCommitKey.API_KEY is None
