"""Sets of tasks: what a member should run (`Tasks`), and what it was given (`AssignedTasks`).

    active     processes records, and writes state stores
    standby    follows changelogs, to take over a state store quickly
    warm-up    follows changelogs until it has caught up (no assignor of Kafka 4.3 gives one)

An assigned active task carries the member epoch at which it was assigned: a commit of an older epoch is refused.
Sources: Kafka's `TasksTuple` and `TasksTupleWithEpochs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from headrace.coordinators.assignors.sticky_tasks import TaskSets

TaskEpochs: TypeAlias = Mapping[str, Mapping[int, int]]
"""Active tasks: subtopology id -> partition -> the epoch at which it was assigned."""


_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


class TaskIds(Protocol):
    """The tasks of one subtopology in a message or record."""

    subtopology_id: str
    partitions: list[int]


class Tasks(NamedTuple):
    """Tasks without epochs: a target assignment, or what a member says that it owns."""

    active: TaskSets = _NONE
    standby: TaskSets = _NONE
    warmup: TaskSets = _NONE

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def contains_any(self, other: AssignedTasks) -> bool:
        """Whether a task of `other` is here in the same role."""
        return (
            _overlap(self.active, other.active)
            or _overlap(self.standby, other.standby)
            or _overlap(self.warmup, other.warmup)
        )


class AssignedTasks(NamedTuple):
    """Tasks that a member was given."""

    active: TaskEpochs = _NONE
    standby: TaskSets = _NONE
    warmup: TaskSets = _NONE

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def __add__(self, other: object) -> AssignedTasks:
        """The tasks of both; an epoch of `other` wins."""
        if not isinstance(other, AssignedTasks):
            return NotImplemented
        active = {name: dict(epochs) for name, epochs in self.active.items()}
        for name, epochs in other.active.items():
            active.setdefault(name, {}).update(epochs)
        return AssignedTasks(active, _union(self.standby, other.standby), _union(self.warmup, other.warmup))


NO_TASKS = Tasks()
NONE_ASSIGNED = AssignedTasks()


def task_sets(listed: Iterable[TaskIds]) -> TaskSets:
    """The tasks of a message or record; the last entry of a subtopology counts."""
    return {each.subtopology_id: frozenset(each.partitions) for each in listed}


def sorted_tasks(tasks: Mapping[str, Iterable[int]]) -> list[tuple[str, list[int]]]:
    """(subtopology id, partitions), both ascending, as messages and records have them."""
    return [(name, sorted(tasks[name])) for name in sorted(tasks)]


def _overlap(some: TaskSets, others: Mapping[str, Iterable[int]]) -> bool:
    return any(not partitions.isdisjoint(others.get(name, ())) for name, partitions in some.items())


def _union(some: TaskSets, others: TaskSets) -> TaskSets:
    merged = dict(some)
    for name, partitions in others.items():
        merged[name] = merged.get(name, frozenset()) | partitions
    return merged
