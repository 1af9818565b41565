"""A group of real clients moves to the consumer protocol and back, one member after the other."""

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import StartHeadrace
from tests.eventually import eventually

pytestmark = pytest.mark.slow  # processes of its own

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_is_upgraded_and_downgraded_under_its_members(headrace_server: StartHeadrace, strategy: str) -> None:
    server = headrace_server(settings=SETTINGS)
    topic = "migrated"
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, 2)])[topic].result(30)
    settings = {"bootstrap.servers": server.bootstrap, "group.id": "group"}
    classic = {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 200}
    old = [Consumer({**settings, **classic}) for _ in range(2)]
    new = Consumer({**settings, "group.protocol": "consumer"})

    def share(members: list[Consumer], partitions: list[int]) -> None:
        """Waits until the members own so many partitions each, and none twice."""

        def is_shared() -> bool:
            for each in members:
                each.poll(0.05)
            owned = [each.assignment() for each in members]
            numbers = [partition.partition for each in owned for partition in each]
            return len(set(numbers)) == len(numbers) and sorted(map(len, owned)) == partitions

        eventually(is_shared, f"{partitions} partitions for {len(members)} members")

    old[0].subscribe([topic])
    share(old[:1], [2])
    new.subscribe([topic])
    share([old[0], new], [1, 1])
    old[1].subscribe([topic])
    share([old[0], new, old[1]], [0, 1, 1])
    new.close()
    share(old, [1, 1])
    for each in old:
        each.close()
