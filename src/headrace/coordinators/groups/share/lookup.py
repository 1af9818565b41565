"""Share groups by their ids: what all requests to them begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.coordinators.groups.share.group import ShareGroup
from headrace.coordinators.groups.share.results import RequestRefused
from headrace.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.coordinators.groups.registry import Groups


class ShareGroupLookup:
    """The share groups among all groups of a coordinator."""

    __slots__ = ("_groups",)

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def _group(self, group_id: str, *, creates: bool) -> ShareGroup:
        group = self._groups.get(group_id)
        if group is None:
            if not creates:
                raise RequestRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
            return ShareGroup(group_id, self._groups.partition_for(group_id))
        if not isinstance(group, ShareGroup):
            raise RequestRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        return group

    def _existing(self, group_id: str) -> ShareGroup:
        error = self._groups.unavailable(group_id)
        if error is not ErrorCode.NONE:
            raise RequestRefused(error)
        group = self._groups.get(group_id)
        if group is None:
            raise RequestRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return self._group(group_id, creates=False)

    def _number(self, group_id: str, name: str) -> int:
        """A group's config."""
        return self._groups.number(group_id, name)
