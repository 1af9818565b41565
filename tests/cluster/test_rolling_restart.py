"""Brokers are restarted one after the other while a producer writes under acks=all: the part of the fault grid in which
nothing may even pause. A follower that stops holds nothing back, and leaders are elsewhere before they stop."""

import time

import pytest

from tests.cluster.local_cluster import LocalCluster
from tests.cluster.verifying import VerifyingProducer, verify

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

PARTITIONS = 6
PAUSE_MAX_S = 2.0
"""0.5 s on a quiet machine; a stopped follower that is waited for costs `replica.lag.time.max.ms`, 4 s here."""


@pytest.mark.parametrize("is_idempotent", [True, False], ids=["idempotent", "plain"])
def test_no_partition_pauses_while_each_broker_is_restarted(cluster: LocalCluster, is_idempotent: bool) -> None:
    topic = f"rolled-{is_idempotent}-{time.monotonic_ns()}"
    cluster.create_topic(topic, PARTITIONS, 3)
    pauses: dict[int, float] = {}
    with VerifyingProducer(
        cluster.bootstrap, topic, partitions=PARTITIONS, per_second=600, is_idempotent=is_idempotent
    ) as producer:
        producer.wait_for(600)
        controller = cluster.controller()
        for broker in sorted(cluster.brokers, key=lambda each: (each == controller, each)):
            began = time.monotonic()
            assert cluster.brokers[broker].stop() == 0
            producer.wait_for(300)
            cluster.brokers[broker].restart()
            cluster.wait_until_ready()
            producer.wait_for(300)
            pauses[broker] = producer.longest_silence(began)
            print(f"broker {broker}{' (controller)' if broker == controller else ''}: {pauses[broker]:.2f} s")
    assert not producer.failed, f"{len(producer.failed)} values failed: {next(iter(producer.failed.values()))}"
    report = verify(cluster.bootstrap, topic, producer)
    assert not report.faults(), f"{report.faults()}\n{cluster.logs()}"
    assert max(pauses.values()) < PAUSE_MAX_S, pauses
