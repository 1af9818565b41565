"""ListOffsets, Metadata and group offsets in old and new versions: the answers, and the same ones from Apache Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from time import sleep
from typing import Any, TypeAlias

import pytest

from headrace.broker.handlers import api_versions, list_offsets
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import write_request_header
from headrace.records.format2.batch import Record, encode_batch
from tests.asker import Asker
from tests.conftest import StartHeadrace
from tests.harness import receive_frame
from tests.wire import Wire

pytestmark = pytest.mark.slow  # processes of its own

NO_ID, UNKNOWN_ID = bytes(16), b"nobody has this."
Conversation: TypeAlias = Callable[[Asker, str], Iterator[object]]


def address(asker: Asker) -> str:
    host, port = asker.socket.getpeername()
    return f"{host}:{port}"


def new_topic(asker: Asker, values: int = 3, **configs: str) -> str:
    """A topic of two partitions, with records of different times in the first."""
    name = f"newest-{uuid.uuid4().hex[:12]}"
    with Wire(address(asker)) as wire:
        settings = {key.replace("_", "."): value for key, value in {"retention_ms": "-1", **configs}.items()}
        assert wire.create_topic(name, 2, settings) == 0
        while wire.list_offset(name, -1)[0] != 0 or wire.list_offset(name, -1, partition=1)[0] != 0:
            sleep(0.02)
        for number in range(values):
            record = Record(0, 1_700_000_000_000 + number, None, b"v" * 1000, ())
            assert wire.produce(name, bytes(encode_batch([record]))).error_code == 0
    return name


def topic_id(asker: Asker, name: str) -> bytes:
    wanted = m.MetadataRequest.MetadataRequestTopic(name=name)
    answer: m.MetadataResponse = asker.ask(m.MetadataRequest(topics=[wanted]), 12)
    return answer.topics[0].topic_id


def list_offset(asker: Asker, version: int, name: str, timestamp: int, **more: int) -> Any:
    wanted = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp, **more)
    topic = m.ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[wanted])
    return asker.ask(m.ListOffsetsRequest(replica_id=-1, topics=[topic]), version).topics[0].partitions[0]


def offsets_by_name_and_time(asker: Asker, topic: str) -> Iterator[object]:
    for version in range(1, list_offsets.VERSIONS.stop):
        for timestamp in (*range(-8, 0), 0, 1_700_000_000_001, 1 << 60):
            yield version, timestamp, list_offset(asker, version, topic, timestamp)
    yield list_offset(asker, 11, "missing", -1)
    yield list_offset(asker, 11, topic, -1, current_leader_epoch=9)


def metadata_by_id(asker: Asker, topic: str) -> Iterator[object]:
    own = topic_id(asker, topic)
    wishes: list[list[tuple[str | None, bytes]]] = [
        [(topic, NO_ID)], [(None, own)], [(topic, own)], [(None, UNKNOWN_ID)], [(None, UNKNOWN_ID), (None, own)],
        [("missing", NO_ID), (None, own)], [("not legal", NO_ID)], [(topic, NO_ID)] * 2, [],
    ]  # fmt: skip
    for version in (10, 11, 12, 13):
        for wish in wishes:
            for is_told_operations in (False, True):
                request = m.MetadataRequest(
                    topics=[m.MetadataRequest.MetadataRequestTopic(name=name, topic_id=id_) for name, id_ in wish],
                    allow_auto_topic_creation=False,
                    include_topic_authorized_operations=is_told_operations,
                )
                answer = asker.ask(request, version)
                yield (
                    version,
                    answer.error_code,
                    [
                        (
                            (each.name or "").replace(topic, "the topic"),
                            each.topic_id == own,
                            each.error_code,
                            len(each.partitions),
                            each.topic_authorized_operations,
                        )
                        for each in answer.topics
                    ],
                )


def offsets_by_id(asker: Asker, topic: str) -> Iterator[object]:
    own, group = topic_id(asker, topic), f"g-{topic}"
    while asker.ask(m.FindCoordinatorRequest(coordinator_keys=[group]), 6).coordinators[0].error_code:
        sleep(0.05)
    while fetch(asker, 9, group, None)[0]:  # the coordinator has yet to take up its work
        sleep(0.05)
    known, unknown, other = (topic, own), ("missing", UNKNOWN_ID), ("missing too", b"nor has that one")
    for version in (9, 10):
        for topics in ([known], [unknown], [known, unknown], [unknown, other], []):
            yield version, commit(asker, version, group, topics)
            yield version, fetch(asker, version, group, topics)
        yield version, commit(asker, version, group, [known], generation=3)
        yield version, fetch(asker, version, group, None)


def commit(asker: Asker, version: int, group: str, topics: list[tuple[str, bytes]], generation: int = -1) -> object:
    parts = [
        m.OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=number, committed_offset=5, committed_metadata="note"
        )
        for number in (0, 9)
    ]
    request = m.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id="" if generation < 0 else "somebody",
        topics=[
            m.OffsetCommitRequest.OffsetCommitRequestTopic(name=name, topic_id=id_, partitions=parts)
            for name, id_ in topics
        ],
    )
    answer = asker.ask(request, version)
    return {
        told.topic_id if version >= 10 else told.name == "missing": sorted(
            (each.partition_index, each.error_code) for each in told.partitions
        )
        for told in answer.topics
        if told.topic_id in (NO_ID, UNKNOWN_ID)
    }, len(answer.topics)


def fetch(asker: Asker, version: int, group: str, topics: list[tuple[str, bytes]] | None) -> tuple[int, object]:
    wanted = None
    if topics is not None:
        wanted = [
            m.OffsetFetchRequest.OffsetFetchRequestTopics(name=name, topic_id=id_, partition_indexes=[0, 9])
            for name, id_ in topics
        ]
    of = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=wanted)
    (told,) = asker.ask(m.OffsetFetchRequest(groups=[of]), version).groups
    return told.error_code, [each.partitions for each in told.topics]


CONVERSATIONS = [offsets_by_name_and_time, metadata_by_id, offsets_by_id]


@pytest.fixture
def asker(headrace_server: StartHeadrace) -> Iterator[Asker]:
    with Asker(headrace_server(settings={"offsets.topic.num.partitions": "1"}).bootstrap) as connection:
        yield connection


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_headrace_answers_as_apache_kafka(asker: Asker, apache_kafka: str, conversation: Conversation) -> None:
    with Asker(apache_kafka) as theirs:
        assert list(conversation(asker, new_topic(asker))) == list(conversation(theirs, new_topic(theirs)))


def test_the_first_version_of_list_offsets_answers_with_where_segments_begin(asker: Asker) -> None:
    topic = new_topic(asker, values=5, segment_bytes="2500")

    def offsets(timestamp: int, most: int = 10) -> list[int]:
        answer = list_offset(asker, 0, topic, timestamp, max_num_offsets=most)
        assert answer.error_code == 0
        return list(answer.old_style_offsets)

    assert offsets(-1) == [5, 4, 2, 0]
    assert offsets(-1, most=2) == [5, 4]
    assert offsets(-1, most=0) == offsets(-1, most=-1) == []
    assert offsets(-2) == [0]
    assert offsets(1_000) == []
    assert offsets(1 << 60) == [5, 4, 2, 0]
    assert list_offset(asker, 0, "missing", -1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_asked_for_twice_is_refused(asker: Asker) -> None:
    topic = new_topic(asker)
    wanted = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    twice = m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted, wanted])
    answer = asker.ask(m.ListOffsetsRequest(replica_id=-1, topics=[twice]), 11)
    assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}


def ask_api_versions(asker: Asker, version: int) -> bytes:
    """The answer's bytes; the request's body is version 4's whatever version it says."""
    request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    head = bytearray(write_request_header(ApiKey.API_VERSIONS, 4, 7, "test"))
    head[2:4] = version.to_bytes(2, "big")
    frame = bytes(head) + request.encode(4)
    asker.socket.sendall(len(frame).to_bytes(4, "big") + frame)
    return receive_frame(asker.socket)[4:]


def test_an_api_versions_newer_than_ours_is_answered_in_the_first_form(asker: Asker, apache_kafka: str) -> None:
    newest = api_versions.VERSIONS[-1]
    with Asker(apache_kafka) as theirs:
        for version in (newest + 1, 999):
            ours = ask_api_versions(asker, version)
            assert ours == ask_api_versions(theirs, version)
            answer, end = m.ApiVersionsResponse.decode(0, ours)
            assert (answer.error_code, end) == (ErrorCode.UNSUPPORTED_VERSION, len(ours))
            assert [(each.api_key, each.max_version) for each in answer.api_keys] == [(18, newest)]
    assert ask_api_versions(asker, newest)[:2] == bytes(2), "the connection goes on"


def test_features_that_begin_at_level_0_are_named_from_version_4_on(asker: Asker, apache_kafka: str) -> None:
    def features(peer: Asker, version: int) -> tuple[dict[str, int], dict[str, int]]:
        request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = peer.ask(request, version)
        lowest = {each.name: each.min_version for each in answer.supported_features}
        return lowest, {each.name: each.max_version_level for each in answer.finalized_features}

    finalized = {"group.version": 1, "share.version": 1, "streams.version": 1, "transaction.version": 2}
    assert features(asker, 4) == (dict.fromkeys(finalized, 0), finalized)
    assert features(asker, 3) == ({}, finalized)
    with Asker(apache_kafka) as theirs:
        assert set(features(theirs, 4)[0].items()) >= set(features(asker, 4)[0].items())
        assert features(theirs, 4)[1].items() >= finalized.items()
        assert features(theirs, 3)[0].keys().isdisjoint(features(asker, 4)[0])
