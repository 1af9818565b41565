"""The short way of a heartbeat that tells nothing new answers, and does, what the long way would."""

import random
from typing import Any

import pytest

from headrace.coordinators.groups.consumer import heartbeat as heartbeats
from headrace.coordinators.groups.consumer import requests
from headrace.coordinators.groups.modern.writes import EventChange
from headrace.errors import ErrorCode
from tests.coordinators.groups.consumer.consumers import Consumer, World, beat_all, topic


class Checked:
    """The short way; whenever it answers, the long way is gone too."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self._world, self.taken = world, 0
        monkeypatch.setattr(requests, "steady_heartbeat", self)

    def __call__(self, groups: Any, group: Any, request: Any, client: Any, group_event: Any) -> Any:
        timers = dict(group_event.deadlines._at_ms)
        response = heartbeats.steady_heartbeat(groups, group, request, client, group_event)
        assert not group_event.actions
        if response is None:
            assert group_event.deadlines._at_ms == timers
            return None
        self.taken += 1
        timers = dict(group_event.deadlines._at_ms)
        change = EventChange(group)
        self._world.coordinator.consumer._check(request, 1)
        assert heartbeats.heartbeat(groups, group, request, client, change, group_event) == response
        assert not change.records
        assert not group_event.actions
        assert group_event.deadlines._at_ms == timers
        return response


@pytest.mark.parametrize("seed", range(6))
def test_the_short_way_does_what_the_long_way_does(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, world = random.Random(seed), World()
    checked = Checked(world, monkeypatch)
    consumers = [Consumer(world, "a"), Consumer(world, "b", topics=("t", "u")), Consumer(world, "c", instance_id="one")]
    if seed % 3 == 2:
        consumers.append(Consumer(world, "d", topics=(), regex=".*"))
    more: list[dict[str, Any]] = [
        {"rack_id": "r"},
        {"instance_id": "two"},
        {"rebalance_timeout_ms": 9},
        {"server_assignor": "range"},
        {"subscribed_topic_names": ["u"]},
        {"subscribed_topic_regex": ""},
        {"topic_partitions": []},
    ]

    def step(each: Consumer) -> None:
        roll = chance.random()
        if each.epoch <= 0:
            each.join()
        elif roll < 0.6:
            each.nod()
        elif roll < 0.65:
            each.nod(**chance.choice(more))
        elif roll < 0.7:
            each.nod(each.epoch + chance.choice((-1, 1)))
        elif roll < 0.73:
            each.leave(-2 if each.instance_id else -1)
        elif roll < 0.83:
            beat_all(consumers, 3)
        else:
            each.beat()

    for _ in range(300):
        step(chance.choice(consumers))
        roll = chance.random()
        if roll < 0.3:
            world.pass_time(chance.choice((1, 500, 3_000, 20_000)))
        elif roll < 0.34:
            world.topics.put(topic("u", chance.randrange(1, 6)))
            world.run(world.coordinator.topics_changed({"u"}, world.now_ms))
        elif roll < 0.38:
            world.holds = True
        elif roll < 0.5:
            world.settle(chance.choice((ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS)))
        elif roll < 0.52 and not world.held:
            world.fail_over()
        elif roll < 0.7:
            world.compute()
    assert seed % 3 == 2 or checked.taken > 10, "the short way was not gone"


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_its_answer_waits_for_the_write_in_flight(monkeypatch: pytest.MonkeyPatch, error: ErrorCode) -> None:
    """As that of each heartbeat does: what it tells rests on what is not stored yet."""
    world = World()
    checked = Checked(world, monkeypatch)
    consumer = Consumer(world, "a")
    consumer.join()
    beat_all([consumer])
    world.pass_time(2_000)
    world.holds, before = True, checked.taken
    assert consumer.nod(rack_id="r") is None
    assert consumer.nod() is None
    assert checked.taken == before + 1
    world.settle(error)
    expected = ErrorCode.NONE if error is ErrorCode.NONE else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [each.error_code for each in world.answers] == [expected, expected]
    assert consumer.nod().error_code == 0
