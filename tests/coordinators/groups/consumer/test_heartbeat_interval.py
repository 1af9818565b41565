"""How soon a member is to heartbeat again: soon while its group rebalances, and after the interval else."""

from headrace.config import BrokerConfig
from headrace.coordinators.groups.consumer.steady import SETTLING_HEARTBEAT_MS
from tests.coordinators.groups.consumer.consumers import Consumer, World

USUAL_MS = 5000
INTERVAL_MS = 1000
CONFIG = BrokerConfig(consumer_group_assignment_interval_ms=INTERVAL_MS)


def test_a_member_of_a_settled_group_heartbeats_after_the_interval() -> None:
    world = World()
    alone = Consumer(world, "a")
    assert alone.join().heartbeat_interval_ms == SETTLING_HEARTBEAT_MS
    world.now_ms += SETTLING_HEARTBEAT_MS
    assert alone.beat().heartbeat_interval_ms == USUAL_MS


def test_members_hear_soon_while_they_wait_for_the_assignment_or_for_each_other() -> None:
    world = World(CONFIG, now_ms=10_000)
    first, second = Consumer(world, "a"), Consumer(world, "b")
    first.join()
    assert second.join().heartbeat_interval_ms == SETTLING_HEARTBEAT_MS  # no assignment is computed yet
    world.now_ms += INTERVAL_MS
    assert second.beat().heartbeat_interval_ms == SETTLING_HEARTBEAT_MS
    assert second.partitions() == []  # the first one has not given up any
    world.now_ms += SETTLING_HEARTBEAT_MS
    assert second.beat().heartbeat_interval_ms == SETTLING_HEARTBEAT_MS
    assert first.beat().heartbeat_interval_ms == SETTLING_HEARTBEAT_MS  # is to give up two
    assert first.beat().heartbeat_interval_ms == USUAL_MS
    assert second.beat().heartbeat_interval_ms == USUAL_MS
    assert (first.partitions(), second.partitions()) == ([0, 1], [2, 3])


def test_a_shorter_interval_is_left_as_it_is() -> None:
    world = World(BrokerConfig(consumer_group_heartbeat_interval_ms=200))
    assert Consumer(world, "a").join().heartbeat_interval_ms == 200
