"""The sticky assignor of streams groups: active and standby tasks of a Kafka Streams application.

    active     to the member that ran the task; else to one that had it as standby; else to the least loaded process
    standby    of stateful tasks, to other processes than the active one: to the member that ran it, to one that had it
               as standby, else to the least loaded process that does not have it
    quota      a member keeps what it had while it has fewer tasks than its share

A process is one instance of the application; its members are its threads. Its load is its tasks per member. Two copies
of one task are never in one process, so with too few processes there are fewer standby tasks than configured.
Warm-up tasks are not assigned, as in Kafka 4.3. Source: Kafka's `StickyTaskAssignor` and `ProcessState`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from headrace.coordinators.assignors.load_queue import LoadQueue

TaskSets: TypeAlias = Mapping[str, frozenset[int]]
"""Tasks: subtopology id -> partitions."""


class TaskId(NamedTuple):
    """One task: a subtopology over one partition of its source topics."""

    subtopology_id: str
    partition: int


class SubtopologyTasks(NamedTuple):
    """The tasks of one subtopology: 0 to `task_count` - 1."""

    subtopology_id: str
    task_count: int
    is_stateful: bool


class TaskMember(NamedTuple):
    """A member, with the tasks of its current target assignment."""

    process_id: str
    active: TaskSets
    standby: TaskSets


class MemberTasks(NamedTuple):
    """The tasks of one member."""

    active: TaskSets
    standby: TaskSets


def assign_tasks(
    members: Mapping[str, TaskMember], subtopologies: Sequence[SubtopologyTasks], standby_replicas: int
) -> dict[str, MemberTasks]:
    """The tasks of each member. Without members nothing is assigned. Among equals the first in `members` wins."""
    assignment = _Assignment(members, subtopologies, standby_replicas)
    if members:
        assignment.assign_active()
        if standby_replicas > 0:
            assignment.assign_standby()
    return {
        member_id: MemberTasks(
            _by_subtopology(assignment.active[member_id]), _by_subtopology(assignment.standby[member_id])
        )
        for member_id in members
    }


@dataclass(slots=True, eq=False)
class _Process:
    """One instance of the application: its members with their task counts."""

    counts: dict[str, int] = field(default_factory=dict)
    tasks: set[TaskId] = field(default_factory=set)
    task_count: int = 0
    load: float = 0.0
    _queue: LoadQueue[str] | None = None

    def add(self, member_id: str, task: TaskId) -> int:
        """Gives a task to a member; returns how many tasks the member has now."""
        self._queue = None
        return self._add(member_id, task)

    def add_to_least_loaded(self, task: TaskId) -> tuple[str, int]:
        """Gives a task to the member with the fewest; returns the member and how many it has now."""
        if self._queue is None:
            self._queue = LoadQueue(self.counts, self.counts.__getitem__)
        member_id = self._queue.take()
        count = self._add(member_id, task)
        self._queue.add(member_id)
        return member_id, count

    def _add(self, member_id: str, task: TaskId) -> int:
        self.task_count += 1
        self.tasks.add(task)
        count = self.counts[member_id] = self.counts[member_id] + 1
        self.load = self.task_count / len(self.counts)
        return count


@dataclass(slots=True)
class _Quota:
    """The share of one member in the tasks that are left: it shrinks when a member has got its share."""

    tasks: int
    members: int

    @property
    def per_member(self) -> int:
        return -(-self.tasks // self.members) if self.members else 0

    def counted(self, task_count: int) -> None:
        """A member has `task_count` tasks now; one that has its share leaves the calculation."""
        if task_count == self.per_member:
            self.members -= 1
            self.tasks -= task_count


_Member = tuple[_Process, str]


class _Assignment:
    """One run of the assignor."""

    def __init__(
        self, members: Mapping[str, TaskMember], subtopologies: Sequence[SubtopologyTasks], standby_replicas: int
    ) -> None:
        self._subtopologies, self._standby_replicas = subtopologies, standby_replicas
        active_count = sum(each.task_count for each in subtopologies)
        standby_count = sum(each.task_count for each in subtopologies if each.is_stateful) * standby_replicas
        self._active_quota = _Quota(active_count, len(members))
        self._quota = _Quota(active_count + standby_count, len(members))
        self.active: dict[str, set[TaskId]] = {member_id: set() for member_id in members}
        self.standby: dict[str, set[TaskId]] = {member_id: set() for member_id in members}
        self._processes: dict[str, _Process] = {}
        self._had_active: dict[TaskId, _Member] = {}
        self._had_standby: dict[TaskId, list[_Member]] = {}
        for member_id, member in members.items():
            process = self._processes.setdefault(member.process_id, _Process())
            process.counts[member_id] = 0
            for task in _tasks_in(member.active):
                self._had_active[task] = process, member_id
            for task in _tasks_in(member.standby):
                self._had_standby.setdefault(task, []).append((process, member_id))

    def assign_active(self) -> None:
        """Gives each task to one member."""
        tasks = self._tasks(needs_state=False)
        tasks.sort(key=_by_partition)  # tasks of one partition number go together, as the source topics' records do
        tasks = [task for task in tasks if not self._keep_active(task, self._had_active.get(task))]
        tasks = [
            task for task in tasks if not self._keep_active(task, _least_loaded(self._had_standby.get(task), None))
        ]
        tasks.sort()
        processes = self._by_load()
        for task in tasks:
            process = processes.take()
            member_id, count = process.add_to_least_loaded(task)
            self.active[member_id].add(task)
            self._active_counted(count)
            processes.add(process)

    def _keep_active(self, task: TaskId, previous: _Member | None) -> bool:
        if previous is None:
            return False
        process, member_id = previous
        if process.counts[member_id] >= self._active_quota.per_member:
            return False
        self.active[member_id].add(task)
        self._active_counted(process.add(member_id, task))
        return True

    def _active_counted(self, count: int) -> None:
        self._active_quota.counted(count)
        self._quota.counted(count)

    def assign_standby(self) -> None:
        """Gives each stateful task to `standby_replicas` further processes, as far as there are any."""
        tasks = self._tasks(needs_state=True)
        tasks.sort(key=_by_partition, reverse=True)
        remaining: list[tuple[TaskId, int]] = []
        for task in tasks:
            for count in range(self._standby_replicas):
                if not (
                    self._keep_standby(task, self._had_active.get(task))
                    or self._keep_standby(task, _least_loaded(self._had_standby.get(task), task))
                ):
                    remaining.append((task, self._standby_replicas - count))
                    break
        remaining.sort(reverse=True)
        processes = self._by_load()
        for task, count in remaining:
            for _ in range(min(count, len(processes))):
                if not self._add_standby(task, processes):
                    break

    def _keep_standby(self, task: TaskId, previous: _Member | None) -> bool:
        if previous is None:
            return False
        process, member_id = previous
        if task in process.tasks or process.counts[member_id] >= self._quota.per_member:
            return False
        self.standby[member_id].add(task)
        self._quota.counted(process.add(member_id, task))
        return True

    def _add_standby(self, task: TaskId, processes: LoadQueue[_Process]) -> bool:
        """Gives the task to the least loaded process that does not have it; False if every process has it."""
        passed: list[_Process] = []
        found = False
        while not found and processes:
            process = processes.take()
            passed.append(process)
            if task not in process.tasks:
                member_id, count = process.add_to_least_loaded(task)
                self.standby[member_id].add(task)
                self._quota.counted(count)
                found = True
        for process in reversed(passed):  # the order in which Kafka's recursion puts them back
            processes.add(process)
        return found

    def _tasks(self, *, needs_state: bool) -> list[TaskId]:
        return [
            TaskId(each.subtopology_id, partition)
            for each in self._subtopologies
            if each.is_stateful or not needs_state
            for partition in range(each.task_count)
        ]

    def _by_load(self) -> LoadQueue[_Process]:
        return LoadQueue(self._processes.values(), attrgetter("load"))


def _least_loaded(members: list[_Member] | None, task: TaskId | None) -> _Member | None:
    """The one of these members, all of which had the task, in the least loaded process; None if that process has the
    task (`task` is None before it can have it)."""
    if not members:
        return None
    first_process, _ = candidate = members[0]
    process_load, member_load = first_process.load, first_process.counts[candidate[1]]
    for each in members[1:]:
        process, member_id = each
        if (
            process.load < process_load
            and (task is None or task not in process.tasks)
            and process.counts[member_id] < member_load
        ):
            process_load, member_load, candidate = process.load, process.counts[member_id], each
    # Kafka checks the first member's process here, not the candidate's; a task then waits for the last step.
    return None if task is not None and task in first_process.tasks else candidate


def _by_partition(task: TaskId) -> tuple[int, str]:
    return task.partition, task.subtopology_id


def _tasks_in(tasks: TaskSets) -> list[TaskId]:
    return [TaskId(subtopology_id, each) for subtopology_id, partitions in tasks.items() for each in partitions]


def _by_subtopology(tasks: set[TaskId]) -> TaskSets:
    found: dict[str, set[int]] = {}
    for task in tasks:
        found.setdefault(task.subtopology_id, set()).add(task.partition)
    return {subtopology_id: frozenset(found[subtopology_id]) for subtopology_id in sorted(found)}
