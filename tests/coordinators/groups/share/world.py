"""A group coordinator with share groups, whose log is a list: each write ends when a test says."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.config.properties import parse_broker
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.groups.group_event import Action
from headrace.coordinators.groups.modern.topics import ModernTopic
from headrace.coordinators.groups.share.assigning import AssigningShares
from headrace.coordinators.groups.share.group import ShareGroup
from headrace.coordinators.groups.share.results import Beat, ToInitialize
from headrace.coordinators.runtime import Answer, Append
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.coordinators.groups.scenario import GivenTopics

GROUP, PARTITION = "queue", 3
T, U = b"t" * 16, b"u" * 16


def topic(name: str, partitions: int) -> ModernTopic:
    """A topic whose id is its name, sixteen times."""
    return ModernTopic(name, name.encode() * 16, tuple(() for _ in range(partitions)))


@dataclass
class World:
    """One coordinator, its log, and what it answered."""

    settings: dict[str, str] = field(default_factory=dict)
    now_ms: int = 1_000_000
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    writes: deque[Append[Any]] = field(default_factory=deque)
    holds_writes: bool = False
    initializes: bool = True
    """Whether the persister begins share partitions at once."""
    asked: list[ToInitialize] = field(default_factory=list)
    computing: list[AssigningShares] = field(default_factory=list)
    """Target assignments that are being computed elsewhere."""
    topics: GivenTopics = field(default_factory=GivenTopics)
    epochs: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topics.put(topic("t", 4), topic("u", 2))
        self.start()

    def start(self) -> None:
        """Another broker becomes the coordinator, and reads the log."""
        self.writes.clear()
        config = parse_broker({"group.share.assignment.interval.ms": "0", **self.settings})
        self.coordinator = GroupCoordinator(config, lambda _: PARTITION, lambda: "id", self.now_ms, self.topics)
        loading = self.coordinator.partitions.begin(PARTITION, 0)
        assert loading is not None
        for offset, (key, value) in enumerate(self.log):
            loading.record(key, value, offset)
        for actions in self.coordinator.loaded(loading, self.now_ms):
            self.run(actions)
        assert self.coordinator.partitions.finish(PARTITION, loading)

    @property
    def group(self) -> ShareGroup:
        """The group, as the coordinator has it."""
        group = self.coordinator._groups.get(GROUP)
        assert isinstance(group, ShareGroup)
        return group

    def run(self, actions: Iterable[Action]) -> None:
        """Executes actions. A write ends at once unless `holds_writes`."""
        for action in actions:
            if isinstance(action, Answer):
                action.reply(action.message)
            elif isinstance(action, Append):
                self.writes.append(action)
                if not self.holds_writes:
                    self.write_ends()
            else:
                assert isinstance(action.what, AssigningShares)
                self.computing.append(action.what)

    def computed(self, *, fails: bool = False) -> None:
        """The oldest assignment that is computed elsewhere is done, or has failed."""
        assigning = self.computing.pop(0)
        target = None if fails else assigning.compute()
        self.run(self.coordinator.share.assigned(assigning, target, self.now_ms))

    def write_ends(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """The oldest write ends."""
        append = self.writes.popleft()
        if error is ErrorCode.NONE:
            self.log += append.records
        if append.then is not None:
            self.run(self.coordinator.appended(append.then, error, len(self.log), self.now_ms))

    def send(self, member: str, epoch: int, *topics: str, rack: str | None = None, group: str = GROUP) -> list[Beat]:
        """Sends a heartbeat; the list gets the answer."""
        answers: list[Beat] = []
        request = m.ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            rack_id=rack,
            subscribed_topic_names=list(topics) or None,
        )
        self.run(self.coordinator.share.heartbeat(request, "client", "/host", answers.append, self.now_ms))
        for beat in answers:
            if beat.to_initialize is not None:
                self.asked.append(beat.to_initialize)
                if self.initializes:
                    done = beat.to_initialize.partitions
                    self.run(self.coordinator.share.initialized(group, done, self.now_ms))
        return answers

    def beat(self, member: str, *topics: str, epoch: int | None = None) -> m.ShareGroupHeartbeatResponse:
        """A member's heartbeat with the epoch that it was told, 0 at first; the answer."""
        given = self.epochs.get(member, 0) if epoch is None else epoch
        (beat,) = self.send(member, given, *topics)
        if beat.response.error_code == ErrorCode.NONE:
            self.epochs[member] = beat.response.member_epoch
        return beat.response

    def settle(self, *members: str) -> dict[str, dict[bytes, list[int]]]:
        """Heartbeats until nothing changes. The partitions of each member."""
        for _ in range(6):
            for each in members:
                self.beat(each)
        return {each: self.assigned(each) for each in members}

    def assigned(self, member: str) -> dict[bytes, list[int]]:
        """A member's partitions."""
        return {key: sorted(each) for key, each in self.group.members[member].assigned.items()}

    def tick(self, after_ms: int) -> None:
        """Lets time pass."""
        end_ms = self.now_ms + after_ms
        while (next_ms := self.coordinator.next_deadline_ms()) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self.run(self.coordinator.tick(self.now_ms))
        self.now_ms = end_ms
