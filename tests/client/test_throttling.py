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
from tests.eventually import WITHIN_SECONDS, collected, eventually

RATE = 13_500.0
"""Over ten seconds; three records of 50 kB, one soon after the other, exceed it by little."""
TOLD_MS = 100


@pytest.fixture
def left_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How much of a pause was left when each Produce and Fetch was sent."""
    found: list[float] = []
    sent_s: list[tuple[Pending[Any], float]] = []
    until_s = 0.0
    send: Callable[..., Any] = Connection.send
    result: Callable[..., Any] = Pending.result

    def sent(self: Connection, request: Any, *others: Any) -> Any:
        now = time.monotonic()
        if isinstance(request, m.ProduceRequest) or (isinstance(request, m.FetchRequest) and request.topics):
            found.append(max(0.0, until_s - now))
        pending = send(self, request, *others)
        sent_s.append((pending, now))
        return pending

    def answered(self: Pending[Any]) -> Any:
        """A pause begins when its answer is there: no earlier than its request was sent."""
        nonlocal until_s
        answer = result(self)
        if isinstance(answer, m.ProduceResponse | m.FetchResponse):
            began_s = next(when for pending, when in sent_s if pending is self)
            until_s = max(until_s, began_s + answer.throttle_time_ms / 1000)
        return answer

    monkeypatch.setattr(Connection, "send", sent)
    monkeypatch.setattr(Pending, "result", answered)
    return found


@pytest.mark.slow
def test_nothing_is_sent_during_a_pause(left_s: list[float]) -> None:
    with Broker() as broker, Admin(broker.bootstrap) as admin, Cluster(broker.bootstrap) as cluster:
        admin.create_topic("t", 1, 1)
        QuotaAdmin(cluster).alter_quotas(
            {"client-id": "slow"}, {"producer_byte_rate": RATE, "consumer_byte_rate": RATE}
        )
        with Producer(broker.bootstrap, client_id="slow", linger_ms=0) as producer:
            sent = 0

            def is_held_back() -> bool:
                nonlocal sent
                producer.send("t", bytes(50_000)).result(WITHIN_SECONDS)
                sent += 1
                return producer.metrics()["producer-metrics"]["produce-throttle-time-max"] > TOLD_MS

            eventually(is_held_back, "a pause of the producer")
            producer.send("t", b"after the pause").result(WITHIN_SECONDS)
        with Consumer(
            broker.bootstrap, client_id="slow", auto_offset_reset="earliest", max_partition_fetch_bytes=60_000
        ) as consumer:
            consumer.assign([TopicPartition("t", 0)])

            def is_told_to_wait() -> bool:
                consumer.seek_to_beginning()
                assert len(collected(lambda _: consumer.poll(1_000), sent + 1)) == sent + 1
                return consumer.metrics()["consumer-fetch-manager-metrics"]["fetch-throttle-time-max"] > TOLD_MS

            eventually(is_told_to_wait, "a pause of the consumer")
    assert len(left_s) >= 7 and max(left_s) < 0.02, left_s
