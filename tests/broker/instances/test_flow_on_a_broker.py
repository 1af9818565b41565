"""The limits and the capacity of instances on one broker, for the clients that come through its listeners."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from headrace.client.core.cluster import Cluster
from headrace.client.operations.instance_admin import InstanceAdmin
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.admin_requests import create_topic
from tests.cli.conftest import run_headrace
from tests.eventually import eventually
from tests.harness import HeadraceServer, free_ports, unused
from tests.wire import batch

KIB = 1024
RATE = 200 * KIB
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.check.interval.ms": "500",
    "headrace.flow.report.ms": "200",
}

KEEPS = {"retention.ms": "-1"}
"""The records of these tests are from 1970."""


class Broker:
    """A broker, and what an operator does to its instances."""

    def __init__(self, bootstrap: str, metrics: int) -> None:
        self.bootstrap, self.metrics_port = bootstrap, metrics

    def instance(self, **fields: object) -> tuple[str, str]:
        """A new instance: its name and where its clients find it."""
        name = unused("i")
        with Cluster(self.bootstrap) as cluster:
            admin = InstanceAdmin(cluster)
            admin.create_instance(name, fields)
            return name, admin.await_listeners(name).bootstrap

    def alter(self, name: str, **fields: object) -> None:
        with Cluster(self.bootstrap) as cluster:
            InstanceAdmin(cluster).alter_instance(name, fields)

    def why(self, name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.command("instance", "why", name, "--json"))
        return found

    def command(self, *arguments: str) -> str:
        result = run_headrace(*arguments, bootstrap=self.bootstrap)
        assert result.returncode == 0, result.stderr
        return result.stdout.decode()

    def metrics(self) -> str:
        with urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics") as page:
            text: str = page.read().decode()
            return text


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    (port,) = free_ports(1)
    settings = {**SETTINGS, "headrace.metrics.listen": f"127.0.0.1:{port}"}
    server = HeadraceServer(Path(tmp_path_factory.mktemp("flow")) / "data", settings)
    server.start()
    yield Broker(server.bootstrap, port)
    server.stop()


def produce(topic: str, size: int, acks: int = 1) -> m.ProduceRequest:
    part = m.ProduceRequest.PartitionProduceData(index=0, records=batch([bytes(size - 80)]))
    data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
    return m.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data])


def fetch(topic: str, offset: int) -> m.FetchRequest:
    part = m.FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1
    )
    wanted = m.FetchRequest.FetchTopic(topic=topic, partitions=[part])
    return m.FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[wanted]
    )


def list_offsets(topic: str) -> m.ListOffsetsRequest:
    """Of partition 0, its end."""
    part = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
    return m.ListOffsetsRequest(
        replica_id=-1, topics=[m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])]
    )


def error_of(answer: m.ProduceResponse) -> m.ProduceResponse.PartitionProduceResponse:
    return answer.responses[0].partition_responses[0]


@pytest.mark.slow
@pytest.mark.parametrize("version", [7, 9], ids=["plain", "flexible"])
def test_production_is_held_to_the_limit_and_told_so(broker: Broker, version: int) -> None:
    name, address = broker.instance(bytes_in=RATE, burst_seconds=0.5)
    with Asker(address) as one, Asker(address) as other:
        create_topic(one, name="orders", settings=KEEPS)
        began, sent, told = time.monotonic(), 0, 0
        while sent < 3 * RATE:
            for asker in (one, other):
                answer = asker.ask(produce("orders", 20 * KIB), version)
                assert error_of(answer).error_code == 0
                told += answer.throttle_time_ms
                sent += 20 * KIB
        elapsed = time.monotonic() - began
    # What was sent beyond the burst took its time; the last two requests were answered before they were paid for.
    assert elapsed >= (sent - 0.5 * RATE - 40 * KIB) / RATE * 0.95
    assert told > 0
    shown = broker.why(name)
    assert shown["shared_out"]["in"]["limit"] == RATE  # type: ignore[index]
    assert dict(shown["clients"]["in"])["asker"] > 0.5  # type: ignore[index]
    assert dict(shown["partitions"]["in"])["orders-0"] > 0.5  # type: ignore[index]


@pytest.mark.parametrize("acks", [1, 0])
@pytest.mark.slow
def test_a_new_connection_for_each_produce_passes_no_more_than_the_limit(broker: Broker, acks: int) -> None:
    name, address = broker.instance(bytes_in=RATE, burst_seconds=0.5)
    with Asker(address) as asker:
        create_topic(asker, name="orders", settings=KEEPS)
        began, waiting = time.monotonic(), list[Asker]()
        for _ in range(100):
            waiting.append(Asker(address))
            waiting[-1].send(produce("orders", 20 * KIB, acks), 9)
        asked = elapsed = 0.0
        stored = 0
        while elapsed < 3.0:
            asked = time.monotonic() - began
            stored = asker.ask(list_offsets("orders"), 5).topics[0].partitions[0].offset
            elapsed = time.monotonic() - began
            assert stored * 20 * KIB <= (0.5 + elapsed) * RATE + 20 * KIB
            time.sleep(0.05)
        for each in waiting:
            each.socket.close()
    assert stored * 20 * KIB >= 0.5 * asked * RATE
    assert dict(broker.why(name)["clients"]["in"])["asker"] > 0.5  # type: ignore[index]


@pytest.mark.slow
def test_consumption_is_held_to_the_limit_and_fetches_cost_nothing_until_they_are_paid_for(broker: Broker) -> None:
    _, address = broker.instance(bytes_out=RATE, burst_seconds=0.5)
    with Asker(address) as asker:
        create_topic(asker, name="orders", settings=KEEPS)
        for _ in range(40):
            error = error_of(asker.ask(produce("orders", 20 * KIB), 9))
            assert error.error_code == 0
        began, offset, received, empty = time.monotonic(), 0, 0, 0
        while offset < 40:
            answer = asker.ask(fetch("orders", offset), 12)
            records = answer.responses[0].partitions[0].records if answer.responses else b""
            if not records:
                assert answer.throttle_time_ms > 0
                empty += 1
            received += len(records)
            offset += len(records) // (20 * KIB - 100)
        elapsed = time.monotonic() - began
    assert empty > 0
    assert elapsed >= (received - 0.5 * RATE - 20 * KIB) / RATE * 0.95


def test_metadata_and_groups_are_not_held_with_production(broker: Broker) -> None:
    _, address = broker.instance(bytes_in=10 * KIB, burst_seconds=0.1)
    with Asker(address) as producer, Asker(address) as other:
        create_topic(other, name="orders", settings=KEEPS)
        assert producer.ask(produce("orders", 200 * KIB), 9).throttle_time_ms >= 1000  # some 20 s of debt
        for _ in range(50):
            assert other.ask(m.MetadataRequest(topics=[]), 12).throttle_time_ms == 0


def test_a_higher_limit_reaches_those_who_are_held(broker: Broker) -> None:
    name, address = broker.instance(bytes_in=1 * KIB, burst_seconds=0.1)
    with Asker(address) as asker:
        create_topic(asker, name="orders", settings=KEEPS)
        asker.ask(produce("orders", 500 * KIB), 9)  # some 500 s of debt
        broker.alter(name, bytes_in=100_000 * KIB)
        assert error_of(asker.ask(produce("orders", 1 * KIB), 9)).error_code == 0


def test_a_limit_that_is_taken_away_lets_all_through_that_waits(broker: Broker) -> None:
    name, address = broker.instance(bytes_in=1 * KIB, burst_seconds=0.1)
    with Asker(address) as first, Asker(address) as second:
        create_topic(first, name="orders", settings=KEEPS)
        request = produce("orders", 500 * KIB)
        first.ask(request, 9)  # some 500 s of debt
        for each in (first, second):
            each.send(request, 9)
        broker.alter(name, bytes_in=None)
        for each in (first, second):
            answer = each.receive(request, 9)
            assert (error_of(answer).error_code, answer.throttle_time_ms) == (0, 0)


@pytest.mark.slow
def test_an_instance_without_limits_is_not_held(broker: Broker) -> None:
    name, address = broker.instance()
    with Asker(address) as asker:
        create_topic(asker, name="orders", settings=KEEPS)
        for _ in range(20):
            assert asker.ask(produce("orders", 100 * KIB), 9).throttle_time_ms == 0
    shown = broker.why(name)
    assert shown["usage"]["bytes_in_total"] > 2_000 * KIB  # type: ignore[index]


@pytest.mark.slow
def test_full_storage_refuses_production_and_lets_everything_else_through(broker: Broker) -> None:
    name, address = broker.instance(capacity=300 * KIB)
    with Asker(address) as asker:
        create_topic(asker, name="orders", settings=KEEPS)
        stored, error = 0, m.ProduceResponse.PartitionProduceResponse()
        for _ in range(60):
            error = error_of(asker.ask(produce("orders", 20 * KIB), 9))
            if not error.error_code:
                stored += 1
                continue
            usage: Any = broker.why(name)["usage"]
            if usage["is_full"] and usage["stored"] >= 300 * KIB:
                break  # also by the count of the controller
            time.sleep(0.2)  # the broker counted whole requests, which are a little longer, until it looked at the log
        assert error.error_code == ErrorCode.POLICY_VIOLATION
        assert 14 <= stored <= 16
        assert "storage of the instance is full" in str(error.error_message)
        assert f"of {300 * KIB} bytes" in str(error.error_message)
        assert error_of(asker.ask(produce("orders", 20 * KIB), 7)).error_code == ErrorCode.POLICY_VIOLATION
        answer = asker.ask(fetch("orders", stored - 1), 12)
        assert answer.responses[0].partitions[0].records
        assert "full" in broker.command("instance", "usage", name, "--once")
        said = broker.command("instance", "why", name)
        assert "production is blocked" in said and f"of {300 * KIB} bytes" in said
        assert f'headrace_instance_is_full{{instance="{name}"}} 1.0' in broker.metrics()
        _delete_records(asker, "orders", stored)
        eventually(
            lambda: error_of(asker.ask(produce("orders", 20 * KIB), 9)).error_code == 0,
            "room after records were deleted",
            every_s=0.1,
            state=lambda: broker.why(name),
        )


def test_full_storage_that_is_to_hold_producers_back_has_them_try_again(broker: Broker) -> None:
    _, address = broker.instance(capacity=50 * KIB, when_full="throttle")
    with Asker(address) as asker:
        create_topic(asker, name="orders", settings=KEEPS)
        answers = [asker.ask(produce("orders", 60 * KIB), 9) for _ in range(2)]
        assert error_of(answers[0]).error_code == 0
        assert error_of(answers[1]).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert answers[1].throttle_time_ms == 1000


def test_deleted_topics_free_the_storage(broker: Broker) -> None:
    name, address = broker.instance(capacity=100 * KIB)
    with Asker(address) as asker:
        create_topic(asker, name="old", settings=KEEPS)
        assert error_of(asker.ask(produce("old", 110 * KIB), 9)).error_code == 0
        create_topic(asker, name="new", settings=KEEPS)
        assert error_of(asker.ask(produce("new", 20 * KIB), 9)).error_code == ErrorCode.POLICY_VIOLATION
        asker.ask(m.DeleteTopicsRequest(topic_names=["old"], timeout_ms=10_000), 5)
        eventually(
            lambda: error_of(asker.ask(produce("new", 20 * KIB), 9)).error_code == 0,
            "room after a topic was deleted",
            every_s=0.1,
            state=lambda: broker.why(name),
        )


def test_the_metrics_have_each_instance(broker: Broker) -> None:
    name, address = broker.instance(bytes_in=RATE, bytes_out=RATE, capacity=1 << 30)
    with Asker(address) as asker:
        create_topic(asker, name="orders", settings=KEEPS)
        asker.ask(produce("orders", 20 * KIB), 9)
    page = broker.metrics()
    assert f'headrace_instance_limit_bytes_per_second{{direction="out",instance="{name}"}} {float(RATE)}' in page
    assert f'headrace_instance_bytes_total{{direction="in",instance="{name}"}}' in page
    assert f'headrace_instance_capacity_bytes{{instance="{name}"}}' in page


def _delete_records(asker: Asker, topic: str, offset: int) -> None:
    part = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    wanted = m.DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[part])
    answer = asker.ask(m.DeleteRecordsRequest(topics=[wanted], timeout_ms=10_000), 2)
    assert answer.topics[0].partitions[0].error_code == 0
