"""Clients over their quota: told at once how long to wait, held for that long, by headrace as by Apache Kafka."""

import time
import uuid
from collections.abc import Iterator

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.admin_requests import create_topic, new_name
from tests.broker.quota_requests import Client, alter, describe, rows, set_quota
from tests.conftest import StartHeadrace
from tests.eventually import eventually
from tests.wire import batch

RATE = 100_000
BURST = 10 * RATE
"""What an idle client may use at once: (quota.window.num - 1) * quota.window.size.seconds of the rate."""

ACCURACY_MS = 120
"""Around a batch and its request there are some bytes."""


def assert_told(told_ms: int, expected_ms: float, began: float) -> None:
    """The wait is the expected one, less what went by since the first of the requests that it is for."""
    gone_ms = (time.monotonic() - began) * 1000
    assert expected_ms - gone_ms - ACCURACY_MS <= told_ms <= expected_ms + ACCURACY_MS


def produce(topic: str, size: int, acks: int = 1) -> m.ProduceRequest:
    """A Produce request of about `size` bytes."""
    records = batch([bytes(size - 80)])
    part = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
    return m.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data])


def fetch(topic: str, offset: int, max_bytes: int = 50_000_000) -> m.FetchRequest:
    part = m.FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=max_bytes, current_leader_epoch=-1
    )
    wanted = m.FetchRequest.FetchTopic(topic=topic, partitions=[part])
    return m.FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, session_epoch=-1, topics=[wanted]
    )


def fetched(answer: m.FetchResponse) -> int:
    return sum(len(part.records or b"") for topic in answer.responses for part in topic.partitions)


@pytest.fixture
def client_id(asker: Asker) -> Iterator[str]:
    """A client id of its own, whose quotas are removed afterwards."""
    name = f"client-{uuid.uuid4().hex[:8]}"
    yield name
    gone: dict[str, float | None] = dict.fromkeys(
        ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
    )
    assert asker.ask(alter({"client_id": name}, **gone), 1).entries[0].error_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("version", [7, 9])
def test_a_producer_over_its_quota_is_told_how_long_to_wait_and_held_that_long(
    asker: Asker, either_broker: str, client_id: str, version: int
) -> None:
    topic = create_topic(asker)
    set_quota(asker, {"client_id": client_id}, producer_byte_rate=RATE)
    with Client(either_broker, client_id) as client, Client(either_broker, "another") as other:
        first = time.monotonic()
        assert client.ask(produce(topic, BURST // 2), version).throttle_time_ms == 0
        began = time.monotonic()
        told = client.ask(produce(topic, BURST // 2 + 2 * RATE), version).throttle_time_ms
        assert_told(told, 2000, first)
        assert client.ask(m.ApiVersionsRequest(), 0).error_code == 0
        assert time.monotonic() - began >= told / 1000
        assert other.ask(produce(topic, BURST), version).throttle_time_ms == 0


def test_connections_of_one_client_share_its_quota(asker: Asker, either_broker: str, client_id: str) -> None:
    topic = create_topic(asker)
    set_quota(asker, {"client_id": client_id}, producer_byte_rate=RATE)
    with Client(either_broker, client_id) as one, Client(either_broker, client_id) as two:
        began = time.monotonic()
        assert one.ask(produce(topic, 700_000), 9).throttle_time_ms == 0
        assert_told(two.ask(produce(topic, 500_000), 9).throttle_time_ms, 2000, began)


@pytest.mark.slow
def test_a_debt_outlives_the_connection_that_made_it(asker: Asker, either_broker: str, client_id: str) -> None:
    """A new connection is served one request, and then held for all that is left."""
    topic = create_topic(asker)
    set_quota(asker, {"client_id": client_id}, producer_byte_rate=RATE)
    began = time.monotonic()
    with Client(either_broker, client_id) as one:
        assert_told(one.ask(produce(topic, BURST + 3 * RATE), 9).throttle_time_ms, 3000, began)
    with Client(either_broker, client_id) as two:
        told = two.ask(produce(topic, 100), 9).throttle_time_ms
        asked = time.monotonic()
        assert_told(told, 3000, began)
        assert two.ask(m.ApiVersionsRequest(), 0).error_code == 0
        assert time.monotonic() - asked >= told / 1000 - 0.1


@pytest.mark.slow
def test_a_consumer_over_its_quota_gets_no_records_until_it_has_waited(
    asker: Asker, either_broker: str, client_id: str
) -> None:
    topic = create_topic(asker, settings={"max.message.bytes": "2000000"})
    for _ in range(3):
        assert asker.ask(produce(topic, 500_000), 9).responses[0].partition_responses[0].error_code == 0
    set_quota(asker, {"client_id": client_id}, consumer_byte_rate=RATE)
    with Client(either_broker, client_id) as client:
        first = client.ask(fetch(topic, 0, 950_000), 11)
        assert (first.throttle_time_ms, fetched(first)) == (0, 950_000)
        second = client.ask(fetch(topic, 1, 200_000), 11)  # a second and a half too much
        assert (fetched(second), second.responses) == (0, [])
        assert second.throttle_time_ms > 0
        asked = fetch(topic, 1, 100_000)
        eventually(lambda: fetched(client.ask(asked, 11)) >= 100_000, "the records that are paid for by then")


def test_changes_beyond_the_quota_of_mutations_are_refused_or_delay_the_client(
    asker: Asker, either_broker: str, client_id: str
) -> None:
    """The quota is 1 partition a second, of which 11 may be made at once, and a topic larger than what is left."""
    set_quota(asker, {"client_id": client_id}, controller_mutation_rate=1)
    names = [new_name() for _ in range(4)]
    topics = [m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=4, replication_factor=1) for name in names]
    began = time.monotonic()
    with Client(either_broker, client_id) as client:
        answer = client.ask(m.CreateTopicsRequest(topics=topics, timeout_ms=10_000), 6)
        codes = [each.error_code for each in answer.topics]
        assert sorted(codes) == [0, 0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        refused = next(each for each in answer.topics if each.error_code)
        assert refused.error_message in ("The throttling quota has been exceeded.", None), "KRaft has no text for it"
        assert_told(answer.throttle_time_ms, 1000, began)
    made = [each.name for each in answer.topics if not each.error_code]
    with Client(either_broker, client_id) as client:
        old = client.ask(m.DeleteTopicsRequest(topic_names=made[:2], timeout_ms=10_000), 4)
        assert [each.error_code for each in old.responses] == [0, 0]
        assert_told(old.throttle_time_ms, 9000, began)
    with Client(either_broker, client_id) as client:
        new = client.ask(m.DeleteTopicsRequest(topic_names=made[2:], timeout_ms=10_000), 5)
        assert {each.error_code for each in new.responses} == {ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    with Client(either_broker, client_id) as client:
        more = m.CreatePartitionsRequest.CreatePartitionsTopic(name=made[2], count=5, assignments=None)
        grown = client.ask(m.CreatePartitionsRequest(topics=[more], timeout_ms=10_000), 3)
        assert [each.error_code for each in grown.results] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]


def test_an_invalid_change_costs_nothing_of_the_quota(asker: Asker, either_broker: str, client_id: str) -> None:
    set_quota(asker, {"client_id": client_id}, controller_mutation_rate=1)
    bad = m.CreateTopicsRequest.CreatableTopic(name="bad/name", num_partitions=1000, replication_factor=1)
    good = m.CreateTopicsRequest.CreatableTopic(name=new_name(), num_partitions=1, replication_factor=1)
    with Client(either_broker, client_id) as client:
        answer = client.ask(m.CreateTopicsRequest(topics=[bad], timeout_ms=10_000), 6)
        assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        answer = client.ask(m.CreateTopicsRequest(topics=[good], timeout_ms=10_000), 6)
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0)


# ---- headrace alone


@pytest.fixture
def ours(shared_headrace: str) -> Iterator[Asker]:
    with Asker(shared_headrace) as connection:
        yield connection


def test_a_request_larger_than_all_that_may_be_used_at_once_is_served_and_paid_for(
    ours: Asker, shared_headrace: str
) -> None:
    topic, name = create_topic(ours), f"small-{uuid.uuid4().hex[:8]}"
    set_quota(ours, {"client_id": name}, producer_byte_rate=10, consumer_byte_rate=10)
    with Client(shared_headrace, name) as client:
        answer = client.ask(produce(topic, 100_000), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert answer.throttle_time_ms == pytest.approx(100_000 * 1000 / 10 - 10_000, abs=30_000)
    with Client(shared_headrace, name) as client:
        answer = client.ask(fetch(topic, 0), 11)
        assert (answer.throttle_time_ms, fetched(answer) > 90_000) == (0, True), "or it could never be read"
    with Client(shared_headrace, name) as client:
        assert client.ask(fetch(topic, 0), 11).throttle_time_ms > 9_000_000


def test_a_producer_without_answers_is_held(ours: Asker, shared_headrace: str) -> None:
    topic, name = create_topic(ours), f"acks0-{uuid.uuid4().hex[:8]}"
    set_quota(ours, {"client_id": name}, producer_byte_rate=RATE)
    with Client(shared_headrace, name) as client:
        began = time.monotonic()
        for _ in range(2):
            client.send(produce(topic, (BURST + RATE // 2) // 2, acks=0), 9)
        assert client.ask(m.ApiVersionsRequest(), 0).error_code == 0
        assert time.monotonic() - began >= 0.45


@pytest.mark.parametrize("acks", [1, -1])
def test_the_time_of_the_event_loop_is_limited(ours: Asker, shared_headrace: str, acks: int) -> None:
    topic, name = create_topic(ours), f"busy-{uuid.uuid4().hex[:8]}"
    set_quota(ours, {"client_id": name}, request_percentage=0.0001)
    metadata = m.MetadataRequest(topics=[])
    refused = m.FetchRequest(replica_id=-1, max_wait_ms=0, session_id=4711, session_epoch=7)
    asked = (produce(topic, 1000, acks), 9), (metadata, 9), (fetch(topic, 0), 11), (refused, 11)
    for request, version in asked:
        with Client(shared_headrace, name) as client:
            answer = client.ask(request, version)
            waits = [answer.throttle_time_ms]
        for _ in range(3):
            with Client(shared_headrace, name) as client:
                waits.append(client.ask(request, version).throttle_time_ms)
        assert waits[-1] == 1000, f"more than quota.window.size.seconds, or nothing: {waits}"


def test_a_response_without_a_throttle_time_is_sent_all_the_same(ours: Asker, shared_headrace: str) -> None:
    name = f"quorum-{uuid.uuid4().hex[:8]}"
    set_quota(ours, {"client_id": name}, request_percentage=0.0001)
    for _ in range(2):
        with Client(shared_headrace, name) as client:
            assert client.ask(m.DescribeQuorumRequest(topics=[]), 2).error_code != ErrorCode.NONE


@pytest.mark.slow
def test_the_time_of_producers_without_answers_is_limited(ours: Asker, shared_headrace: str) -> None:
    """Only the hold delays such a client: the answer to its other request comes after it."""
    topic, name = create_topic(ours), f"busy-{uuid.uuid4().hex[:8]}"
    set_quota(ours, {"client_id": name}, request_percentage=0.0001)
    with Client(shared_headrace, name) as client:
        began = time.monotonic()
        for _ in range(3):
            client.send(produce(topic, 1000, acks=0), 9)
        assert client.ask(m.ApiVersionsRequest(), 0).error_code == 0
        assert time.monotonic() - began >= 0.9


@pytest.mark.slow
def test_the_time_of_slices_is_limited(ours: Asker, shared_headrace: str) -> None:
    """An idle client may use 5 ms of the event loop; to decode so many names takes longer."""
    name = f"slices-{uuid.uuid4().hex[:8]}"
    set_quota(ours, {"client_id": name}, request_percentage=0.05)
    part = m.OffsetFetchRequest.OffsetFetchRequestTopic
    topics = [part(name=f"topic-{number}", partition_indexes=[0]) for number in range(9_000)]
    with Client(shared_headrace, name) as client:
        waits = [client.ask(m.OffsetFetchRequest(group_id=name, topics=topics), 5).throttle_time_ms for _ in range(2)]
        assert waits[-1] == 1000, waits


def test_the_smallest_quota_is_a_hold_of_a_number_of_ms(ours: Asker, shared_headrace: str) -> None:
    name = f"tiny-{uuid.uuid4().hex[:8]}"
    set_quota(ours, {"client_id": name}, controller_mutation_rate=1e-310)
    topic = m.CreateTopicsRequest.CreatableTopic(name=new_name(), num_partitions=4, replication_factor=1)
    with Client(shared_headrace, name) as client:
        answer = client.ask(m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 4)
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 2**31 - 1)


def test_a_change_of_quota_reaches_a_client_that_waits(ours: Asker, shared_headrace: str) -> None:
    """The hold that has begun goes on, as with Apache Kafka; the next request is counted by the new quota."""
    topic, name = create_topic(ours), f"changed-{uuid.uuid4().hex[:8]}"
    set_quota(ours, {"client_id": name}, producer_byte_rate=RATE)
    with Client(shared_headrace, name) as client:
        assert client.ask(produce(topic, BURST + RATE // 4), 9).throttle_time_ms == pytest.approx(250, abs=ACCURACY_MS)
        set_quota(ours, {"client_id": name}, producer_byte_rate=10 * RATE)
        assert client.ask(produce(topic, BURST), 9).throttle_time_ms == 0
        assert ours.ask(alter({"client_id": name}, producer_byte_rate=None), 1).entries[0].error_code == 0
        for _ in range(12):
            assert client.ask(produce(topic, BURST), 9).throttle_time_ms == 0
    assert rows(ours.ask(describe(("client-id", 0, name)), 1)) == []


def test_a_user_has_its_quota_whatever_its_clients_are_called(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    with Asker(server.bootstrap) as asker:
        topic = create_topic(asker)
        set_quota(asker, {"client_id": None}, producer_byte_rate=10 * RATE)
        set_quota(asker, {"user": "ANONYMOUS"}, producer_byte_rate=RATE)
    for number, expected in ((1, False), (2, True), (3, True)):
        with Client(server.bootstrap, f"client-{number}") as client:
            assert (client.ask(produce(topic, 900_000), 9).throttle_time_ms > 0) == expected
    server.stop()
    again = headrace_server(data=server.data)
    with Client(again.bootstrap, "a") as a, Client(again.bootstrap, None) as b:
        assert a.ask(produce(topic, 900_000), 9).throttle_time_ms == 0
        assert b.ask(produce(topic, 900_000), 9).throttle_time_ms > 0, "a quota outlives the broker"
