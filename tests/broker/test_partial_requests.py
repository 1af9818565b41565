"""Of a request about several topics or groups, the forbidden ones are refused and the others answered."""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import read_response_header, write_request_header
from headrace.security.access import Operation, RequestOrigin, ResourceType
from tests.broker.test_admission import Gated, Refusing, ask, end_of, produce
from tests.broker.test_every_version import TOPIC
from tests.eventually import eventually
from tests.harness import receive_frame
from tests.wire import Wire

FORBIDDEN = "other"
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Seen(Refusing):
    """Rules that hide groups, too."""

    def permits(self, origin: RequestOrigin, operation: Operation, resource: ResourceType, name: str) -> bool:
        self.asked.append((origin, operation, resource, name))
        return name not in self.topics


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gated]:
    with Gated(tmp_path_factory.mktemp("partial") / "data") as found:
        yield found


@pytest.fixture
def wire(gated: Gated) -> Iterator[Wire]:
    gated.rule(Seen(topics=(FORBIDDEN,)))
    with Wire(gated.bootstrap) as found:
        yield found
    gated.rule(None)


def both(acks: int = 1) -> m.ProduceRequest:
    """A produce to the forbidden topic and to the other, in this order."""
    request = produce(FORBIDDEN, acks)
    request.topic_data += produce(TOPIC, acks).topic_data
    return request


@pytest.mark.parametrize("version", [3, 9, 12])
def test_a_produce_is_appended_to_the_permitted_topic_alone(gated: Gated, wire: Wire, version: int) -> None:
    before = end_of(gated), end_of(gated, FORBIDDEN)
    answer = ask(wire, ApiKey.PRODUCE, version, both())
    codes = {each.name: each.partition_responses[0].error_code for each in answer.responses}
    assert codes == {TOPIC: 0, FORBIDDEN: REFUSED}
    assert (end_of(gated), end_of(gated, FORBIDDEN)) == (before[0] + 1, before[1])


def test_a_produce_without_acks_is_appended_as_far_as_permitted_and_ends_the_connection(
    gated: Gated, wire: Wire
) -> None:
    before = end_of(gated)
    body = both(acks=0).encode(9)
    head = write_request_header(ApiKey.PRODUCE, 9, 7, "test")
    wire.socket.sendall((len(head) + len(body)).to_bytes(4, "big") + head + body)
    assert wire.socket.recv(100) == b""
    eventually(lambda: end_of(gated) == before + 1, "the append")


def test_metadata_names_the_brokers_also_when_every_topic_is_forbidden(wire: Wire) -> None:
    asked = [m.MetadataRequest.MetadataRequestTopic(name=FORBIDDEN)]
    for version in range(13):
        answer = ask(wire, ApiKey.METADATA, version, m.MetadataRequest(topics=asked))
        assert len(answer.brokers) == 1
        assert [(each.name, each.error_code, each.partitions) for each in answer.topics] == [(FORBIDDEN, REFUSED, [])]
        everything = ask(wire, ApiKey.METADATA, version, m.MetadataRequest(topics=None if version else []))
        assert FORBIDDEN not in [each.name for each in everything.topics]
        assert TOPIC in [each.name for each in everything.topics]


def test_offsets_of_a_forbidden_topic_are_not_fetched_with_all_others(gated: Gated, wire: Wire) -> None:
    def commit(name: str) -> m.OffsetCommitRequest.OffsetCommitRequestTopic:
        partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        return m.OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=[partition])

    request = m.OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, topics=[commit(FORBIDDEN), commit(TOPIC)]
    )
    ask(wire, ApiKey.FIND_COORDINATOR, 0, m.FindCoordinatorRequest(key="g"))

    def committed() -> Any:
        return ask(wire, ApiKey.OFFSET_COMMIT, 8, request).topics

    eventually(lambda: committed()[0].partitions[0].error_code == 0, "the coordinator")
    assert [(each.name, each.partitions[0].error_code) for each in committed()] == [(TOPIC, 0), (FORBIDDEN, REFUSED)]
    gated.rule(None)
    assert len(committed()) == 2
    gated.rule(Seen(topics=(FORBIDDEN,)))
    for version, asked in (
        (5, m.OffsetFetchRequest(group_id="g", topics=None)),
        (8, m.OffsetFetchRequest(groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)])),
    ):
        answer = ask(wire, ApiKey.OFFSET_FETCH, version, asked)
        topics = answer.topics if version < 8 else answer.groups[0].topics
        assert [each.name for each in topics] == [TOPIC]


def test_a_request_with_many_names_is_decided_in_slices_and_answered_whole(gated: Gated, wire: Wire) -> None:
    names = [f"t{number}" for number in range(5000)]
    gated.rule(Seen(topics=tuple(names[::2])))
    request = m.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            m.ListOffsetsRequest.ListOffsetsTopic(
                name=each, partitions=[m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)]
            )
            for each in names
        ],
    )
    answer = ask(wire, ApiKey.LIST_OFFSETS, 5, request)
    codes = {each.name: each.partitions[0].error_code for each in answer.topics}
    assert list(codes) == [*names[1::2], *names[::2]]
    assert set(codes.values()) == {REFUSED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert {name for name, code in codes.items() if code == REFUSED} == set(names[::2])


def test_a_topic_is_made_only_for_whom_may_create_it(gated: Gated, wire: Wire) -> None:
    class MayDescribe(Refusing):
        def permits(self, origin: RequestOrigin, operation: Operation, resource: ResourceType, name: str) -> bool:
            return operation is Operation.DESCRIBE

    gated.rule(MayDescribe())
    asked = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="made-up")])
    answer = ask(wire, ApiKey.METADATA, 9, asked)
    assert [(each.name, each.error_code) for each in answer.topics] == [("made-up", REFUSED)]
    assert "made-up" not in gated.broker.metadata.snapshot.topics


def test_a_fetch_that_waits_gets_nothing_once_a_rule_has_taken_its_topic_away(gated: Gated, wire: Wire) -> None:
    gated.rule(Seen())
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=end_of(gated), partition_max_bytes=1 << 20)
    topic = m.FetchRequest.FetchTopic(topic=TOPIC, partitions=[part])
    request = m.FetchRequest(
        replica_id=-1, max_wait_ms=20_000, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[topic]
    )
    body = request.encode(11)
    head = write_request_header(ApiKey.FETCH, 11, 7, "consumer")
    wire.socket.sendall((len(head) + len(body)).to_bytes(4, "big") + head + body)
    eventually(lambda: len(gated.broker.purgatory) > 0, "the fetch to wait")

    class ByClient(Seen):
        def permits(self, origin: RequestOrigin, operation: Operation, resource: ResourceType, name: str) -> bool:
            return origin.client_id != "consumer"

    gated.rule(ByClient())
    with Wire(gated.bootstrap) as other:
        ask(other, ApiKey.PRODUCE, 9, produce())
    answer = receive_frame(wire.socket)
    _, pos = read_response_header(answer, ApiKey.FETCH, 11)
    fetched = m.FetchResponse.decode(11, answer, pos)[0].responses[0].partitions[0]
    assert (fetched.error_code, bytes(fetched.records or b"")) == (REFUSED, b"")
