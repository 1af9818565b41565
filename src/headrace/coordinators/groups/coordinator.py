"""The group coordinator: serves every group whose partition of `__consumer_offsets` this broker leads.

Its input is protocol messages, each with a reply token; its output is actions. It is a `Coordinator` of
`coordinators.runtime`: the runtime executes the actions in order, passes the end of each write to `appended`, and calls
`tick` at `next_deadline_ms`. No clock, no IO, no randomness: the caller passes the time and the random part of ids.

Source: Kafka's `GroupCoordinator` and `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from headrace.coordinators.deadlines import Deadlines
from headrace.coordinators.groups import commits, joining, leaving, rebalance, syncing, transactional_commits
from headrace.coordinators.groups.actions import (
    Action,
    AssignmentStored,
    OffsetsStored,
    StaticMemberStored,
    Then,
    TransactionalOffsetsStored,
)
from headrace.coordinators.groups.answers import committed, committed_in_transaction, join_refused, sync_refused
from headrace.coordinators.groups.describing import GroupDescription, GroupOverview, Position, describe
from headrace.coordinators.groups.group import CONSUMER_PROTOCOL, NO_MEMBER_ID, Group, State
from headrace.coordinators.groups.group_event import GroupEvent, Timer, TimerKind
from headrace.coordinators.groups.loading import Loading
from headrace.coordinators.groups.replies import Reply
from headrace.coordinators.runtime import OwnedPartitions
from headrace.errors import ErrorCode
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.config import BrokerConfig
    from headrace.coordinators.groups.commits import FetchedOffset
    from headrace.coordinators.groups.members import Join
    from headrace.coordinators.runtime import TransactionalProducer
    from headrace.protocol import messages as m

Actions = list[Action]

ASSIGNMENT_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The error of a joining or syncing member for a failed write of the group's metadata."""


class Left(NamedTuple):
    """The outcome of LeaveGroup: an error for the request, or one for each member, in order."""

    error: ErrorCode
    members: tuple[ErrorCode, ...]


class GroupCoordinator:
    """The groups of one broker."""

    __slots__ = ("_config", "_deadlines", "_groups", "_new_id", "_partition_for", "_transactions", "partitions")

    def __init__(
        self, config: BrokerConfig, partition_for: Callable[[str], int], new_id: Callable[[], str], now_ms: int
    ) -> None:
        """`partition_for` maps a group to its partition of `__consumer_offsets`. `new_id` returns the random part of a
        member id: a UUID as Java prints it."""
        self._config = config
        self._partition_for = partition_for
        self._new_id = new_id
        self._groups: dict[str, Group] = {}
        self._transactions: dict[tuple[int, int], set[str]] = {}
        """The groups with offsets in an open transaction, by partition and producer id. A group may be gone since."""
        self.partitions = OwnedPartitions(Loading)
        self._deadlines: Deadlines[Timer] = Deadlines()
        self._deadlines.set(Timer(TimerKind.RETENTION), now_ms + config.offsets_retention_check_interval_ms)

    # Partitions of __consumer_offsets

    def loaded(self, loading: Loading, now_ms: int) -> Iterator[Actions]:
        """Takes over the groups of a loaded partition, some in each step."""
        groups = iter(loading.finish(now_ms))
        while some := list(islice(groups, ELEMENTS_PER_SLICE)):
            yield self._take_over(some, loading, now_ms)

    def _take_over(self, groups: Iterable[Group], loading: Loading, now_ms: int) -> Actions:
        group_event = self._event(now_ms)
        for group in groups:
            self._groups[group.group_id] = group
            for producer_id in group.offsets.transactional:
                self._transactions.setdefault((group.partition, producer_id), set()).add(group.group_id)
            if len(group.members) > self._config.group_max_size:
                rebalance.prepare(group, group_event)
            for member in group.members.values():
                group_event.touch(group, member)
            if loading.deleted_topics:
                self._forget(group, loading.deleted_topics, group_event)
        return group_event.actions

    def unloaded(self, partition: int, now_ms: int) -> Actions:
        """Drops the groups of a partition that another broker leads now; waiting requests get NOT_COORDINATOR."""
        group_event = self._event(now_ms)
        for group_id in [each.group_id for each in self._groups.values() if each.partition == partition]:
            leaving.unload(self._groups.pop(group_id), ErrorCode.NOT_COORDINATOR, group_event)
        for key in [each for each in self._transactions if each[0] == partition]:
            del self._transactions[key]
        return group_event.actions

    # Requests

    def join(self, event: Join, reply: Reply, now_ms: int) -> Actions:
        """JoinGroup; answered when the rebalance completes."""
        group_event = self._event(now_ms)
        error = self._unavailable(event.group_id)
        shortest, longest = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
        if error is ErrorCode.NONE and not shortest <= event.session_timeout_ms <= longest:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        group = self._groups.get(event.group_id)
        if error is ErrorCode.NONE and group is None:
            if event.member_id == NO_MEMBER_ID:
                group = self._new_group(event.group_id, now_ms)
            else:
                error = ErrorCode.UNKNOWN_MEMBER_ID
        if group is None or error is not ErrorCode.NONE:
            group_event.answer(reply, join_refused(event.member_id, error))
        else:
            joining.join(group, event, reply, self._new_id, group_event)
        return group_event.actions

    def sync(self, request: m.SyncGroupRequest, reply: Reply, now_ms: int) -> Actions:
        """SyncGroup; answered when the leader's assignment is stored."""
        group_event = self._event(now_ms)
        error = self._unavailable(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The old coordinator lost the rebalance, so members must join again. Old clients know only this code.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        group = self._groups.get(request.group_id)
        if error is ErrorCode.NONE and group is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if group is None or error is not ErrorCode.NONE:
            group_event.answer(reply, sync_refused(error))
        else:
            syncing.sync(group, request, reply, group_event)
        return group_event.actions

    def heartbeat(self, request: m.HeartbeatRequest, now_ms: int) -> ErrorCode:
        """Heartbeat; its only effect is to move a deadline."""
        error = self._unavailable(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # the group may be loaded in a moment, so its members need not rejoin
        if error is not ErrorCode.NONE:
            return error
        group = self._groups.get(request.group_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if group is None else syncing.heartbeat(group, request, self._event(now_ms))

    def leave(
        self, group_id: str, identities: Iterable[m.LeaveGroupRequest.MemberIdentity], now_ms: int
    ) -> tuple[Left, Actions]:
        """LeaveGroup (one identity before version 3); answered at once."""
        error = self._unavailable(group_id)
        if error is not ErrorCode.NONE:
            return Left(error, ()), []
        group = self._groups.get(group_id)
        if group is None:
            return Left(ErrorCode.NONE, tuple(ErrorCode.UNKNOWN_MEMBER_ID for _ in identities)), []
        group_event = self._event(now_ms)
        return Left(
            ErrorCode.NONE, tuple(leaving.leave(group, each, group_event) for each in identities)
        ), group_event.actions

    def commit(self, request: m.OffsetCommitRequest, reply: Reply, now_ms: int) -> Actions:
        """OffsetCommit; answered when the offsets are stored. The caller has checked that the topics exist."""
        group_event = self._event(now_ms)
        error = self._unavailable(request.group_id, needs_name=False)
        group = self._groups.get(request.group_id)
        if error is ErrorCode.NONE and group is None:
            if request.generation_id_or_member_epoch < 0:
                group = self._new_group(request.group_id, now_ms)
            else:
                error = ErrorCode.ILLEGAL_GENERATION
        if group is None or error is not ErrorCode.NONE:
            group_event.answer(reply, committed((each, error) for each in commits.offsets_of(request, now_ms)))
        else:
            commits.commit(group, request, reply, group_event)
        return group_event.actions

    def commit_in_transaction(
        self, request: m.TxnOffsetCommitRequest, producer: TransactionalProducer, reply: Reply, now_ms: int
    ) -> Actions:
        """TxnOffsetCommit; answered when the offsets are stored. The caller has checked that the topics exist, and that
        the partition of `__consumer_offsets` is in the transaction."""
        group_event = self._event(now_ms)
        error = self._unavailable(request.group_id)
        group = self._groups.get(request.group_id)
        if error is ErrorCode.NONE and group is None:
            if request.generation_id < 0:
                group = self._new_group(request.group_id, now_ms)
            else:
                error = ErrorCode.ILLEGAL_GENERATION
        if group is None or error is not ErrorCode.NONE:
            offsets = transactional_commits.offsets_of(request, now_ms)
            group_event.answer(reply, committed_in_transaction((each, error) for each in offsets))
        elif transactional_commits.commit(group, request, producer, reply, group_event):
            self._transactions.setdefault((group.partition, producer.producer_id), set()).add(group.group_id)
        return group_event.actions

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, require_stable: bool
    ) -> tuple[ErrorCode, list[FetchedOffset]]:
        """OffsetFetch of one group, for these partitions (all when None), with or without members."""
        error = self._unavailable(group_id, needs_name=False)
        if error is not ErrorCode.NONE:
            return error, []
        return ErrorCode.NONE, commits.fetch(self._groups.get(group_id), partitions, require_stable)

    # Administration

    def overview(self) -> tuple[ErrorCode, list[GroupOverview]]:
        """ListGroups: every group here, and COORDINATOR_LOAD_IN_PROGRESS while partitions are loading."""
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.partitions.loading else ErrorCode.NONE
        return error, [
            GroupOverview(each.group_id, each.protocol_type or "", each.state) for each in self._groups.values()
        ]

    def positions(self) -> list[Position]:
        """Every committed offset of every group here."""
        return [
            Position(group.group_id, partition, known.offset)
            for group in self._groups.values()
            for partition, known in group.offsets.committed.items()
        ]

    def describe(self, group_id: str) -> GroupDescription:
        """DescribeGroups. A group that does not exist is Dead, which is no error before version 6."""
        error = self._unavailable(group_id, needs_name=False)
        return describe(self._groups.get(group_id), error)

    def delete_group(self, group_id: str, now_ms: int) -> tuple[ErrorCode, Actions]:
        """DeleteGroups, for one group. Only a group without members can be deleted; its offsets are deleted too."""
        error, group = self._existing(group_id)
        if group is None or error is not ErrorCode.NONE:
            return error, []
        if group.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP, []
        group_event = self._event(now_ms)
        self._drop(group, group_event)
        commits.remove_offsets(group, group.offsets.partitions(), True, group_event)
        return ErrorCode.NONE, group_event.actions

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], now_ms: int
    ) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode], Actions]:
        """OffsetDelete: deletes offsets of topics that the group's members do not read. An empty group remains, as in
        Apache Kafka 4, even if it has no offsets left."""
        error, group = self._existing(group_id)
        if group is None or error is not ErrorCode.NONE:
            return error, {}, []
        if group.state is not State.EMPTY and group.protocol_type != CONSUMER_PROTOCOL:
            return ErrorCode.NON_EMPTY_GROUP, {}, []
        has_members, topics = group.state is not State.EMPTY, group.subscribed_topics
        errors = {
            each: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if has_members and (topics is None or each.topic in topics)
            else ErrorCode.NONE
            for each in partitions
        }
        group_event = self._event(now_ms)
        commits.remove_offsets(
            group, [each for each, fault in errors.items() if fault is ErrorCode.NONE], False, group_event
        )
        return ErrorCode.NONE, errors, group_event.actions

    # Writes, timers and metadata changes

    def appended(self, then: Then, error: ErrorCode, record_offset: int, now_ms: int) -> Actions:
        """Takes in the end of a write: its batch is at `record_offset`, or it failed with `error`."""
        group_event = self._event(now_ms)
        match then:
            case OffsetsStored():
                commits.offsets_stored(then, error, record_offset, group_event)
            case TransactionalOffsetsStored():
                transactional_commits.offsets_stored(then, error, record_offset, group_event)
            case AssignmentStored():
                syncing.assignment_stored(then, ASSIGNMENT_APPEND_ERRORS.get(error, error), group_event)
            case StaticMemberStored():
                joining.static_member_stored(then, ASSIGNMENT_APPEND_ERRORS.get(error, error), group_event)
        return group_event.actions

    def next_deadline_ms(self) -> int | None:
        """The time at which to call `tick`; None without deadlines."""
        return self._deadlines.next_ms()

    def clock_was_set(self, by_ms: int) -> None:
        """Shifts deadlines by a jump of the caller's clock."""
        self._deadlines.shift(by_ms)

    def tick(self, now_ms: int) -> Actions:
        """Handles every deadline that has passed."""
        group_event = self._event(now_ms)
        while (timer := self._deadlines.pop_due(now_ms)) is not None:
            if timer.kind is TimerKind.RETENTION:
                self._expire(group_event)
                self._deadlines.set(timer, now_ms + self._config.offsets_retention_check_interval_ms)
                continue
            group = self._groups[timer.group_id]
            if timer.kind is TimerKind.SESSION:
                leaving.session_expired(group, timer.member_id, group_event)
            elif timer.kind is TimerKind.JOIN:
                rebalance.join_timed_out(group, group_event)
            else:
                syncing.sync_timed_out(group, group_event)
        return group_event.actions

    def forget_topics(self, names: Collection[str], now_ms: int) -> Actions:
        """Deletes the offsets of deleted topics, so that a topic recreated under the name starts without any.

        Groups that are loading lose them once they are loaded. Other coordinators delete those of their own groups.
        The cost is one look at each offset, for any number of topics.
        """
        group_event = self._event(now_ms)
        for loading in self.partitions.loading:
            loading.deleted_topics.update(names)
        for group in list(self._groups.values()):
            self._forget(group, names, group_event)
        return group_event.actions

    def _forget(self, group: Group, names: Collection[str], group_event: GroupEvent) -> None:
        partitions = group.offsets.of_topics(names)
        if partitions:
            self._clean(group, partitions, group_event)

    def end_transaction(self, producer_id: int, partition: int, *, is_commit: bool) -> None:
        """Applies a transaction's marker in a partition of `__consumer_offsets`."""
        for group_id in self._transactions.pop((partition, producer_id), ()):
            group = self._groups.get(group_id)
            if group is not None:
                group.offsets.end_transaction(producer_id, committed=is_commit)

    def _expire(self, group_event: GroupEvent) -> None:
        retention_ms = self._config.offsets_retention_minutes * 60_000
        for group in list(self._groups.values()):
            self._clean(group, commits.expired(group, retention_ms, group_event.now_ms), group_event)

    def _clean(self, group: Group, partitions: list[TopicPartition], group_event: GroupEvent) -> None:
        """Removes these offsets, and the group if it is empty and has no offsets left."""
        gone = set(partitions)
        offsets = group.offsets
        is_leaving = (
            group.state is State.EMPTY
            and not offsets.transactional
            and offsets.committed.keys() <= gone
            and offsets.pending.keys() <= gone
        )
        if is_leaving:
            self._drop(group, group_event)
        commits.remove_offsets(group, partitions, is_leaving, group_event)

    def _new_group(self, group_id: str, now_ms: int) -> Group:
        group = self._groups[group_id] = Group(group_id, self._partition_for(group_id), now_ms)
        return group

    def _drop(self, group: Group, group_event: GroupEvent) -> None:
        del self._groups[group.group_id]
        leaving.unload(group, ErrorCode.UNKNOWN_MEMBER_ID, group_event)

    def _existing(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        error = self._unavailable(group_id, needs_name=False)
        group = self._groups.get(group_id)
        return (ErrorCode.GROUP_ID_NOT_FOUND if group is None and error is ErrorCode.NONE else error), group

    def _unavailable(self, group_id: str, *, needs_name: bool = True) -> ErrorCode:
        """The error code of a group that this broker cannot serve; NONE if it can."""
        if needs_name and not group_id:
            return ErrorCode.INVALID_GROUP_ID  # only offsets are allowed without a group id: old tools commit so
        if group_id in self._groups:  # spares every heartbeat the hash; all groups here are served
            return ErrorCode.NONE
        return self.partitions.availability(self._partition_for(group_id))

    def _event(self, now_ms: int) -> GroupEvent:
        return GroupEvent(now_ms, self._config, self._deadlines)
