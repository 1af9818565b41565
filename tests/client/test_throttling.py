"""A client that a broker asks for a pause (KIP-219) leaves it alone for that time, and delivers afterwards."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace import Admin, Consumer, Producer, TopicPartition
from headrace.client.core.cluster import Cluster
from headrace.client.core.connection import Connection, Pending
from headrace.client.operations.quota_admin import QuotaAdmin
from headrace.protocol import messages as m
from headrace.testing import Broker
from tests.eventually import collected

RATE = 13_500.0
"""Over ten seconds; three records of 50 kB exceed it by little."""


@pytest.fixture
def left_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How much of a pause was left when each Produce and Fetch was sent."""
    found: list[float] = []
    until_s = 0.0
    send: Callable[..., Any] = Connection.send
    result: Callable[..., Any] = Pending.result

    def sent(self: Connection, request: Any, *others: Any) -> Any:
        if isinstance(request, m.ProduceRequest) or (isinstance(request, m.FetchRequest) and request.topics):
            found.append(max(0.0, until_s - time.monotonic()))
        return send(self, request, *others)

    def answered(self: Pending[Any]) -> Any:
        nonlocal until_s
        answer = result(self)
        if isinstance(answer, m.ProduceResponse | m.FetchResponse):
            until_s = time.monotonic() + answer.throttle_time_ms / 1000
        return answer

    monkeypatch.setattr(Connection, "send", sent)
    monkeypatch.setattr(Pending, "result", answered)
    return found


def test_nothing_is_sent_during_a_pause(left_s: list[float]) -> None:
    with Broker() as broker, Admin(broker.bootstrap) as admin, Cluster(broker.bootstrap) as cluster:
        admin.create_topic("t", 1, 1)
        QuotaAdmin(cluster).alter_quotas(
            {"client-id": "slow"}, {"producer_byte_rate": RATE, "consumer_byte_rate": RATE}
        )
        with Producer(broker.bootstrap, client_id="slow", linger_ms=0) as producer:
            for _ in range(3):
                producer.send("t", bytes(50_000)).result(30)
            producer.send("t", b"after the pause").result(30)
            throttled_ms = producer.metrics()["producer-metrics"]["produce-throttle-time-max"]
        with Consumer(
            broker.bootstrap, client_id="slow", auto_offset_reset="earliest", max_partition_fetch_bytes=60_000
        ) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert len(collected(lambda _: consumer.poll(1_000), 4)) == 4
            fetch_throttled_ms = consumer.metrics()["consumer-fetch-manager-metrics"]["fetch-throttle-time-max"]
    assert throttled_ms > 100 and fetch_throttled_ms > 100
    assert len(left_s) >= 7 and max(left_s) < 0.02, left_s
