"""A share group and its members.

    member epoch    the epoch of the target assignment that the member has; sent back with each heartbeat
    assigned        its partitions. Others may have them too, so a member has its target at once: nobody revokes

Source: Kafka's `ShareGroup`, `ShareGroupMember`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from headrace.coordinators.assignors.assignor import NO_PARTITIONS, Partitions
from headrace.coordinators.groups.group import Committer, GroupKind
from headrace.coordinators.groups.group_event import TimerKind
from headrace.coordinators.groups.modern.modern_group import ModernGroup
from headrace.coordinators.groups.modern.writes import Writes
from headrace.coordinators.groups.share.share_topics import ShareTopics
from headrace.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.coordinators.groups.group_event import GroupEvent
    from headrace.types import TopicPartition

PROTOCOL_TYPE = "share"
STABLE = 0
"""The only state of a member."""
LEFT_EPOCH = -1


class ShareMember(NamedTuple):
    """A member of a share group."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    member_epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = NO_PARTITIONS

    @property
    def instance_id(self) -> str | None:
        """Share groups have no static members."""
        return None


class Settled(NamedTuple):
    """A state of the group in which every share partition is initialized and assigned. Heartbeats that find it need not
    look at all topics again."""

    epoch: int
    target_epoch: int
    topics_version: int
    share_topics: ShareTopics | None

    def is_still(self, other: Settled) -> bool:
        """Whether nothing has changed. The lists of topics are compared as objects, which never change."""
        return self[:3] == other[:3] and self.share_topics is other.share_topics


class ShareGroup(ModernGroup[ShareMember]):
    """A share group. Its records change it (`share.records`)."""

    kind = GroupKind.SHARE

    def __init__(self, group_id: str, partition: int) -> None:
        super().__init__(group_id, partition)
        self.share_topics: ShareTopics | None = None
        """None until the first topic is initialized."""
        self.settled: Settled | None = None
        self.is_assigning = False
        """Whether a target assignment is being computed elsewhere."""
        self.session_timeout_ms = 0
        """That of its members, as last read."""
        self.writes: Writes[ShareGroup] = Writes(self)

    def now(self, topics_version: int) -> Settled:
        """The present state, which may be settled."""
        return Settled(self.epoch, self.target_epoch, topics_version, self.share_topics)

    @property
    def state_name(self) -> str:
        return "Empty" if self.is_empty else "Stable"

    @property
    def protocol_type(self) -> str:
        return PROTOCOL_TYPE

    @property
    def can_expire(self) -> bool:
        return False

    def commit_fault(self, committer: Committer, partitions: Collection[TopicPartition]) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def delete_offsets_fault(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def unused_since(self) -> None:
        return None

    def taken_back(self, group_event: GroupEvent) -> None:
        """Sets the session time-outs anew."""
        for member_id in self.members:
            group_event.start(TimerKind.SESSION, self, self.session_timeout_ms, member_id)
