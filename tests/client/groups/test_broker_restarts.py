"""Members of every kind go on with what they have when their coordinator is killed and comes back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Admin, Producer, ShareConsumer
from headrace.client.operations.admin import RESOURCE_GROUP
from tests.client.groups.members import Polling
from tests.eventually import eventually
from tests.harness import HeadraceServer, free_ports
from tests.peers import kafka

pytestmark = pytest.mark.slow

QUICK: dict[str, object] = {"heartbeat_interval_ms": 100, "session_timeout_ms": 6_000}
KINDS: dict[str, dict[str, object]] = {
    "eager": QUICK,
    "cooperative": {**QUICK, "partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
    "static": {"group_protocol": "consumer", "group_instance_id": "i"},
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HeadraceServer]:
    """A broker whose port stays the same."""
    (port,) = free_ports(1)
    settings = {name: value for name, value in kafka.SHARED_SETTINGS.items() if name.startswith("group.")}
    server = HeadraceServer(tmp_path / "data", settings, listen=f"127.0.0.1:{port}")
    server.start()
    yield server
    server.stop()


def test_a_coordinator_that_is_killed_and_restarted_costs_no_partition(server: HeadraceServer) -> None:
    with Admin(server.bootstrap) as admin:
        admin.create_topic("orders", 4, 1)
    members = {kind: Polling(server.bootstrap, ["orders"], group_id=kind, **how) for kind, how in KINDS.items()}
    try:
        with Producer(server.bootstrap) as producer:
            for end in (40, 80):
                for number in range(end - 40, end):
                    producer.send("orders", b"%d" % number, partition=number % 4)
                producer.flush()
                for kind, member in members.items():
                    eventually(lambda each=member, count=end: len(each.values) >= count, kind)  # type: ignore[misc]
                if end == 40:
                    server.kill()
                    server.restart()
    finally:
        for member in members.values():
            member.stop()
    for kind, member in members.items():
        assert (member.failure, member.names()[0], "lost" in member.names()) == (None, "assigned", False), kind
        assert sorted(map(int, member.values)) == list(range(80)), kind


def test_a_share_consumer_goes_on_and_nothing_that_was_accepted_comes_again(server: HeadraceServer) -> None:
    with Admin(server.bootstrap) as admin:
        admin.create_topic("orders", 1, 1)
        admin.alter_configs(RESOURCE_GROUP, "parcels", {"share.auto.offset.reset": "earliest"})
    with Producer(server.bootstrap) as producer, ShareConsumer(server.bootstrap, group_id="parcels") as consumer:
        consumer.subscribe(["orders"])
        found: list[int] = []

        def holds(end: int) -> bool:
            found.extend(int(record.value or b"") for record in consumer.poll(100))
            return len(set(found)) >= end

        for end in (10, 20):
            for number in range(end - 10, end):
                producer.send("orders", b"%d" % number)
            producer.flush()
            eventually(lambda end=end: holds(end))  # type: ignore[misc]
            assert set(consumer.commit().values()) == {None}
            if end == 10:
                server.kill()
                server.restart()
    assert sorted(found) == list(range(20))
