"""Consumer groups under members that come, go and fall silent, writes that fail, and coordinators that change.

No partition is owned by two members at one time; the state is what a replay of the log gives; and when all is well
again, every partition is owned.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.coordinators.groups.consumer.group import ConsumerGroup
from headrace.errors import ErrorCode
from tests.coordinators.groups.consumer.consumers import Consumer, World, beat_all, state_of, topic
from tests.examples import examples

NAMES = st.sampled_from(["a", "b", "c", "d"])
FAILURES = st.sampled_from(
    [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE]
)


class ConsumerMachine(RuleBasedStateMachine):
    """Four consumers, one of them static, one with a regular expression."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.consumers = {
            "a": Consumer(self.world, "a"),
            "b": Consumer(self.world, "b", topics=("t", "u")),
            "c": Consumer(self.world, "c", instance_id="one"),
            "d": Consumer(self.world, "d", topics=(), regex=".*"),
        }

    @rule(name=NAMES)
    def joins(self, name: str) -> None:
        self.consumers[name].join()

    @rule(name=NAMES)
    def beats(self, name: str) -> None:
        if self.consumers[name].epoch > 0:
            self.consumers[name].beat()

    @rule(name=NAMES)
    def leaves(self, name: str) -> None:
        consumer = self.consumers[name]
        if consumer.epoch > 0:
            consumer.leave(-2 if consumer.instance_id and self.world.now_ms % 2 else -1)

    @rule(name=NAMES, is_quiet=st.booleans())
    def keeps_its_partitions(self, name: str, is_quiet: bool) -> None:
        self.consumers[name].is_quiet = is_quiet

    @rule(ms=st.sampled_from([1, 3_000, 20_000]))
    def time_passes(self, ms: int) -> None:
        self.world.pass_time(ms)

    @rule()
    def threads_are_done(self) -> None:
        self.world.compute()

    @rule(partitions=st.integers(1, 5))
    def topics_change(self, partitions: int) -> None:
        self.world.topics.put(topic("u", partitions))
        self.world.run(self.world.coordinator.topics_changed({"u"}, self.world.now_ms))

    @precondition(lambda self: not self.world.holds)
    @rule()
    def the_log_is_slow(self) -> None:
        self.world.holds = True

    @precondition(lambda self: self.world.held)
    @rule(error=FAILURES)
    def one_write_ends(self, error: ErrorCode) -> None:
        self.world.end(self.world.held.pop(0), error)

    @rule(name=NAMES, error=FAILURES)
    def a_write_fails(self, name: str, error: ErrorCode) -> None:
        """Nothing but this leads to failed writes often enough."""
        consumer = self.consumers[name]
        self.world.holds = True
        if consumer.epoch > 0:
            consumer.leave()
        else:
            consumer.join()
        self.world.settle(error)

    @rule(error=FAILURES)
    def every_write_ends(self, error: ErrorCode) -> None:
        self.world.settle(error)

    @rule()
    def the_coordinator_changes(self) -> None:
        self.world.fail_over()

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        group = self.world.coordinator._groups.get("g")
        if not isinstance(group, ConsumerGroup):
            return
        owned = [
            (topic_id, number)
            for member in group.members.values()
            for each in (member.assigned, member.revoking)
            for topic_id, numbers in each.items()
            for number in numbers
        ]
        assert len(owned) == len(set(owned))

    @invariant()
    def a_replay_gives_the_same(self) -> None:
        group = self.world.coordinator._groups.get("g")
        if self.world.held or not isinstance(group, ConsumerGroup):
            return
        replayed = World(log=list(self.world.log)).coordinator._groups.get("g")
        if replayed is None:
            assert group.is_empty, "a group whose every write has failed"
        else:
            assert isinstance(replayed, ConsumerGroup)
            assert state_of(group) == state_of(replayed)

    def teardown(self) -> None:
        """When the log works and everybody speaks, every partition is read."""
        self.world.settle()
        self.world.pass_time(100_000)
        for each in self.consumers.values():
            each.is_quiet = False
        beat_all(self.consumers.values(), 12)
        owned = [
            (topic_id, number)
            for each in self.consumers.values()
            for topic_id, numbers in each.owned.items()
            for number in numbers
        ]
        assert len(owned) == len(set(owned))
        found = [self.world.topics.by_name(each) for each in self.world.topics.names()]
        expected = sum(each.partition_count for each in found if each is not None)
        assert len(owned) == expected
        assert self.world.describe().group_state == "Stable"


TestConsumerMachine = ConsumerMachine.TestCase
TestConsumerMachine.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
