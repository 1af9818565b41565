"""The controller's decisions in any order of events: what holds after each of them, and where a reassignment ends.

The brokers are numbers, the metadata store is a dictionary, and whoever is alive catches up when the machine says so;
only the
decisions are real.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.controller.decisions.cluster_state import ClusterState
from headrace.controller.decisions.controlled_shutdown import plan_departure, remaining
from headrace.controller.decisions.elections import elect, elect_new
from headrace.controller.decisions.isr_changes import IsrChange, IsrMember, judge
from headrace.controller.decisions.leader_election import ElectionKind, electable, imbalanced, plan_election
from headrace.controller.decisions.reassignment import ReassignmentStep, finish, is_complete, plan_reassignment
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.model import Broker, PartitionLeadership, Replicas, Topic
from headrace.types import BrokerId, TopicPartition
from tests.examples import examples

BROKERS = tuple(BrokerId(number) for number in range(1, 6))
P = TopicPartition("t", 0)
EPOCH = 7
A_BROKER = st.sampled_from(BROKERS)
SOME_BROKERS = st.lists(A_BROKER, min_size=1, max_size=4, unique=True)


class OnePartition(RuleBasedStateMachine):
    """One partition of one topic on up to five brokers."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ClusterState()
        self.zxid = 10
        self.target: tuple[BrokerId, ...] = ()
        self.uncleanly = False  # what was decided last may be an unclean election
        self.seen: dict[int, BrokerId] = {}  # leader epoch -> leader

    # The metadata store and the controller epoch

    @property
    def current(self) -> PartitionLeadership:
        """The partition's state."""
        return self.state.leadership[P]

    @property
    def replicas(self) -> Replicas:
        """The partition's replicas."""
        return self.state.topics["t"].partitions[0]

    def write(self, new: PartitionLeadership) -> None:
        """As `ControllerEpoch.change` writes and knows it, with what must hold of every change."""
        before = self.state.leadership.get(P)
        if before is not None:
            assert new.partition_epoch == before.partition_epoch
            assert new.leader_epoch >= before.leader_epoch
            if new.leader != before.leader:
                assert new.leader_epoch > before.leader_epoch
                if new.has_leader and not self.uncleanly:
                    assert new.leader in before.isr
            new = new._replace(partition_epoch=new.partition_epoch + 1)
        mzxid = max((broker.epoch for broker in self.state.brokers.values()), default=0)
        self.state.leadership[P] = new._replace(mzxid=mzxid)

    def settle(self, *, unclean: bool = False) -> None:
        """What the controller does whenever a broker comes or goes."""
        self.uncleanly = unclean
        live = self.state.online(P)
        leaving = self.state.shutting_down
        new = elect(self.replicas, self.current, live, EPOCH, unclean=unclean, leaving=leaving)
        if new is not None:
            self.write(new)
        self.uncleanly = False
        self.complete()

    def complete(self) -> None:
        """What the controller does whenever an ISR has grown."""
        if is_complete(self.state, P):
            step = finish(self.state, P, EPOCH)
            if step is not None:
                self.take(step)
                assert self.replicas == Replicas(self.target)
                assert set(self.current.isr) == set(self.target)

    def take(self, step: ReassignmentStep) -> None:
        """As `ReassignmentManager` writes a step."""
        self.state.put(P, step.replicas)
        if step.leadership is not None:
            self.write(step.leadership)

    # Events

    @initialize(replicas=SOME_BROKERS)
    def make(self, replicas: list[BrokerId]) -> None:
        """Everybody is alive, and the topic is new."""
        for number in BROKERS:
            self.state.brokers[number] = Broker(number, (), None, self.zxid)
            self.zxid += 1
        self.target = tuple(replicas)
        self.state.topics["t"] = Topic("t", b"t" * 16, {0: Replicas(self.target)})
        first = elect_new(self.replicas, self.state.brokers, EPOCH)
        assert first is not None and first.isr == self.target
        self.write(first)

    @rule(broker=A_BROKER, clean=st.booleans(), noticed=st.booleans())
    def restart(self, broker: BrokerId, clean: bool, noticed: bool) -> None:
        """A broker is gone and back; the controller may have seen only that it is another one."""
        if broker in self.state.brokers and noticed:
            self.go(broker)
        others = [each for each in self.current.isr if each in self.state.brokers and each != broker]
        suspects = [each for each in others if not self.state.brokers[each].is_clean]
        self.state.shutting_down.discard(broker)
        self.state.brokers[broker] = Broker(broker, (), None, self.zxid, is_clean=clean)
        self.zxid += 1
        self.settle()
        if not clean and others and not suspects:
            assert broker not in self.current.isr

    @rule(broker=A_BROKER)
    def go(self, broker: BrokerId) -> None:
        """A broker's session ends."""
        self.state.brokers.pop(broker, None)
        self.state.shutting_down.discard(broker)
        self.state.offline_replicas.pop(broker, None)
        self.settle()
        assert broker not in self.current.isr or not self.current.has_leader

    @rule(broker=A_BROKER, fails=st.booleans())
    def disk(self, broker: BrokerId, fails: bool) -> None:
        """A log directory of a live broker fails, or works again."""
        if broker in self.state.brokers:
            self.state.offline_replicas[broker] = {P} if fails else set()
            self.settle()

    @rule(broker=A_BROKER)
    def shut_down(self, broker: BrokerId) -> None:
        """A broker asks to stop."""
        if broker not in self.state.brokers:
            return
        self.state.shutting_down.add(broker)
        departure = plan_departure(self.state, broker, EPOCH)
        for new in departure.changes.values():
            self.write(new)
        if remaining(self.state, broker):
            fit = set(self.current.isr) & self.state.online(P).keys()
            assert fit <= self.state.shutting_down
        self.settle()

    @rule(uncleanly=st.booleans())
    def ask_for_an_election(self, uncleanly: bool) -> None:
        """ElectLeaders."""
        try:
            kind = ElectionKind.UNCLEAN if uncleanly else ElectionKind.PREFERRED
            elected = plan_election(self.state, P, kind, EPOCH)
        except KafkaError as error:
            assert error.code is not ErrorCode.UNKNOWN_SERVER_ERROR
            return
        if not uncleanly:
            assert elected.leader == self.replicas.replicas[0]
        self.uncleanly = uncleanly
        self.write(elected)
        self.uncleanly = False

    @rule()
    def allow_losing_records(self) -> None:
        """`unclean.leader.election.enable` is switched on for a moment."""
        self.settle(unclean=True)
        if any(
            each in self.state.online(P) and each not in self.state.shutting_down for each in self.replicas.replicas
        ):
            assert self.current.has_leader

    @rule()
    def balance(self) -> None:
        """The controller's own preferred elections."""
        for partition in electable(self.state, imbalanced(self.state, 10)):
            self.write(plan_election(self.state, partition, ElectionKind.PREFERRED, EPOCH))
            assert self.current.leader == self.replicas.replicas[0]

    @rule(wanted=SOME_BROKERS)
    def reassign(self, wanted: list[BrokerId]) -> None:
        """AlterPartitionReassignments."""
        try:
            self.take(plan_reassignment(self.state, P, wanted, EPOCH))
        except KafkaError as error:
            assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        else:
            self.target = tuple(wanted)
            self.complete()

    @precondition(lambda self: self.replicas.is_moving)
    @rule()
    def cancel(self) -> None:
        """AlterPartitionReassignments without replicas."""
        origin = self.replicas.origin
        try:
            self.take(plan_reassignment(self.state, P, None, EPOCH))
        except KafkaError as error:
            assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        else:
            assert self.replicas == Replicas(origin)
            self.target = origin

    @rule(wanted=st.sets(A_BROKER), behind=st.integers(0, 1), told=st.booleans(), earlier=st.none() | A_BROKER)
    def alter_isr(self, wanted: set[BrokerId], behind: int, told: bool, earlier: BrokerId | None) -> None:
        """The leader asks for an ISR, perhaps with an epoch that has passed."""
        current = self.current
        isr = [current.leader, *(each for each in wanted if each != current.leader)]
        epochs = {number: broker.epoch - (number == earlier) for number, broker in self.state.brokers.items()}
        members = [IsrMember(each, epochs.get(each, 1)) if told else IsrMember(each) for each in isr]
        change = IsrChange(P, current.leader_epoch, members, current.partition_epoch - behind)
        verdict = judge(self.state, current.leader, change, EPOCH)
        fit = self.state.online(P).keys() - self.state.shutting_down - ({earlier} if told else set())
        if not current.has_leader or not set(isr[1:]) <= set(self.replicas.replicas) & fit:
            assert not verdict.is_changed
        if verdict.is_changed:
            assert verdict.state is not None
            assert behind == 0
            self.write(verdict.state)
            self.complete()

    @rule()
    def everybody_catches_up(self) -> None:
        """All are back, and in sync: then a reassignment is over, and its target is what there is."""
        for number in BROKERS:
            if number not in self.state.brokers:
                self.state.brokers[number] = Broker(number, (), None, self.zxid)
                self.zxid += 1
        self.state.offline_replicas.clear()
        self.state.shutting_down.clear()
        self.settle()
        current = self.current
        assert current.has_leader
        members = [IsrMember(each) for each in dict.fromkeys((current.leader, *self.replicas.replicas))]
        verdict = judge(
            self.state, current.leader, IsrChange(P, current.leader_epoch, members, current.partition_epoch), EPOCH
        )
        assert verdict.error is ErrorCode.NONE
        if verdict.is_changed:
            assert verdict.state is not None
            self.write(verdict.state)
        self.complete()
        assert self.replicas == Replicas(self.target)
        assert set(self.current.isr) == set(self.target)

    # What always holds

    @invariant()
    def holds(self) -> None:
        """Whoever leads is in the ISR, which is never empty and has replicas alone; somebody leads while he may."""
        if P not in self.state.leadership:
            return
        current, live = self.current, self.state.online(P)
        assert current.isr
        assert len(set(current.isr)) == len(current.isr)
        assert set(current.isr) <= set(self.replicas.replicas)
        if current.has_leader:
            assert current.leader in current.isr
            assert current.leader in live
            assert self.seen.setdefault(current.leader_epoch, current.leader) == current.leader
        else:
            fit = [each for each in current.isr if each in live and each not in self.state.shutting_down]
            assert not fit


TestOnePartition = OnePartition.TestCase
TestOnePartition.settings = settings(max_examples=examples(150), stateful_step_count=30, deadline=None)
