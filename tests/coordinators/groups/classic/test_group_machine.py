"""The group machine under anything that clients, time and the log may do, in any order.

Held at every step: each request is answered once, and one that is not yet is held by the group or by a write, with a
deadline in sight; what the group's picture says of its members; and what the log says of acknowledged commits, to a
coordinator that knows nothing else.
"""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.config import BrokerConfig
from headrace.coordinators.groups.classic.group import GroupState
from headrace.coordinators.groups.classic.joining import StaticMemberStored
from headrace.coordinators.groups.commits import OffsetsStored
from headrace.coordinators.groups.group_event import Timer, TimerKind
from headrace.errors import ErrorCode
from headrace.types import TopicPartition
from tests.coordinators.groups.scenario import GROUP, World
from tests.examples import examples

CLIENTS = st.sampled_from("ABCD")
TIMEOUTS = {"session": "6000", "rebalance": "9000"}
STATIC = {"A": None, "B": None, "C": "iC", "D": "iD"}
FAILURES = st.sampled_from(["NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT", "MESSAGE_TOO_LARGE"])


class GroupMachine(RuleBasedStateMachine):
    """Four clients, two of them static, that follow no protocol at all."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(replace(BrokerConfig(), group_max_size=3))
        self.committed: dict[TopicPartition, set[int]] = {}
        self.next_offset = 1

    def _options(self, client: str, **more: str) -> dict[str, str]:
        instance = STATIC[client]
        return more if instance is None else more | {"static": instance}

    @rule(
        client=CLIENTS, version=st.sampled_from("0389"), protocols=st.sampled_from(["range", "range,own", "own,range"])
    )
    def join(self, client: str, version: str, protocols: str) -> None:
        self.world.join(client, **self._options(client, v=version, protocols=protocols, **TIMEOUTS))

    @rule(client=CLIENTS, version=st.sampled_from("389"))
    def join_without_memory(self, client: str, version: str) -> None:
        self.world.join(client, **self._options(client, v=version, id="no", **TIMEOUTS))

    @rule(clients=st.sets(CLIENTS, min_size=1))
    def some_go_by_the_book(self, clients: set[str]) -> None:
        """Nothing but this leads to a stable group often enough."""
        for client in sorted(clients):
            self.join(client, "9", "range")
            if self.world.said[-1:] == [f"{client} join: MEMBER_ID_REQUIRED"]:
                self.join(client, "9", "range")
        for _ in range(10):
            group, due_ms = self.world.classic_group, self.world.coordinator.next_deadline_ms()
            if group is not None and group.joining and due_ms is not None:
                self.world.pass_time(due_ms)
        for client in sorted(clients):
            self.sync(client, None)

    @rule(client=CLIENTS, generation=st.none() | st.integers(0, 3))
    def sync(self, client: str, generation: int | None) -> None:
        more = {} if generation is None else {"generation": str(generation)}
        self.world.sync(client, **self._options(client, **more), **{each: each.lower() for each in self.world.ids})

    @rule(client=CLIENTS)
    def heartbeat(self, client: str) -> None:
        self.world.heartbeat(client, **self._options(client))

    @rule(client=CLIENTS)
    def leave(self, client: str) -> None:
        self.world.leave(client, **self._options(client))

    @rule(client=CLIENTS | st.just("simple"), partition=st.integers(0, 1))
    def commit(self, client: str, partition: int) -> None:
        self.next_offset += 1
        options = {} if client == "simple" else self._options(client)
        said = len(self.world.said)
        self.world.commit(client, **options, **{f"t-{partition}": str(self.next_offset)})
        if self.world.said[said:] == [f"{client} commit: ok"]:
            self.committed[TopicPartition("t", partition)] = {self.next_offset}

    @rule(by_ms=st.sampled_from([1, 1000, 3000, 5999, 6000, 20_000]))
    def time_passes(self, by_ms: int) -> None:
        self.world.pass_time(self.world.now_ms + by_ms)

    @rule()
    def the_log_is_slow(self) -> None:
        self.world.set_log("holds")

    @precondition(lambda self: self.world.mode == "holds")
    @rule(failure=st.none() | FAILURES)
    def the_log_is_done(self, failure: str | None) -> None:
        for append in self.world.held:
            if failure is None and isinstance(append.then, OffsetsStored):
                for partition, offset in append.then.offsets.items():
                    self.committed[partition] = {offset.offset}
        self.world.set_log("writes" if failure is None else "fails", failure or "NONE")
        self.world.set_log("writes")

    @precondition(lambda self: self.world.mode == "writes")
    @rule()
    def the_partition_moves_away_and_back(self) -> None:
        self.world.unload()
        assert not self.world.open_tokens, "whoever waits is told to go elsewhere"
        self.world.load()

    @invariant()
    def who_waits_is_held_and_will_be_answered(self) -> None:
        world = self.world
        group = world.classic_group
        waiting = 0 if group is None else len(group.joining) + len(group.syncing)
        writes = [each.then for each in world.held]
        assert len(world.open_tokens) == waiting + sum(isinstance(each, OffsetsStored) for each in writes)
        if group is None:
            return
        deadlines = world.coordinator._groups.deadlines
        if group.joining:
            is_written = any(isinstance(each, StaticMemberStored) for each in writes)
            assert is_written or Timer(TimerKind.JOIN, GROUP) in deadlines
        if group.syncing:
            assert group.state is GroupState.COMPLETING
            assert any(each is not None for each in writes) or Timer(TimerKind.SYNC, GROUP) in deadlines
        for member_id in group.members.keys() | group.pending:
            is_held = member_id in group.joining or member_id in group.syncing
            assert is_held or Timer(TimerKind.SESSION, GROUP, member_id) in deadlines

    @invariant()
    def nobody_is_in_two_places(self) -> None:
        group = self.world.classic_group
        if group is None:
            return
        members = group.members.keys()
        assert group.joining.keys() <= members
        assert group.syncing.keys() <= members
        assert not group.joining.keys() & group.syncing.keys()
        assert group.pending_sync <= members
        assert not group.pending & members
        assert {each: member.instance_id for each, member in group.members.items() if member.is_static} == {
            member_id: instance for instance, member_id in group.static_members.items()
        }
        assert group.leader_id is None if not members else group.leader_id in members
        assert (group.state is GroupState.EMPTY) <= (not members)
        supported = {
            name: sum(name in each.protocol_names for each in group.members.values()) for name in group._support
        }
        assert supported == dict(group._support)
        if group.pending_sync:
            assert group.state in (GroupState.COMPLETING, GroupState.STABLE)
            assert Timer(TimerKind.SYNC, GROUP) in self.world.coordinator._groups.deadlines
        timers = self.world.coordinator._groups.deadlines
        assert len(timers) <= len(members) + len(group.pending) + 3

    @invariant()
    def what_was_acknowledged_is_there_and_in_the_log(self) -> None:
        again = World(self.world.config, log=list(self.world.log))
        for coordinator in (self.world.coordinator, again.coordinator):
            error, fetched = coordinator.fetch_offsets(GROUP, list(self.committed), False)
            assert error is ErrorCode.NONE
            assert all(each.offset in self.committed[each.partition] for each in fetched)

    def teardown(self) -> None:
        """When the log works and everybody is silent, nobody waits for ever."""
        self.world.set_log("writes")
        self.world.pass_time(self.world.now_ms + 3_600_000)
        assert not self.world.open_tokens


TestGroupMachine = pytest.mark.slow(GroupMachine.TestCase)
TestGroupMachine.settings = settings(max_examples=examples(120), stateful_step_count=40, deadline=None)
