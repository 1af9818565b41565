"""A streams group: its members, its topology, and the assignment of its tasks.

    Empty ──join──▶ NotReady ──topics exist──▶ Assigning ──target──▶ Reconciling ──all members──▶ Stable
              a member, topic or setting changes: Assigning (NotReady if a topic is missing); the last one leaves: Empty

    epoch              grows with each change of members, topics or settings
    assignment_epoch   the epoch whose target assignment is the present one; below `epoch` a new one is due
    member.epoch       the assignment epoch that the member has reached

Everything above `configured` is in the log; `records` changes it. The rest is lost with the broker, as in Apache Kafka.
Source: Kafka's `StreamsGroup`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.coordinators.groups.group import Committer, Group, GroupKind, GroupOverview, UsedSince
from headrace.coordinators.groups.offsets import GroupOffsets
from headrace.coordinators.groups.streams.tasks import NO_TASKS, Tasks
from headrace.coordinators.groups.streams.waiting import WaitingWrites
from headrace.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.coordinators.groups.streams.configured_topology import ConfiguredTopology
    from headrace.coordinators.groups.streams.endpoints import EndpointPartitions
    from headrace.coordinators.groups.streams.member import StreamsMember
    from headrace.coordinators.groups.streams.topology import Topology
    from headrace.types import TopicPartition

PROTOCOL_TYPE = "streams"
FIRST_EPOCH = 1
NOT_VALIDATED = -1
COMMITS_WITH_EPOCH_FROM = 9
"""The version of OffsetCommit that carries member epochs."""

_Task = tuple[str, int]


@dataclass(slots=True, eq=False)
class StreamsGroup(Group):
    """A streams group's whole state. Only the functions of this package change it."""

    kind: ClassVar[GroupKind] = GroupKind.STREAMS

    group_id: str
    partition: int  # of __consumer_offsets
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    validated_topology_epoch: int = 0
    """The epoch of the topology whose topics all exist; `NOT_VALIDATED` while some do not."""
    assignment_configs: dict[str, str] = field(default_factory=dict)
    assignment_epoch: int = FIRST_EPOCH
    assigned_at_ms: int = 0
    topology: Topology | None = None
    members: dict[str, StreamsMember] = field(default_factory=dict)
    targets: dict[str, Tasks] = field(default_factory=dict)

    configured: ConfiguredTopology | None = None
    topics_version: int | None = None
    """The version of the cluster's topics for which `configured` was computed."""
    shutdown_requested_by: str | None = None
    endpoint_epoch: int = 0
    endpoints: dict[str, EndpointPartitions] = field(default_factory=dict)
    """The partitions of each member with an endpoint, kept until its tasks change."""
    is_assigning: bool = False
    """Whether a target assignment is being computed off the event loop."""
    writes: WaitingWrites = field(default_factory=WaitingWrites)

    _active: dict[_Task, str] = field(default_factory=dict)
    _standby: dict[_Task, set[str]] = field(default_factory=dict)
    _warmup: dict[_Task, set[str]] = field(default_factory=dict)
    _readers: dict[str, str] = field(default_factory=dict)

    # Members and their tasks

    def put_member(self, member: StreamsMember) -> None:
        """Adds a member, or replaces it."""
        self._disown(self.members.get(member.member_id))
        self.members[member.member_id] = member
        for tasks in (member.assigned, member.revoking):
            for task in _each(tasks.active):
                self._active[task] = member.process_id
            for owners, copies in ((self._standby, tasks.standby), (self._warmup, tasks.warmup)):
                for task in _each(copies):
                    owners.setdefault(task, set()).add(member.process_id)
        self.endpoints.pop(member.member_id, None)

    def remove_member(self, member_id: str) -> None:
        """Removes a member, if there is one of this id."""
        self._disown(self.members.pop(member_id, None))
        self.endpoints.pop(member_id, None)
        if not self.members:
            self.shutdown_requested_by = None

    def _disown(self, member: StreamsMember | None) -> None:
        if member is None:
            return
        for tasks in (member.assigned, member.revoking):
            for task in _each(tasks.active):
                if self._active.get(task) == member.process_id:  # else it went to another process already
                    del self._active[task]
            for owners, copies in ((self._standby, tasks.standby), (self._warmup, tasks.warmup)):
                for task in _each(copies):
                    processes = owners.get(task)
                    if processes is not None:
                        processes.discard(member.process_id)
                        if not processes:
                            del owners[task]

    def active_process(self, subtopology_id: str, partition: int) -> str | None:
        """The process that has the task as active, or is to give it up."""
        return self._active.get((subtopology_id, partition))

    def has_copy(self, process_id: str, subtopology_id: str, partition: int) -> bool:
        """Whether the process has the task as standby or warm-up."""
        task = subtopology_id, partition
        return process_id in self._standby.get(task, ()) or process_id in self._warmup.get(task, ())

    def target_of(self, member_id: str) -> Tasks:
        """The member's part of the target assignment."""
        return self.targets.get(member_id, NO_TASKS)

    def put_topology(self, topology: Topology | None) -> None:
        """Replaces the topology."""
        self.topology, self.configured, self.topics_version = topology, None, None
        self._readers = {} if topology is None else topology.readers()

    # What every kind of group answers

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> str:
        """Kafka's name of the state. It looks at every member, so it is not for heartbeats."""
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return "NotReady"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(each.is_reconciled_to(self.assignment_epoch) for each in self.members.values()):
            return "Stable"
        return "Reconciling"

    def overview(self) -> GroupOverview:
        return GroupOverview(self.group_id, PROTOCOL_TYPE, self.state, self.kind)

    def is_subscribed(self, topic: str) -> bool:
        return bool(self.members) and topic in self._readers

    def commit_fault(self, committer: Committer, partitions: Collection[TopicPartition]) -> ErrorCode:
        """A member commits with its epoch, or with an older one in which it was given the tasks of the partitions: the
        answer to a heartbeat may be under way when it commits."""
        if committer.epoch < 0 and not self.members:
            return ErrorCode.NONE  # a tool
        if committer.is_transactional and committer.is_nameless:
            return ErrorCode.NONE
        member = self.members.get(committer.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not committer.is_transactional and committer.api_version < COMMITS_WITH_EPOCH_FROM:
            return ErrorCode.UNSUPPORTED_VERSION
        if committer.epoch == member.epoch:
            return ErrorCode.NONE
        is_stale = committer.epoch > member.epoch or not all(
            self._was_given(member, each, committer.epoch) for each in partitions
        )
        return ErrorCode.STALE_MEMBER_EPOCH if is_stale else ErrorCode.NONE

    def _was_given(self, member: StreamsMember, partition: TopicPartition, epoch: int) -> bool:
        """Whether the member has the partition's task as active since this epoch or an earlier one."""
        subtopology_id = self._readers.get(partition.topic, "")
        epochs = (
            tasks.active.get(subtopology_id, {}).get(partition.partition)
            for tasks in (member.assigned, member.revoking)
        )
        assigned_in = next((each for each in epochs if each is not None), None)
        return assigned_in is not None and epoch >= assigned_in

    def fetch_fault(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_epoch == member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def unused_since(self) -> UsedSince | None:
        return lambda offset: offset.commit_timestamp_ms


def _each(tasks: Mapping[str, Iterable[int]]) -> list[_Task]:
    """(subtopology id, partition) of tasks in either form."""
    return [(name, each) for name, partitions in tasks.items() for each in partitions]
