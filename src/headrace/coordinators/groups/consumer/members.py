"""A member of a consumer group: what it subscribes to, and what it owns. An immutable value.

    STABLE                  it owns its target assignment of its epoch
    UNREVOKED_PARTITIONS    it must give up partitions, and stays in its epoch until it has
    UNRELEASED_PARTITIONS   it is in the target's epoch, and waits for partitions that others have not given up

Source: Kafka's `ConsumerGroupMember`, `MemberState`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headrace.coordinators.assignors.assignor import TopicId

if TYPE_CHECKING:
    from headrace.coordinators.groups.classic.members import Protocols

LEAVING_EPOCH = -1
STATIC_LEAVING_EPOCH = -2
"""The epoch of a static member that has left for a while; its partitions wait for it."""
JOINING_EPOCH = 0

Owned: TypeAlias = "Mapping[TopicId, Mapping[int, int]]"
"""Partitions by topic, each with the epoch in which the member was assigned it."""

NOTHING: Owned = {}


class MemberState(IntEnum):
    """The state of a member. The values are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ClassicMember(NamedTuple):
    """What a member that speaks the classic protocol has beside."""

    session_timeout_ms: int
    protocols: Protocols


class ConsumerMember(NamedTuple):
    """One member, as `__consumer_offsets` stores it."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = NOTHING
    revoking: Owned = NOTHING
    """What it must give up."""
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    rebalance_timeout_ms: int = -1
    classic: ClassicMember | None = None

    def is_reconciled(self, target_epoch: int) -> bool:
        """Whether it owns its target assignment of that epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def assignment_epoch(self, topic_id: TopicId, partition: int) -> int | None:
        """The epoch in which it was assigned the partition; None if it does not own it."""
        for owned in (self.assigned, self.revoking):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def with_metadata_of(self, other: ConsumerMember) -> ConsumerMember:
        """This member's epochs and partitions, with the other's subscription."""
        return other._replace(
            member_id=self.member_id,
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            state=self.state,
            assigned=self.assigned,
            revoking=self.revoking,
        )

    def moved_to(self, epoch: int, state: MemberState, assigned: Owned, revoking: Owned = NOTHING) -> ConsumerMember:
        """The member after a step of its reconciliation."""
        return self._replace(epoch=epoch, previous_epoch=self.epoch, state=state, assigned=assigned, revoking=revoking)

    @property
    def metadata(self) -> tuple[object, ...]:
        """What the record of its metadata has, to be compared."""
        return self[_METADATA_FROM:]


_METADATA_FROM = ConsumerMember._fields.index("instance_id")
