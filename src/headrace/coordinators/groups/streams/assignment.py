"""The target assignment of a streams group: when a new one is due, and how it is computed.

Source: Kafka's `TargetAssignmentBuilder` and `GroupMetadataManager.maybeUpdateStreamsTargetAssignment`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.coordinators.assignors.sticky_tasks import MemberTasks, SubtopologyTasks, TaskMember, assign_tasks
from headrace.coordinators.groups.group_event import Timer, TimerKind
from headrace.coordinators.groups.streams.configured_topology import Status, StatusDetail
from headrace.coordinators.groups.streams.records import StreamsChange, TargetChange, TargetEpochChange
from headrace.coordinators.groups.streams.settings import STANDBY_REPLICAS
from headrace.coordinators.groups.streams.tasks import NO_TASKS, Tasks
from headrace.limits import ASSIGNED_IN_PLACE_MAX

if TYPE_CHECKING:
    from headrace.coordinators.groups.group_event import GroupEvent
    from headrace.coordinators.groups.streams.configured_topology import ConfiguredTopology
    from headrace.coordinators.groups.streams.group import StreamsGroup
    from headrace.coordinators.groups.streams.member import StreamsMember


class TargetTasks(NamedTuple):
    """The target assignment that applies to a member now."""

    epoch: int
    tasks: Tasks
    changes: list[StreamsChange]
    status: StatusDetail | None = None


def target_for(
    group: StreamsGroup,
    epoch: int,
    member: StreamsMember | None,
    configured: ConfiguredTopology,
    configs: Mapping[str, str],
    assignment_interval_ms: int,
    group_event: GroupEvent,
) -> TargetTasks:
    """The target assignment of `member` at the group's new `epoch`: the present one while the next must wait, or is not
    due. Without a member, its tasks are none."""
    member_id = "" if member is None else member.member_id
    if Timer(TimerKind.INITIAL_DELAY, group.group_id) in group_event.deadlines:
        return TargetTasks(group.assignment_epoch, NO_TASKS, [], _delayed("initial rebalance delay"))
    if group.assignment_epoch >= epoch:
        return TargetTasks(group.assignment_epoch, group.target_of(member_id), [])
    is_first = group.assigned_at_ms == 0 or assignment_interval_ms == 0
    if not is_first and group_event.now_ms < group.assigned_at_ms + assignment_interval_ms:
        return TargetTasks(group.assignment_epoch, group.target_of(member_id), [], _delayed("assignment interval"))
    members = group.members if member is None else group.members | {member_id: member}
    if configured.is_ready:
        assigning = _assigning(group, epoch, members, configured, configs)
        if assigning.size > ASSIGNED_IN_PLACE_MAX:
            if not group.is_assigning:
                group.is_assigning = True
                group_event.effect(assigning)
            status = StatusDetail(Status.ASSIGNMENT_DELAYED, "The assignment of a large group is being computed.")
            return TargetTasks(group.assignment_epoch, group.target_of(member_id), [], status)
        targets = assigning.compute()
    else:
        targets = dict.fromkeys(members, NO_TASKS)
    return TargetTasks(epoch, targets.get(member_id, NO_TASKS), changes_to(group, targets, epoch, group_event.now_ms))


def changes_to(group: StreamsGroup, targets: Mapping[str, Tasks], epoch: int, now_ms: int) -> list[StreamsChange]:
    """What is new in a target assignment, and its epoch."""
    changes: list[StreamsChange] = [
        TargetChange(each, tasks) for each, tasks in targets.items() if group.targets.get(each) != tasks
    ]
    return [*changes, TargetEpochChange(epoch, now_ms)]


class AssigningTasks(NamedTuple):
    """An assignment to compute: in place, or as an effect off the event loop. `members` are in the order of their ids,
    so that every coordinator makes the same choice among equals, whatever order the records had."""

    group: StreamsGroup
    epoch: int
    members: Mapping[str, TaskMember]
    subtopologies: Sequence[SubtopologyTasks]
    standby_replicas: int

    @property
    def size(self) -> int:
        """How much there is to compute, in members and tasks."""
        copies = 1 + min(self.standby_replicas, len(self.members))
        return len(self.members) + copies * sum(each.task_count for each in self.subtopologies)

    def compute(self) -> dict[str, Tasks]:
        """The tasks of each member. It reads immutable values only."""
        assigned = assign_tasks(self.members, self.subtopologies, self.standby_replicas)
        return {each: _tasks(assigned[each]) for each in assigned}


def _assigning(
    group: StreamsGroup,
    epoch: int,
    members: Mapping[str, StreamsMember],
    configured: ConfiguredTopology,
    configs: Mapping[str, str],
) -> AssigningTasks:
    subtopologies = [
        SubtopologyTasks(each.subtopology_id, each.task_count, each.is_stateful)
        for each in configured.subtopologies.values()
    ]
    specs = {each: _spec(members[each], group.target_of(each)) for each in sorted(members)}
    return AssigningTasks(group, epoch, specs, subtopologies, int(configs.get(STANDBY_REPLICAS, "0")))


def _spec(member: StreamsMember, target: Tasks) -> TaskMember:
    return TaskMember(member.process_id, target.active, target.standby)


def _tasks(tasks: MemberTasks) -> Tasks:
    return Tasks(tasks.active, tasks.standby)


def _delayed(by: str) -> StatusDetail:
    return StatusDetail(Status.ASSIGNMENT_DELAYED, f"Assignment delayed due to the configured {by}.")
