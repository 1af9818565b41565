"""Every group whose partition of `__consumer_offsets` this broker leads, behind one face.

A request comes in as a protocol message with the reply token that its answer is to go to; actions come out. The
caller carries the actions out in order, reports each finished write to `appended`, and calls `tick` at
`next_deadline_ms`. No clock, no IO, no randomness: time and member ids are handed in.

    partition:   unknown ──begin_loading──▶ loading ──finish_loading──▶ ours ──unload──▶ unknown
    answer:      NOT_COORDINATOR            COORDINATOR_LOAD_IN_PROGRESS

Source: Kafka's `GroupCoordinator` and `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import ErrorCode
from headrace.groups import commits, joining, leaving, rebalance, syncing
from headrace.groups.actions import Action, AssignmentStored, OffsetsStored, Reply, StaticMemberStored, Then
from headrace.groups.answers import committed, join_refused, sync_refused
from headrace.groups.deadlines import Deadlines
from headrace.groups.describing import GroupDescription, GroupOverview, Position, describe
from headrace.groups.group import CONSUMER_PROTOCOL, NO_MEMBER_ID, Group, State
from headrace.groups.loading import Loading
from headrace.groups.partitioning import partition_for
from headrace.groups.turn import Timer, TimerKind, Turn
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.config import BrokerConfig
    from headrace.groups.commits import FetchedOffset
    from headrace.groups.members import Join
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
"""What a failed write of a group's metadata means to a joining or syncing member."""


class Left(NamedTuple):
    """What LeaveGroup did: an error for the whole, or one per member in the request's order."""

    error: ErrorCode
    members: tuple[ErrorCode, ...]


class GroupCoordinator:
    """The groups of one broker."""

    __slots__ = ("_config", "_deadlines", "_groups", "_loading", "_new_id", "_owned", "_partition_count")

    def __init__(
        self, config: BrokerConfig, partition_count: Callable[[], int], new_id: Callable[[], str], now_ms: int
    ) -> None:
        """`partition_count` is that of `__consumer_offsets`, or what it would be made with; `new_id` gives the random
        part of a member id: a UUID as Java prints it."""
        self._config = config
        self._partition_count = partition_count
        self._new_id = new_id
        self._groups: dict[str, Group] = {}
        self._loading: dict[int, Loading] = {}
        self._owned: set[int] = set()
        self._deadlines: Deadlines[Timer] = Deadlines()
        self._deadlines.set(Timer(TimerKind.RETENTION), now_ms + config.offsets_retention_check_interval_ms)

    # partitions of __consumer_offsets

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that the group lives in."""
        return partition_for(group_id, self._partition_count())

    def begin_loading(self, partition: int) -> Loading | None:
        """This broker leads the partition now: feed what comes back every record. None when it is here already."""
        if partition in self._owned or partition in self._loading:
            return None
        loading = self._loading[partition] = Loading(partition)
        return loading

    def finish_loading(self, partition: int, loading: Loading, now_ms: int) -> Actions:
        """The partition's groups are served from now on; unless it was unloaded while it was read."""
        turn = self._turn(now_ms)
        if self._loading.get(partition) is not loading:
            return []
        del self._loading[partition]
        for group in loading.finish(now_ms):
            self._groups[group.group_id] = group
            if len(group.members) > self._config.group_max_size:
                rebalance.prepare(group, turn)
            for member in group.members.values():
                turn.touch(group, member)
        self._owned.add(partition)
        return turn.actions

    def unload(self, partition: int, now_ms: int) -> Actions:
        """Another broker leads the partition now; whoever waits here is sent to it."""
        turn = self._turn(now_ms)
        self._loading.pop(partition, None)
        self._owned.discard(partition)
        for group_id in [each.group_id for each in self._groups.values() if each.partition == partition]:
            leaving.kill(self._groups.pop(group_id), ErrorCode.NOT_COORDINATOR, turn)
        return turn.actions

    # requests

    def join(self, event: Join, reply: Reply, now_ms: int) -> Actions:
        """JoinGroup; answered when the rebalance completes."""
        turn = self._turn(now_ms)
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
            turn.answer(reply, join_refused(event.member_id, error))
        else:
            joining.join(group, event, reply, self._new_id, turn)
        return turn.actions

    def sync(self, request: m.SyncGroupRequest, reply: Reply, now_ms: int) -> Actions:
        """SyncGroup; answered when the leader's assignment is stored."""
        turn = self._turn(now_ms)
        error = self._unavailable(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The rebalance was lost with the old coordinator: begin again. Old clients do not know the other code.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        group = self._groups.get(request.group_id)
        if error is ErrorCode.NONE and group is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if group is None or error is not ErrorCode.NONE:
            turn.answer(reply, sync_refused(error))
        else:
            syncing.sync(group, request, reply, turn)
        return turn.actions

    def heartbeat(self, request: m.HeartbeatRequest, now_ms: int) -> ErrorCode:
        """Heartbeat; the only effect is a deadline moved."""
        error = self._unavailable(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # the group may well be here in a moment: let the member be
        if error is not ErrorCode.NONE:
            return error
        group = self._groups.get(request.group_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if group is None else syncing.heartbeat(group, request, self._turn(now_ms))

    def leave(
        self, group_id: str, identities: Iterable[m.LeaveGroupRequest.MemberIdentity], now_ms: int
    ) -> tuple[Left, Actions]:
        """LeaveGroup, one identity before version 3; answered at once."""
        error = self._unavailable(group_id)
        if error is not ErrorCode.NONE:
            return Left(error, ()), []
        group = self._groups.get(group_id)
        if group is None:
            return Left(ErrorCode.NONE, tuple(ErrorCode.UNKNOWN_MEMBER_ID for _ in identities)), []
        turn = self._turn(now_ms)
        return Left(ErrorCode.NONE, tuple(leaving.leave(group, each, turn) for each in identities)), turn.actions

    def commit(self, request: m.OffsetCommitRequest, reply: Reply, now_ms: int) -> Actions:
        """OffsetCommit; answered when the offsets are stored. The caller has checked that the topics exist."""
        turn = self._turn(now_ms)
        error = self._unavailable(request.group_id, needs_name=False)
        group = self._groups.get(request.group_id)
        if error is ErrorCode.NONE and group is None:
            if request.generation_id_or_member_epoch < 0:
                group = self._new_group(request.group_id, now_ms)
            else:
                error = ErrorCode.ILLEGAL_GENERATION
        if group is None or error is not ErrorCode.NONE:
            turn.answer(reply, committed((each, error) for each in commits.offsets_of(request, now_ms)))
        else:
            commits.commit(group, request, reply, turn)
        return turn.actions

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, require_stable: bool
    ) -> tuple[ErrorCode, list[FetchedOffset]]:
        """OffsetFetch of one group, of these partitions or all; whether the group has members does not matter."""
        error = self._unavailable(group_id, needs_name=False)
        if error is not ErrorCode.NONE:
            return error, []
        return ErrorCode.NONE, commits.fetch(self._groups.get(group_id), partitions, require_stable)

    # administration

    def overview(self) -> tuple[ErrorCode, list[GroupOverview]]:
        """ListGroups: every group here, and COORDINATOR_LOAD_IN_PROGRESS while there may be more."""
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._loading else ErrorCode.NONE
        return error, [
            GroupOverview(each.group_id, each.protocol_type or "", each.state) for each in self._groups.values()
        ]

    def positions(self) -> list[Position]:
        """Every offset that a group here has committed."""
        return [
            Position(group.group_id, partition, known.offset)
            for group in self._groups.values()
            for partition, known in group.offsets.committed.items()
        ]

    def describe(self, group_id: str) -> GroupDescription:
        """DescribeGroups; a group that does not exist is Dead, and that is no error before version 6."""
        error = self._unavailable(group_id, needs_name=False)
        return describe(self._groups.get(group_id), error)

    def delete_group(self, group_id: str, now_ms: int) -> tuple[ErrorCode, Actions]:
        """DeleteGroups, for one: only a group without members may go, and its offsets go with it."""
        error, group = self._existing(group_id)
        if group is None or error is not ErrorCode.NONE:
            return error, []
        if group.state is not State.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP, []
        turn = self._turn(now_ms)
        self._drop(group, turn)
        commits.remove_offsets(group, list(group.offsets.committed), True, turn)
        return ErrorCode.NONE, turn.actions

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], now_ms: int
    ) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode], Actions]:
        """OffsetDelete: offsets of topics that the group's members do not read. An empty group stays for now, as in
        Apache Kafka 4, also when none are left."""
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
        turn = self._turn(now_ms)
        commits.remove_offsets(group, [each for each, fault in errors.items() if fault is ErrorCode.NONE], False, turn)
        return ErrorCode.NONE, errors, turn.actions

    # what happens by itself

    def appended(self, then: Then, error: ErrorCode, record_offset: int, now_ms: int) -> Actions:
        """A write is done, its batch at `record_offset`; or has failed with `error`."""
        turn = self._turn(now_ms)
        match then:
            case OffsetsStored():
                commits.offsets_stored(then, error, record_offset, turn)
            case AssignmentStored():
                syncing.assignment_stored(then, ASSIGNMENT_APPEND_ERRORS.get(error, error), turn)
            case StaticMemberStored():
                joining.static_member_stored(then, ASSIGNMENT_APPEND_ERRORS.get(error, error), turn)
        return turn.actions

    def next_deadline_ms(self) -> int | None:
        """When `tick` is due."""
        return self._deadlines.next_ms()

    def clock_was_set(self, by_ms: int) -> None:
        """The caller's `now_ms` jumped: what is waited for takes no longer and no less for it."""
        self._deadlines.shift(by_ms)

    def tick(self, now_ms: int) -> Actions:
        """Everything whose time is up."""
        turn = self._turn(now_ms)
        while (timer := self._deadlines.pop_due(now_ms)) is not None:
            if timer.kind is TimerKind.RETENTION:
                self._expire(turn)
                self._deadlines.set(timer, now_ms + self._config.offsets_retention_check_interval_ms)
                continue
            group = self._groups[timer.group_id]
            if timer.kind is TimerKind.SESSION:
                leaving.session_is_over(group, timer.member_id, turn)
            elif timer.kind is TimerKind.JOIN:
                rebalance.join_time_is_up(group, turn)
            else:
                syncing.sync_time_is_up(group, turn)
        return turn.actions

    def forget_partitions(self, partitions: Iterable[TopicPartition], now_ms: int) -> Actions:
        """These partitions were deleted: nobody needs their offsets."""
        turn, gone = self._turn(now_ms), list(partitions)
        for group in list(self._groups.values()):
            self._clean(group, gone, turn)
        return turn.actions

    def end_transaction(self, producer_id: int, partitions: Iterable[int], committed: bool) -> None:
        """The transaction's marker is in these partitions of `__consumer_offsets`."""
        ended = frozenset(partitions)
        for group in self._groups.values():
            if producer_id in group.offsets.transactional and group.partition in ended:
                group.offsets.end_transaction(producer_id, committed)

    def _expire(self, turn: Turn) -> None:
        retention_ms = self._config.offsets_retention_minutes * 60_000
        for group in list(self._groups.values()):
            self._clean(group, commits.expired(group, retention_ms, turn.now_ms), turn)

    def _clean(self, group: Group, partitions: list[TopicPartition], turn: Turn) -> None:
        """Forget these offsets; a group that is empty and has none left goes too."""
        gone = set(partitions)
        offsets = group.offsets
        is_leaving = (
            group.state is State.EMPTY
            and not offsets.transactional
            and offsets.committed.keys() <= gone
            and offsets.pending.keys() <= gone
        )
        if is_leaving:
            self._drop(group, turn)
        commits.remove_offsets(group, partitions, is_leaving, turn)

    def _new_group(self, group_id: str, now_ms: int) -> Group:
        group = self._groups[group_id] = Group(group_id, self.partition_for(group_id), now_ms)
        return group

    def _drop(self, group: Group, turn: Turn) -> None:
        del self._groups[group.group_id]
        leaving.kill(group, ErrorCode.UNKNOWN_MEMBER_ID, turn)

    def _existing(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        error = self._unavailable(group_id, needs_name=False)
        group = self._groups.get(group_id)
        return (ErrorCode.GROUP_ID_NOT_FOUND if group is None and error is ErrorCode.NONE else error), group

    def _unavailable(self, group_id: str, *, needs_name: bool = True) -> ErrorCode:
        """Why this broker cannot serve the group; NONE when it can."""
        if needs_name and not group_id:
            return ErrorCode.INVALID_GROUP_ID  # offsets alone may be kept without a name, as old tools do
        if group_id in self._groups:  # only what is ours is kept; saves every heartbeat a hash
            return ErrorCode.NONE
        partition = self.partition_for(group_id)
        if partition in self._owned:
            return ErrorCode.NONE
        loading = partition in self._loading
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR

    def _turn(self, now_ms: int) -> Turn:
        return Turn(now_ms, self._config, self._deadlines)
