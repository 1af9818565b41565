"""What a kind of groups does beside its requests: it reads its records, and follows the life of its groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from headrace.coordinators.groups.group import Group
    from headrace.coordinators.groups.group_event import GroupEvent, Timer
    from headrace.coordinators.runtime import KeyValue
    from headrace.errors import ErrorCode

G = TypeVar("G", bound="Group", contravariant=True)


class GroupsOfKind(Protocol[G]):
    """The part of a kind that the coordinator calls for its groups."""

    def tombstones(self, group: G) -> list[KeyValue]:
        """The tombstones of all records of a group, except those of its offsets."""

    def loaded(self, group: G, group_event: GroupEvent) -> None:
        """Begins to serve a group that was loaded."""

    def unload(self, group: G, error: ErrorCode, group_event: GroupEvent) -> None:
        """Answers all open requests of a group that this broker no longer serves or that is deleted, and cancels its
        deadlines."""

    def timed_out(self, group: G, timer: Timer, group_event: GroupEvent) -> None:
        """Handles a deadline that has passed."""
