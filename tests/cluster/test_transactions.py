"""Transactions in a cluster: every broker coordinates some transactional ids.

Their partitions are led by all brokers, and the coordinators of their group offsets are other brokers.
"""

import time
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as ConfluentProducer

from headrace.client import Producer, ProducerSettings
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headrace.types import TopicPartition as Partition
from tests.asker import Asker
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.transactional_clients import WAIT_S, committed_offset, keys_by_leader, read_committed
from tests.eventually import eventually

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

PARTITIONS = 3


@pytest.fixture
def topic(cluster: LocalCluster) -> Iterator[str]:
    """A topic with a partition on each broker, in a cluster that has both internal topics."""
    name = f"transfers-{time.monotonic_ns()}"
    cluster.create_topic(name, PARTITIONS, 3)
    with Asker(cluster.brokers[1].bootstrap) as asker:
        for kind in (0, 1):
            ask = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"])
            eventually(partial(_is_found, asker, ask), "coordinators", within_s=WAIT_S)
    cluster.wait_until_ready()
    with Asker(cluster.brokers[cluster.controller()].bootstrap) as asker:
        elect = m.ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=int(WAIT_S * 1000))
        assert asker.ask(elect, 2).error_code == 0
    yield name


def _is_found(asker: Asker, ask: m.FindCoordinatorRequest) -> bool:
    return bool(asker.ask(ask, 4).coordinators[0].error_code == ErrorCode.NONE)


def test_all_brokers_announce_transaction_version_2(cluster: LocalCluster) -> None:
    for number in cluster.brokers:
        with Asker(cluster.brokers[number].bootstrap) as asker:
            ask = m.ApiVersionsRequest(client_software_name="asker", client_software_version="1")
            features = {each.name: each.max_version_level for each in asker.ask(ask, 4).finalized_features}
        assert features["transaction.version"] == 2, number


def test_clients_commit_and_abort_across_brokers(cluster: LocalCluster, topic: str) -> None:
    view = cluster.view()
    assert {each.leader for each in view.topics[topic].partitions} == set(cluster.brokers)
    coordinators = keys_by_leader(view, TRANSACTIONS_TOPIC, f"{topic}-id")
    groups = keys_by_leader(view, OFFSETS_TOPIC, f"{topic}-group")
    assert set(coordinators) == set(groups) == set(cluster.brokers)
    written: list[str] = []
    for number, transactional_id in coordinators.items():
        group = groups[number % len(groups) + 1]  # another broker coordinates it
        with Producer(cluster.bootstrap, ProducerSettings(transactional_id=transactional_id)) as ours:
            ours.init_transactions()
            for outcome in ("commit", "abort", "commit"):
                ours.begin()
                for partition in range(PARTITIONS):
                    ours.send(topic, f"ours {number} {outcome}".encode(), partition=partition)
                ours.send_offsets({Partition(topic, 0): 5 if outcome == "commit" else 99}, group)
                ours.commit() if outcome == "commit" else ours.abort()
        assert committed_offset(cluster.bootstrap, group, topic) == 5
        theirs = ConfluentProducer({"bootstrap.servers": cluster.bootstrap, "transactional.id": transactional_id})
        member = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
        theirs.init_transactions(WAIT_S)
        for outcome in ("commit", "abort", "commit"):
            theirs.begin_transaction()
            for partition in range(PARTITIONS):
                theirs.produce(topic, f"theirs {number} {outcome}".encode(), partition=partition)
            offsets = [TopicPartition(topic, 0, 7 if outcome == "commit" else 99)]
            theirs.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), WAIT_S)
            theirs.commit_transaction(WAIT_S) if outcome == "commit" else theirs.abort_transaction(WAIT_S)
        member.close()
        assert committed_offset(cluster.bootstrap, group, topic) == 7
        written += [f"{client} {number} commit" for client in ("ours", "theirs") for _ in range(2)]
    found = read_committed(cluster.bootstrap, topic, PARTITIONS)
    assert found == dict.fromkeys(range(PARTITIONS), written)
