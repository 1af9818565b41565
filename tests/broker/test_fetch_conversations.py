"""Conversations with Fetch sessions and topic ids over a socket, and the same ones with Apache Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, TypeAlias

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from tests.asker import Asker
from tests.conftest import StartHeadrace
from tests.eventually import eventually

pytestmark = pytest.mark.slow  # processes of its own

NO_ID = bytes(16)
BY_NAME, BY_ID = 12, 18
Said: TypeAlias = tuple[int, bool, dict[int, tuple[int, ...]]]
"""The error of the whole, whether there is a session, and per partition: error, high watermark, log start, bytes."""


class Topic:
    """A new topic, and what a client does with it."""

    def __init__(self, asker: Asker, name: str | None = None, partitions: int = 3, **configs: str) -> None:
        self.asker, self.name = asker, name or f"told-{uuid.uuid4().hex[:12]}"
        wish = m.CreateTopicsRequest.CreatableTopic(
            name=self.name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[
                m.CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ],
        )
        (made,) = asker.ask(m.CreateTopicsRequest(topics=[wish], timeout_ms=10_000), 7).topics
        assert made.error_code == 0, made
        self.id: bytes = made.topic_id
        eventually(lambda: self.described().error_code == 0)
        eventually(lambda: all(self.fetch(number)[2][number][0] == 0 for number in range(partitions)))

    def described(self) -> m.MetadataResponse.MetadataResponseTopic:
        wanted = m.MetadataRequest.MetadataRequestTopic(name=self.name)
        answer: m.MetadataResponse = self.asker.ask(
            m.MetadataRequest(topics=[wanted], allow_auto_topic_creation=False), 12
        )
        return answer.topics[0]

    def delete(self) -> None:
        state = m.DeleteTopicsRequest.DeleteTopicState(name=self.name)
        self.asker.ask(m.DeleteTopicsRequest(topics=[state], timeout_ms=10_000), 6)
        eventually(lambda: self.described().error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def produce(self, number: int, version: int = 13, codec: Codec = Codec.NONE) -> int:
        records = bytes(encode_batch([Record(0, 1_700_000_000_000, None, b"v" * 40, ())], codec=codec))
        part = m.ProduceRequest.PartitionProduceData(index=number, records=records)
        data = m.ProduceRequest.TopicProduceData(name=self.name, topic_id=self.id, partition_data=[part])
        request = m.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
        return int(self.asker.ask(request, version).responses[0].partition_responses[0].error_code)

    def fetch(
        self, *numbers: int, version: int = BY_NAME, session: tuple[int, int] = (0, -1), offset: int = 0, **more: Any
    ) -> Said:
        answer = self.ask_fetch(*numbers, version=version, session=session, offset=offset, **more)
        assert all(each.topic_id == self.id or version < BY_ID for each in answer.responses)
        return (
            answer.error_code,
            answer.session_id != 0,
            {
                each.partition_index: (
                    each.error_code,
                    each.high_watermark,
                    each.log_start_offset,
                    len(each.records or b""),
                )
                for topic in answer.responses
                for each in topic.partitions
            },
        )

    def ask_fetch(
        self,
        *numbers: int,
        version: int,
        session: tuple[int, int],
        offset: int = 0,
        forget: tuple[int, ...] = (),
        max_wait_ms: int = 0,
        leader_epoch: int = -1,
    ) -> m.FetchResponse:
        wanted = [
            m.FetchRequest.FetchPartition(
                partition=number,
                fetch_offset=offset,
                partition_max_bytes=1 << 20,
                current_leader_epoch=leader_epoch,
            )
            for number in numbers
        ]
        topics = [m.FetchRequest.FetchTopic(topic=self.name, topic_id=self.id, partitions=wanted)]
        forgotten = m.FetchRequest.ForgottenTopic(topic=self.name, topic_id=self.id, partitions=list(forget))
        request = m.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=session[0],
            session_epoch=session[1],
            topics=topics if numbers else [],
            forgotten_topics_data=[forgotten] if forget else [],
        )
        answer: m.FetchResponse = self.asker.ask(request, version)
        return answer

    def open(self, *numbers: int, version: int = BY_NAME) -> int:
        return self.ask_fetch(*numbers, version=version, session=(0, 0)).session_id


def server_address(asker: Asker) -> str:
    host, port = asker.socket.getpeername()
    return f"{host}:{port}"


def a_session(asker: Asker, version: int) -> Iterator[Said]:
    topic = Topic(asker)
    session = topic.open(0, 1, 2, version=version)

    def go_on(epoch: int, *numbers: int, offset: int = 0, forget: tuple[int, ...] = ()) -> Said:
        return topic.fetch(*numbers, version=version, session=(session, epoch), offset=offset, forget=forget)

    yield go_on(1)
    topic.produce(1)
    yield go_on(2)
    yield go_on(3)  # the same again: the client has not gone on
    yield go_on(4, 1, offset=1)
    yield go_on(5)
    topic.produce(0)
    topic.produce(2)
    yield go_on(6, forget=(0,))
    yield go_on(7, 2, offset=9)
    yield go_on(8)  # an error is said each time
    yield go_on(9, 2, offset=1)  # and once how things are without it
    yield go_on(10)
    yield go_on(11, 7)  # there is no partition 7
    yield go_on(12)
    yield go_on(13, forget=(7,))
    yield go_on(13)
    yield go_on(15)
    yield go_on(14, 0, 1, offset=1)
    yield go_on(-1, 0, 1, 2, offset=1)
    yield go_on(15)


def sessions_that_are_not(asker: Asker, version: int) -> Iterator[Said]:
    topic = Topic(asker)
    other = BY_ID if version == BY_NAME else BY_NAME
    session = topic.open(0, version=version)
    yield topic.fetch(0, version=version, session=(session ^ 1, 1))
    yield topic.fetch(0, version=other, session=(session, 1))
    yield topic.fetch(version=version, session=(session, 1), forget=(0,))  # a session of nothing is over
    yield topic.fetch(version=version, session=(session, 2))
    session = topic.open(0, version=version)
    yield topic.fetch(0, version=version, session=(session, 0))  # a new one in place of it
    yield topic.fetch(0, version=version, session=(session, 1))


def a_topic_that_is_made_anew(asker: Asker, version: int) -> Iterator[Said]:
    topic = Topic(asker)
    session = topic.open(0, version=version)
    topic.delete()
    yield topic.fetch(version=version, session=(session, 1))
    again = Topic(asker, topic.name)
    yield topic.fetch(version=version, session=(session, 2))
    yield again.fetch(0, version=version)
    yield topic.fetch(0, version=version)


def leader_epochs(asker: Asker, version: int) -> Iterator[Said]:
    topic = Topic(asker)
    for epoch in (0, 1):
        yield topic.fetch(0, version=version, leader_epoch=epoch)


CONVERSATIONS = [a_session, sessions_that_are_not, a_topic_that_is_made_anew, leader_epochs]
Conversation: TypeAlias = Callable[[Asker, int], Iterator[Said]]


@pytest.fixture
def asker(headrace_server: StartHeadrace) -> Iterator[Asker]:
    with Asker(headrace_server().bootstrap) as connection:
        yield connection


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_an_answer_in_a_session_holds_only_news(asker: Asker, version: int) -> None:
    said = list(a_session(asker, version))
    assert [sorted(partitions) for _, _, partitions in said] == [
        [], [1], [1], [], [], [2], [2], [2], [2], [], [7], [7], [], [], [], [0], [0, 1, 2], [],
    ]  # fmt: skip
    errors = {number: code for number, (code, _, _) in enumerate(said) if code}
    assert errors == {
        13: ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        14: ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        17: ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    }


def test_a_session_waits_until_there_is_news(asker: Asker) -> None:
    topic = Topic(asker)
    session = topic.open(0, 1, 2)
    began = monotonic()
    assert topic.fetch(session=(session, 1), max_wait_ms=200) == (0, True, {})
    assert monotonic() - began >= 0.2
    asker.send(
        m.FetchRequest(max_wait_ms=20_000, min_bytes=1, max_bytes=1 << 20, session_id=session, session_epoch=2), BY_NAME
    )
    with Asker(server_address(asker)) as producer:
        topic.asker = producer
        topic.produce(2)
    answer = asker.receive(m.FetchRequest(), BY_NAME)
    assert [each.partition_index for told in answer.responses for each in told.partitions] == [2]


def test_a_partition_that_gave_records_comes_last_the_next_time(asker: Asker) -> None:
    topic = Topic(asker)
    for number in range(3):
        topic.produce(number)
    session = topic.open(0, 1, 2)
    request = m.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1, session_id=session)
    order = []
    for epoch in range(1, 7):
        request.session_epoch = epoch
        order += [
            each.partition_index
            for told in asker.ask(request, BY_NAME).responses
            for each in told.partitions
            if each.records
        ]
    assert order == [0, 1, 2, 0, 1, 2]


def test_an_unknown_id_is_told_from_an_unknown_name(asker: Asker) -> None:
    topic = Topic(asker)
    topic.name, topic.id = "nobody", b"nobody has this."
    assert topic.fetch(0, version=BY_NAME)[2][0][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic.fetch(0, version=BY_ID)[2][0][0] == ErrorCode.UNKNOWN_TOPIC_ID
    topic.id = NO_ID
    assert topic.fetch(0, version=BY_ID)[2][0][0] == ErrorCode.UNKNOWN_TOPIC_ID
    assert topic.produce(0, version=12) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic.produce(0, version=13) == ErrorCode.UNKNOWN_TOPIC_ID


def test_zstd_is_for_versions_that_have_it(asker: Asker) -> None:
    topic = Topic(asker, compression_type="zstd")
    assert topic.produce(0, version=6, codec=Codec.ZSTD) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert topic.produce(0, version=7, codec=Codec.ZSTD) == 0
    assert topic.fetch(0, version=9)[2][0] == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1, -1, 0)
    assert topic.fetch(0, version=10)[2][0][0] == 0


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_headrace_says_what_apache_kafka_says(
    asker: Asker, apache_kafka: str, conversation: Conversation, version: int
) -> None:
    with Asker(apache_kafka) as theirs:
        assert list(conversation(asker, version)) == list(conversation(theirs, version))
