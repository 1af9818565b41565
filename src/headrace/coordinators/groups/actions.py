"""The actions of the group coordinator: its responses, and the second step of each of its writes.

`coordinators.runtime` defines the actions; this module defines their payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headrace.coordinators import runtime

if TYPE_CHECKING:
    from headrace.coordinators.groups.group import Group
    from headrace.coordinators.groups.members import Member
    from headrace.coordinators.groups.offsets import CommittedOffset
    from headrace.coordinators.groups.replies import Reply
    from headrace.types import TopicPartition


class AssignmentStored(NamedTuple):
    """The leader's assignment was written: members get it."""

    group: Group
    generation: int
    assignments: dict[str, bytes]


class StaticMemberStored(NamedTuple):
    """The new member id of a static member of a stable group was written: its JoinGroup is answered."""

    group: Group
    generation: int
    new_member_id: str
    previous: Member
    previous_leader: str
    can_skip_assignment: bool


class OffsetsStored(NamedTuple):
    """A commit was written: it takes effect and is answered. `refused` are partitions with too large metadata."""

    group: Group
    offsets: dict[TopicPartition, CommittedOffset]
    refused: frozenset[TopicPartition]
    requested: tuple[TopicPartition, ...]
    reply: Reply


class TransactionalOffsetsStored(NamedTuple):
    """A transactional commit was written: it waits for its transaction's marker, and is answered. `replaced` are the
    offsets of an earlier commit of the transaction."""

    group: Group
    producer_id: int
    offsets: dict[TopicPartition, CommittedOffset]
    replaced: dict[TopicPartition, CommittedOffset]
    refused: frozenset[TopicPartition]
    requested: tuple[TopicPartition, ...]
    reply: Reply


Then: TypeAlias = AssignmentStored | StaticMemberStored | OffsetsStored | TransactionalOffsetsStored

Action: TypeAlias = "runtime.Answer | runtime.Append[Then]"
