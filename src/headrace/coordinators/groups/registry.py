"""The groups of one broker, of every kind, and what all requests to them share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from headrace.coordinators.deadlines import Deadlines
from headrace.coordinators.groups.group_event import GroupEvent, Timer
from headrace.coordinators.prefixes import prefix_of
from headrace.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.config import BrokerConfig
    from headrace.coordinators.groups.group import Group
    from headrace.coordinators.groups.loading import GroupLoading
    from headrace.coordinators.groups.modern.topics import Topics
    from headrace.coordinators.runtime import OwnedPartitions


GroupNumber: TypeAlias = "Callable[[str, str], int]"
"""The value of a group's config that is a whole number, by group id and name."""


class Groups:
    """The groups whose partition of `__consumer_offsets` this broker leads."""

    __slots__ = (
        "_groups",
        "_in_prefixes",
        "config",
        "deadlines",
        "get",
        "new_id",
        "number",
        "partition_for",
        "partitions",
        "topics",
    )

    def __init__(
        self,
        config: BrokerConfig,
        partitions: OwnedPartitions[GroupLoading],
        topics: Topics,
        *,
        partition_for: Callable[[str], int],
        new_id: Callable[[], str],
        number: GroupNumber | None = None,
    ) -> None:
        """`partition_for` maps a group to its partition of `__consumer_offsets`. `new_id` returns the random part of a
        member id: a UUID as Java prints it. `number` is the value of a group's config; the broker's without."""
        self.config, self.partitions, self.topics = config, partitions, topics
        self.partition_for, self.new_id = partition_for, new_id
        self.number = number or partial(_broker_number, config)
        self.deadlines: Deadlines[Timer] = Deadlines()
        self._groups: dict[str, Group] = {}
        self.get: Callable[[str], Group | None] = self._groups.get
        self._in_prefixes: dict[str, dict[str, None]] = {}

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def __getitem__(self, group_id: str) -> Group:
        return self._groups[group_id]

    def put(self, group: Group) -> None:
        """Adds a group, in place of an earlier one of its id."""
        if group.group_id not in self._groups:
            self._in_prefixes.setdefault(prefix_of(group.group_id), {})[group.group_id] = None
        self._groups[group.group_id] = group

    def remove(self, group: Group) -> None:
        """Removes a group, unless another one took its place."""
        if self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]
            prefix = prefix_of(group.group_id)
            del self._in_prefixes[prefix][group.group_id]
            if not self._in_prefixes[prefix]:
                del self._in_prefixes[prefix]

    def count(self, prefix: str) -> int:
        """The number of groups whose ids have this before their first dot, and the dot."""
        return len(self._in_prefixes.get(prefix, ()))

    def with_prefix(self, prefix: str) -> list[Group]:
        """These groups."""
        return [self._groups[each] for each in self._in_prefixes.get(prefix, ())]

    def event(self, now_ms: int) -> GroupEvent:
        return GroupEvent(now_ms, self.config, self.deadlines)

    def unavailable(self, group_id: str, *, needs_name: bool = True) -> ErrorCode:
        """The error code of a group that this broker cannot serve; NONE if it can."""
        if needs_name and not group_id:
            return ErrorCode.INVALID_GROUP_ID  # only offsets are allowed without a group id: old tools commit so
        if group_id in self._groups:  # spares every heartbeat the hash; all groups here are served
            return ErrorCode.NONE
        return self.partitions.availability(self.partition_for(group_id))


def _broker_number(config: BrokerConfig, _group_id: str, name: str) -> int:
    """The value of a config for groups that do not set it."""
    from headrace.config import BROKER_SETTINGS
    from headrace.config.group_configs import GROUP_SETTINGS

    value = getattr(config, BROKER_SETTINGS[GROUP_SETTINGS[name].broker_name][0])
    assert isinstance(value, int)
    return value
