"""A coordinator with consumer groups, its log, and consumers that follow the protocol as Kafka's own do."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from typing import Any

from headrace.config import BrokerConfig
from headrace.coordinators.groups.consumer.assigning import Assigning, ToAssign
from headrace.coordinators.groups.consumer.group import ConsumerGroup
from headrace.coordinators.groups.consumer.heartbeat import RequestClient, Resolving
from headrace.coordinators.groups.consumer.regular_expressions import resolve
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.groups.group_event import Actions
from headrace.coordinators.groups.modern.topics import ModernTopic
from headrace.coordinators.runtime import Answer, Append, Effect
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.coordinators.groups.scenario import GivenTopics

GROUP = "g"
PARTITION = 0
CONFIG = BrokerConfig(consumer_group_assignment_interval_ms=0)

Owned = dict[bytes, list[int]]


def topic(name: str, partitions: int, generation: int = 0) -> ModernTopic:
    """A topic whose id follows from its name."""
    topic_id = blake2b(name.encode() + bytes([generation]), digest_size=16).digest()
    return ModernTopic(name, topic_id, ((),) * partitions)


@dataclass
class World:
    """One coordinator. Writes are done at once unless the log `holds` them; `failure` is what they end with."""

    config: BrokerConfig = CONFIG
    topics: GivenTopics = field(default_factory=lambda: GivenTopics(topic("t", 4)))
    now_ms: int = 0
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    holds: bool = False
    failure: ErrorCode = ErrorCode.NONE
    held: list[Append[Any]] = field(default_factory=list)
    effects: list[object] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ids = count(1)
        self.coordinator = self.make()

    def make(self) -> GroupCoordinator:
        """A coordinator that has read the log."""
        coordinator = GroupCoordinator(
            self.config, lambda _: PARTITION, lambda: f"{next(self._ids):032x}", self.now_ms, self.topics
        )
        loading = coordinator.partitions.begin(PARTITION, 0)
        assert loading is not None
        for offset, (key, value) in enumerate(self.log):
            loading.record(key, value, offset)
        for actions in coordinator.loaded(loading, self.now_ms):
            assert not list(actions)
        assert coordinator.partitions.finish(PARTITION, loading)
        return coordinator

    def fail_over(self) -> None:
        """Another broker takes the partition; what is being written is lost."""
        self.coordinator.partitions.release(PARTITION)
        self.run(self.coordinator.unloaded(PARTITION, self.now_ms))
        late, self.held = self.held, []
        for append in late:
            self.end(append, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.coordinator = self.make()

    @property
    def group(self) -> ConsumerGroup:
        """The group as the coordinator has it."""
        group = self.coordinator._groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def run(self, actions: Actions) -> None:
        """As the runtime does: in order, a write that is done at once leads to more at the end."""
        queue = list(actions)
        while queue:
            action = queue.pop(0)
            if isinstance(action, Answer):
                action.reply(action.message)
            elif isinstance(action, Effect):
                self.effects.append(action.what)
            elif self.holds:
                self.held.append(action)
            else:
                queue += self._ended(action, self.failure)

    def end(self, append: Append[Any], error: ErrorCode = ErrorCode.NONE) -> None:
        """A write that was held ends."""
        self.run(self._ended(append, error))

    def _ended(self, append: Append[Any], error: ErrorCode) -> Actions:
        if error in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
            self.log += append.records
        if append.then is None:
            return []
        return self.coordinator.appended(append.then, error, len(self.log), self.now_ms)

    def settle(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Every held write ends so, and the log is quick again."""
        self.holds = False
        while self.held:
            self.end(self.held.pop(0), error)

    def compute(self) -> None:
        """Every effect is performed."""
        while self.effects:
            match self.effects.pop(0):
                case ToAssign() as to_assign:
                    self._assign(to_assign.prepare())
                case Assigning() as assigning:
                    self._assign(assigning)
                case Resolving() as resolving:
                    found = resolve(resolving.regexes, list(self.topics.names()))
                    self.run(self.coordinator.consumer.resolved(resolving, found, self.now_ms))

    def _assign(self, assigning: Assigning) -> None:
        self.run(self.coordinator.consumer.assigned(assigning, assigning.compute(), self.now_ms))

    def pass_time(self, ms: int) -> None:
        """Every deadline on the way, each at its time."""
        until_ms = self.now_ms + ms
        while (due_ms := self.coordinator.next_deadline_ms()) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.run(self.coordinator.tick(self.now_ms))
        self.now_ms = until_ms

    def ask(self, request: m.ConsumerGroupHeartbeatRequest, version: int = 1) -> Any:
        """A heartbeat, and its answer; None while it waits."""
        self.answers.clear()
        client = RequestClient("client", "/127.0.0.1", lambda _: True)
        self.run(self.coordinator.consumer.heartbeat(request, version, client, self.answers.append, self.now_ms))
        return self.answers[0] if self.answers else None

    def describe(self) -> m.ConsumerGroupDescribeResponse.DescribedGroup:
        """ConsumerGroupDescribe of the group."""
        return self.coordinator.consumer.describe(GROUP)


@dataclass
class Consumer:
    """A member that gives up what it must as soon as it is told, and says so with its next heartbeat."""

    world: World
    member_id: str
    topics: tuple[str, ...] = ("t",)
    regex: str | None = None
    instance_id: str | None = None
    rebalance_ms: int = 60_000
    epoch: int = 0
    owned: Owned = field(default_factory=dict)
    error: ErrorCode = ErrorCode.NONE
    is_quiet: bool = False
    """Whether it keeps what it must give up."""

    def join(self, **more: Any) -> Any:
        """The first heartbeat."""
        self.epoch, self.owned = 0, {}
        return self._hear(
            m.ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self.member_id,
                instance_id=self.instance_id,
                rebalance_timeout_ms=self.rebalance_ms,
                subscribed_topic_names=list(self.topics),
                subscribed_topic_regex=self.regex,
                topic_partitions=[],
                **more,
            )
        )

    def beat(self, **more: Any) -> Any:
        """A heartbeat, with what it owns."""
        owned = [
            m.ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=each, partitions=numbers)
            for each, numbers in self.owned.items()
        ]
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            topic_partitions=owned,
            **more,
        )
        return self._hear(request)

    def nod(self, epoch: int | None = None, **more: Any) -> Any:
        """A heartbeat that says that it is there, and nothing else, as a client's do while nothing changes."""
        epoch = self.epoch if epoch is None else epoch
        return self._hear(
            m.ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=self.member_id, member_epoch=epoch, **more)
        )

    def leave(self, epoch: int = -1) -> Any:
        """Leaves, for a while with epoch -2."""
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        return self._hear(request)

    def partitions(self, name: str = "t") -> list[int]:
        """What it owns of a topic."""
        found = self.world.topics.by_name(name)
        return [] if found is None else sorted(self.owned.get(found.topic_id, []))

    def _hear(self, request: m.ConsumerGroupHeartbeatRequest) -> Any:
        answer = self.world.ask(request)
        if answer is None:
            return None
        self.error = ErrorCode(answer.error_code)
        if self.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned = 0, {}
        if self.error is ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if self.epoch < 0:
                self.owned = {}
            if answer.assignment is not None and not self.is_quiet:
                self.owned = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        return answer


def beat_all(consumers: Iterable[Consumer], rounds: int = 6) -> None:
    """Rounds of heartbeats; who was removed joins again."""
    consumers = list(consumers)
    for _ in range(rounds):
        for each in consumers:
            each.world.now_ms += 1
            if each.epoch > 0:
                each.beat()
            if each.epoch <= 0:
                each.join()
            each.world.compute()


def state_of(group: ConsumerGroup) -> object:
    """What a replay of the log must give."""
    return (
        group.epoch,
        group.metadata_hash,
        group.target_epoch,
        group.target_timestamp_ms,
        {name: dict(target) for name, target in group.target.items()},
        dict(group.members),
        dict(group.static_members),
        {name: each.topics for name, each in group.resolved.items()},
        set(group.subscriptions),
        {each: group.owner(*each) for each in _partitions(group)},
        group.classic_members,
    )


def _partitions(group: ConsumerGroup) -> list[tuple[bytes, int]]:
    return sorted(
        (topic_id, number)
        for member in group.members.values()
        for owned in (member.assigned, member.revoking)
        for topic_id, numbers in owned.items()
        for number in numbers
    )
