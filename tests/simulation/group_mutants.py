"""Deliberate bugs in consumer groups, put into the running code for a test, as those in `mutants.py`.

partitions are not waited for   a member is assigned partitions that another one has not given up
sessions are not extended       a member's session ends although it heartbeats
a partition is left out         the target assignment lacks one partition
released ones are not taken     a member that waits for partitions never gets them
epochs are forgotten            the epochs of a loaded group start again
offsets are not kept            a member's commit is acknowledged, and forgotten
tasks are not waited for        a thread of Kafka Streams is assigned tasks that another one has not given up
epochs of threads are forgotten the epochs of a loaded streams group start again
"""

import pytest

from headrace.coordinators.deadlines import Deadlines
from headrace.coordinators.groups.consumer import heartbeat
from headrace.coordinators.groups.consumer.assigning import Assigning
from headrace.coordinators.groups.consumer.members import MemberState
from headrace.coordinators.groups.consumer.reconciliation import Reconciliation
from headrace.coordinators.groups.consumer.requests import ConsumerRequests
from headrace.coordinators.groups.group_event import GroupEvent, TimerKind
from headrace.coordinators.groups.offsets import GroupOffsets
from headrace.coordinators.groups.streams.group import StreamsGroup
from headrace.coordinators.groups.streams.requests import StreamsGroups
from tests.simulation import plan as kinds
from tests.simulation.mutant import Mutant
from tests.simulation.network import Weather
from tests.simulation.plan import Plan, with_members


def not_waited_for(patch: pytest.MonkeyPatch) -> None:
    step = Reconciliation.step

    def at_once(self, member):  # type: ignore[no-untyped-def]
        return step(self._replace(owners=lambda topic_id: ()), member)

    patch.setattr(Reconciliation, "step", at_once)


def sessions_not_extended(patch: pytest.MonkeyPatch) -> None:
    start = GroupEvent.start
    begun = set()

    def first_time_only(self, kind, group, wait_ms, member_id=""):  # type: ignore[no-untyped-def]
        session = (id(group), member_id)
        if kind is not TimerKind.SESSION or session not in begun:
            start(self, kind, group, wait_ms, member_id)
            begun.add(session)

    patch.setattr(GroupEvent, "start", first_time_only)
    patch.setattr(Deadlines, "postpone", lambda self, key, at_ms: True)


def partition_left_out(patch: pytest.MonkeyPatch) -> None:
    compute = Assigning.compute

    def without_the_first(self):  # type: ignore[no-untyped-def]
        return {
            member_id: {topic: partitions - {0} for topic, partitions in assigned.items()}
            for member_id, assigned in compute(self).items()
        }

    patch.setattr(Assigning, "compute", without_the_first)


def released_not_taken(patch: pytest.MonkeyPatch) -> None:
    reconcile = heartbeat.reconcile

    def waits_for_ever(groups, group, member, *arguments):  # type: ignore[no-untyped-def]
        if member.state is MemberState.UNRELEASED_PARTITIONS:
            return member
        return reconcile(groups, group, member, *arguments)

    patch.setattr(heartbeat, "reconcile", waits_for_ever)


def epochs_forgotten(patch: pytest.MonkeyPatch) -> None:
    loaded = ConsumerRequests.loaded

    def from_the_start(self, group, group_event):  # type: ignore[no-untyped-def]
        group.epoch = group.target_epoch = 1
        loaded(self, group, group_event)

    patch.setattr(ConsumerRequests, "loaded", from_the_start)


def offsets_not_kept(patch: pytest.MonkeyPatch) -> None:
    appended = GroupOffsets.appended

    def some(self, offsets, record_offset):  # type: ignore[no-untyped-def]
        if any(each.offset % 3 == 0 for each in offsets.values()):
            self.failed(offsets)
        else:
            appended(self, offsets, record_offset)

    patch.setattr(GroupOffsets, "appended", some)
    patch.setattr(GroupOffsets, "stored", lambda self, offsets: None)


def tasks_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StreamsGroup, "active_process", lambda self, subtopology_id, partition: None)


def epochs_of_threads_forgotten(patch: pytest.MonkeyPatch) -> None:
    loaded = StreamsGroups.loaded

    def from_the_start(self, group, group_event):  # type: ignore[no-untyped-def]
        group.epoch = group.assignment_epoch = 1
        loaded(self, group, group_event)

    patch.setattr(StreamsGroups, "loaded", from_the_start)


_CALM = with_members(Plan(partitions=3, duration_ms=8_000, producers=(), readers=0), 3)
_ROUGH = _CALM._replace(
    duration_ms=10_000,
    gap_ms=700,
    faults=(kinds.CRASH, kinds.ELECT, kinds.STOP),
    weather=Weather(loss=0.02),
    failures_max=1,
)

GROUP_MUTANTS = (
    Mutant("partitions are not waited for", not_waited_for, _CALM, frozenset({"two owners"})),
    Mutant("sessions are not extended", sessions_not_extended, _CALM, frozenset({"two owners"})),
    Mutant("a partition is left out", partition_left_out, _CALM, frozenset({"unowned"})),
    Mutant("released ones are not taken", released_not_taken, _CALM, frozenset({"unowned"})),
    Mutant("epochs are forgotten", epochs_forgotten, _ROUGH, frozenset({"member epoch"})),
    Mutant("offsets are not kept", offsets_not_kept, _CALM, frozenset({"group offset"})),
    Mutant(
        "tasks are not waited for",
        tasks_not_waited_for,
        _CALM._replace(members_are_threads=True),
        frozenset({"two owners"}),
    ),
    Mutant(
        "epochs of threads are forgotten",
        epochs_of_threads_forgotten,
        _ROUGH._replace(members_are_threads=True),
        frozenset({"member epoch"}),
    ),
)
