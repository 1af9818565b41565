"""Reconciliation: the next step of one member towards its target assignment.

    STABLE ──target changed──▶ must it give up tasks that it still has?
                                 yes ▶ UNREVOKED_TASKS in the old epoch, until a heartbeat no longer names them
                                 no  ▶ the new epoch, with the tasks that are free;
                                       STABLE, or UNRELEASED_TASKS while others still have some of them

An active task is free when no process has it as active, and this member's process has no copy of it. A standby or
warm-up task is free when this member's process has no copy of it. Source: Kafka's `CurrentAssignmentBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from headrace.coordinators.assignors.sticky_tasks import TaskSets
from headrace.coordinators.groups.streams.member import StreamsMember, StreamsMemberState
from headrace.coordinators.groups.streams.tasks import NONE_ASSIGNED, AssignedTasks, TaskEpochs, Tasks
from headrace.errors import ErrorCode, KafkaError


class Owners(Protocol):
    """Which processes have a task now, also those that are to give it up."""

    def active_process(self, subtopology_id: str, partition: int) -> str | None:
        """The process that has the task as active."""

    def has_copy(self, process_id: str, subtopology_id: str, partition: int) -> bool:
        """Whether the process has the task as standby or warm-up."""


def reconcile(
    member: StreamsMember, target_epoch: int, target: Tasks, owned: Tasks | None, owners: Owners
) -> StreamsMember:
    """The member after one step. `owned` is what its heartbeat names; None if it names nothing.

    Raises FENCED_MEMBER_EPOCH for a member whose state a later version of Kafka wrote.
    """
    match member.state:
        case StreamsMemberState.STABLE:
            if member.epoch == target_epoch:
                return member
            return _next(member, member.epoch, target_epoch, target, owned, owners)
        case StreamsMemberState.UNREVOKED_TASKS:
            if owned is None or owned.contains_any(member.revoking):
                return member
            return _next(member, member.epoch + 1, target_epoch, target, owned, owners)
        case StreamsMemberState.UNRELEASED_TASKS:
            return _next(member, member.epoch, target_epoch, target, owned, owners)
        case StreamsMemberState.UNKNOWN:
            if owned is None or owned:
                raise KafkaError(
                    "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
                    ErrorCode.FENCED_MEMBER_EPOCH,
                )
            return _next(member, target_epoch, target_epoch, target, owned, owners)


class _Difference(NamedTuple):
    """Between the assigned tasks of one role and the target."""

    kept: TaskSets
    revoked: TaskSets
    added: TaskSets
    has_unreleased: bool


def _next(
    member: StreamsMember, epoch: int, target_epoch: int, target: Tasks, owned: Tasks | None, owners: Owners
) -> StreamsMember:
    process_id, assigned = member.process_id, member.assigned

    def is_active_taken(name: str, partition: int) -> bool:
        return owners.active_process(name, partition) is not None or owners.has_copy(process_id, name, partition)

    def is_copy_taken(name: str, partition: int) -> bool:
        is_active_here = owners.active_process(name, partition) == process_id
        return is_active_here or owners.has_copy(process_id, name, partition)

    active = _difference(assigned.active, target.active, is_active_taken)
    standby = _difference(assigned.standby, target.standby, is_copy_taken)
    warmup = _difference(assigned.warmup, target.warmup, is_copy_taken)
    revoking = AssignedTasks(_epochs(active.revoked, assigned.active), standby.revoked, warmup.revoked)
    kept = AssignedTasks(_epochs(active.kept, assigned.active), standby.kept, warmup.kept)
    if revoking and (owned is None or owned.contains_any(revoking)):
        return member.moved_to(epoch)._replace(
            state=StreamsMemberState.UNREVOKED_TASKS, assigned=kept, revoking=revoking
        )
    added = AssignedTasks(
        {name: dict.fromkeys(sorted(partitions), target_epoch) for name, partitions in active.added.items()},
        standby.added,
        warmup.added,
    )
    is_waiting = active.has_unreleased or standby.has_unreleased or warmup.has_unreleased
    return member.moved_to(target_epoch)._replace(
        state=StreamsMemberState.UNRELEASED_TASKS if is_waiting else StreamsMemberState.STABLE,
        assigned=kept + added if added else kept,
        revoking=NONE_ASSIGNED,
    )


def _difference(
    assigned: Mapping[str, Mapping[int, int] | frozenset[int]], target: TaskSets, is_taken: Callable[[str, int], bool]
) -> _Difference:
    kept: dict[str, frozenset[int]] = {}
    revoked: dict[str, frozenset[int]] = {}
    added: dict[str, frozenset[int]] = {}
    has_unreleased = False
    for name in sorted(target.keys() | assigned.keys()):
        has, wants = frozenset(assigned.get(name, ())), target.get(name, frozenset())
        missing = wants - has
        free = frozenset(each for each in missing if not is_taken(name, each))
        has_unreleased |= len(free) < len(missing)
        for found, partitions in ((kept, has & wants), (revoked, has - wants), (added, free)):
            if partitions:
                found[name] = partitions
    return _Difference(kept, revoked, added, has_unreleased)


def _epochs(tasks: TaskSets, assigned: TaskEpochs) -> TaskEpochs:
    return {name: {each: assigned[name][each] for each in sorted(tasks[name])} for name in tasks}
