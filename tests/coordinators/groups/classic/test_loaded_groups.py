"""Classic groups as a log may have them, though no coordinator wrote them so."""

import pytest

from headrace.config import BrokerConfig
from headrace.coordinators.groups.classic.group import ClassicGroup
from headrace.coordinators.groups.classic.records import write_group_key
from headrace.coordinators.groups.classic.requests import ClassicGroups
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.groups.group_event import GroupEvent, Timer, TimerKind
from headrace.coordinators.groups.records import VERSION
from headrace.coordinators.runtime import Effect
from headrace.protocol import messages as m
from tests.coordinators.groups.scenario import GivenTopics

VALUE_VERSION = 3


def test_members_with_one_instance_id_leave_one_after_the_other() -> None:
    """An exception in a deadline would take the records of all others with it."""
    value = m.GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="a",
        current_state_timestamp=0,
        members=[
            m.GroupMetadataValue.MemberMetadata(
                member_id=each,
                group_instance_id="one",
                client_id="client",
                client_host="/host",
                rebalance_timeout=1000,
                session_timeout=1000,
                subscription=b"",
                assignment=b"",
            )
            for each in "ab"
        ],
    )
    coordinator = GroupCoordinator(BrokerConfig(), lambda _: 0, lambda: "id", 0, GivenTopics())
    loading = coordinator.partitions.begin(0, 0)
    assert loading is not None
    loading.record(write_group_key("g"), VERSION.pack(VALUE_VERSION) + value.encode(VALUE_VERSION), 0)
    for actions in coordinator.loaded(loading, 0):
        assert not list(actions)
    coordinator.partitions.finish(0, loading)
    assert coordinator.tick(10_000)
    (group,) = coordinator.overview()[1]
    assert group.state == "Empty"


def test_a_deadline_that_raises_takes_nothing_from_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = GroupCoordinator(BrokerConfig(), lambda _: 0, lambda: "id", 0, GivenTopics())
    handled: list[str] = []

    def timed_out(_: ClassicGroups, group: ClassicGroup, timer: Timer, group_event: GroupEvent) -> None:
        handled.append(group.group_id)
        if group.group_id == "bad":
            raise KeyError("member")
        group_event.effect(group.group_id)

    monkeypatch.setattr(ClassicGroups, "timed_out", timed_out)
    for name in ("a", "bad", "b"):
        group = coordinator.classic.create(name, 0)
        coordinator._groups.put(group)
        coordinator._groups.deadlines.set(Timer(TimerKind.SESSION, name, "m"), 5)
    assert coordinator.tick(5) == [Effect("a"), Effect("b")]
    assert handled == ["a", "bad", "b"]
    assert "group 'bad'" in caplog.text
