"""A member of a streams group: one thread of a Kafka Streams application. An immutable value.

    STABLE            has its target assignment
    UNREVOKED_TASKS   must give up tasks before it moves to the next epoch
    UNRELEASED_TASKS  has the epoch of the target assignment, and waits for tasks that others have not given up yet

Source: Kafka's `StreamsGroupMember`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from headrace.coordinators.groups.streams.tasks import NONE_ASSIGNED, AssignedTasks


class StreamsMemberState(IntEnum):
    """A member's state, with its number in records."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127  # written by a later version of Kafka


class UserEndpoint(NamedTuple):
    """Where the member's process answers interactive queries: the application's `application.server`."""

    host: str
    port: int


class StreamsMember(NamedTuple):
    """A member: what it said about itself, then its epochs and tasks."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: UserEndpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()  # sorted by key
    epoch: int = 0
    previous_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
    assigned: AssignedTasks = NONE_ASSIGNED
    revoking: AssignedTasks = NONE_ASSIGNED
    """Tasks that the member must give up."""

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has its tasks of the target assignment of this epoch."""
        return self.state is StreamsMemberState.STABLE and self.epoch == epoch

    def moved_to(self, epoch: int) -> StreamsMember:
        """The member in another epoch; the present one becomes the previous."""
        return self._replace(epoch=epoch, previous_epoch=self.epoch)
