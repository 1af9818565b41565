"""Fetch, asked of headrace and of Apache Kafka."""

from typing import Any

import pytest

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from tests.differential.conversation import Conversation, batch
from tests.differential.deliberate import Differs
from tests.differential.scenario import scenario

pytestmark = pytest.mark.slow  # asks Apache Kafka

API = ApiKey.FETCH
BY_NAME, BY_ID = range(4, 13), range(13, 19)
UNKNOWN_ID = b"nobody has this."


def _request(ask: Conversation, topic: str | bytes, offset: int = 0, partition: int = 0, **more: Any) -> m.FetchRequest:
    """Fetch of one partition; keywords set fields of the request or of the partition."""
    wanted = m.FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    whole = m.FetchRequest.FetchTopic(partitions=[wanted])
    if ask.version < 13:
        assert isinstance(topic, str)
        whole.topic = topic
    else:
        whole.topic_id = topic if isinstance(topic, bytes) else ask.topic_id(topic)
    request = m.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[whole])
    for name, value in more.items():
        setattr(wanted if name in m.FetchRequest.FetchPartition.FIELDS else request, name, value)
    return request


@scenario(API)
def test_fetches_from_every_offset(ask: Conversation) -> None:
    topic = ask.topic()
    ask.produce(topic, batch(("a", "b", "c")))
    ask.produce(topic, batch(("d",)))
    for offset in (0, 1, 3, 4, 5, -1, -2, 2**63 - 1):
        ask(_request(ask, topic, offset))


@scenario(API)
def test_fetches_from_an_empty_log(ask: Conversation) -> None:
    topic = ask.topic()
    for offset in (0, 1, -1):
        ask(_request(ask, topic, offset))


@scenario(API, BY_NAME)
def test_fetches_from_unknown_partitions_by_name(ask: Conversation) -> None:
    topic = ask.topic()
    for name, partition in ((topic, 1), (topic, -1), (ask.name("missing"), 0), ("not legal", 0), ("", 0)):
        ask(_request(ask, name, partition=partition))


@scenario(API, BY_ID)
def test_fetches_from_unknown_partitions_by_id(ask: Conversation) -> None:
    topic = ask.topic_id(ask.topic())
    for each, partition in ((topic, 1), (topic, -1), (UNKNOWN_ID, 0), (bytes(16), 0)):
        ask(_request(ask, each, partition=partition))


@scenario(
    API,
    differs=[
        Differs(
            "Fetch.responses[].partitions[]",
            "a negative limit fails inside Apache Kafka; here it is 0",
            at="max_bytes=-1",
        )
    ],
)
def test_fetches_within_limits(ask: Conversation) -> None:
    topic = ask.topic()
    for _ in range(3):
        ask.produce(topic, batch(("a" * 100,)))
    for partition_max_bytes in (0, 1, 200, 1 << 20, -1):
        ask(_request(ask, topic, partition_max_bytes=partition_max_bytes))
    for max_bytes in (0, 1, 200, -1):
        ask(_request(ask, topic, max_bytes=max_bytes))


@scenario(API)
def test_fetches_a_partition_twice_in_one_request(ask: Conversation) -> None:
    topic = ask.topic()
    ask.produce(topic)
    request = _request(ask, topic)
    request.topics[0].partitions *= 2
    ask(request)
    request = _request(ask, topic)
    request.topics *= 2
    ask(request)


@scenario(API)
def test_fetches_several_partitions(ask: Conversation) -> None:
    topic = ask.topic(partitions=3)
    for partition in range(3):
        ask.produce(topic, partition=partition)
    request = _request(ask, topic, partition=0)
    for partition in (2, 1):
        request.topics[0].partitions += _request(ask, topic, partition=partition).topics[0].partitions
    ask(request)
    request.max_bytes = 1
    ask(request)


@scenario(API)
def test_fetches_nothing(ask: Conversation) -> None:
    ask(m.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]))


@scenario(API, range(9, 19))
def test_checks_the_leader_epoch_of_fetches(ask: Conversation) -> None:
    topic = ask.topic()
    ask.produce(topic)
    for epoch in (-1, 0, 1, -2):
        ask(_request(ask, topic, current_leader_epoch=epoch))


@scenario(API, range(12, 19))
def test_checks_the_last_fetched_epoch(ask: Conversation) -> None:
    topic = ask.topic()
    ask.produce(topic)
    for epoch in (-1, 0, 1):
        for offset in (0, 1, 2):
            ask(_request(ask, topic, offset, last_fetched_epoch=epoch))


@scenario(
    API,
    differs=[
        Differs(f"Fetch.{field}", "an unknown isolation level fails inside Apache Kafka", at=f"isolation_level={level}")
        for field in ("responses[]", "error_code")
        for level in (2, -1)
    ],
)
def test_fetches_with_other_isolation_levels(ask: Conversation) -> None:
    topic = ask.topic()
    ask.produce(topic)
    for level in (1, 2, -1):
        ask(_request(ask, topic, isolation_level=level))


@scenario(API, range(7, 19))
def test_fetches_in_a_session(ask: Conversation) -> None:
    topic = ask.topic(partitions=2)
    answer = ask(_request(ask, topic, session_epoch=0))
    session = answer.session_id
    nothing = m.FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session, session_epoch=1, topics=[])
    ask(nothing)
    ask.produce(topic)
    nothing.session_epoch = 2
    ask(nothing)
    nothing.session_epoch = 3
    ask(nothing)
    ask(_request(ask, topic, 1, session_id=session, session_epoch=4))
    ask(_request(ask, topic, partition=1, session_id=session, session_epoch=5))
    ask(_request(ask, topic, 9, partition=1, session_id=session, session_epoch=6))
    nothing.session_epoch = 7
    ask(nothing)


@scenario(API, range(7, 19))
def test_refuses_wrong_session_ids_and_epochs(ask: Conversation) -> None:
    topic = ask.topic()
    ask(m.FetchRequest(max_wait_ms=0, min_bytes=0, session_id=12345, session_epoch=1, topics=[]))
    ask(m.FetchRequest(max_wait_ms=0, min_bytes=0, session_id=12345, session_epoch=-1, topics=[]))
    session = ask(_request(ask, topic, session_epoch=0)).session_id
    for epoch in (5, 2):
        ask(m.FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session, session_epoch=epoch, topics=[]))
    ask(m.FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session, session_epoch=-1, topics=[]))
    ask(m.FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session, session_epoch=1, topics=[]))


@scenario(
    API,
    range(5, 15),
    differs=[Differs("Fetch.responses[]", "only a broker of the cluster may fetch as a replica", at="replica_id=7")],
)
def test_fetches_as_a_stranger_among_the_replicas(ask: Conversation) -> None:
    topic = ask.topic()
    ask.produce(topic)
    for replica in (7, -2):
        ask(_request(ask, topic, replica_id=replica))


@scenario(API)
def test_fetches_after_records_were_deleted(ask: Conversation) -> None:
    topic = ask.topic()
    for _ in range(4):
        ask.produce(topic)
    wanted = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=2)
    whole = m.DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[wanted])
    ask.quietly(m.DeleteRecordsRequest(topics=[whole], timeout_ms=5_000), 2)
    for offset in (0, 1, 2, 4):
        ask(_request(ask, topic, offset))
