"""What the group machine decides: values that the broker's shell carries out, in order.

    Answer(reply, message)                   send this response now
    Append(partition, records, then)         write to __consumer_offsets with acks=all; when that is done or has
                                             failed, hand `then` back to `GroupCoordinator.appended`

The second step of a write is a value, not a closure, so that a test can read it and a log can print it.
A `Reply` is the caller's own token: the machine keeps it and gives it back, once, and never calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from headrace.groups.group import Group
    from headrace.groups.members import Member
    from headrace.groups.offsets import CommittedOffset
    from headrace.protocol import messages as m
    from headrace.types import TopicPartition

Response: TypeAlias = "m.JoinGroupResponse | m.SyncGroupResponse | m.OffsetCommitResponse"
Reply: TypeAlias = "Callable[[Response], None]"
KeyValue: TypeAlias = tuple[bytes, bytes | None]


class Answer(NamedTuple):
    """One request's response."""

    reply: Reply
    message: Response


class AssignmentStored(NamedTuple):
    """The leader's assignment, which members get once it is written."""

    group: Group
    generation: int
    assignments: dict[str, bytes]


class StaticMemberStored(NamedTuple):
    """A static member came back under a new member id into a stable group; it is told once that is written."""

    group: Group
    generation: int
    new_member_id: str
    previous: Member
    previous_leader: str
    can_skip_assignment: bool


class OffsetsStored(NamedTuple):
    """A commit, which counts and is answered once it is written; `refused` were too large to be tried."""

    group: Group
    offsets: dict[TopicPartition, CommittedOffset]
    refused: frozenset[TopicPartition]
    requested: tuple[TopicPartition, ...]
    reply: Reply


Then: TypeAlias = AssignmentStored | StaticMemberStored | OffsetsStored


class Append(NamedTuple):
    """One batch for one partition of __consumer_offsets. Nobody waits for it when `then` is None."""

    partition: int
    records: tuple[KeyValue, ...]
    timestamp_ms: int
    then: Then | None = None


Action: TypeAlias = Answer | Append
