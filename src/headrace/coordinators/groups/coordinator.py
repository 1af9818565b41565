"""The group coordinator: serves every group whose partition of `__consumer_offsets` this broker leads.

Its input is protocol messages, each with a reply token; its output is actions. It is a `Coordinator` of
`coordinators.runtime`: the runtime executes the actions in order, passes the end of each write to `appended`, and calls
`tick` at `next_deadline_ms`. No clock, no IO, no randomness: the caller passes the time and the random part of ids.

Here is what groups of every kind have: their offsets, their listing, deletion and expiry. Requests of the members go to
the groups of their kind, such as `coordinator.classic`. A kind of groups has

    a group       a `Group`, with what decides about commits, expiry, listing and deletion
    records       the versions of its keys in `kinds`, and their replay
    a `GroupsOfKind`      the end of loading, deadlines, the end of serving; and its requests

Source: Kafka's `GroupCoordinator` and `GroupMetadataManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from headrace.coordinators.groups import commits, transactional_commits
from headrace.coordinators.groups.answers import committed, committed_in_transaction
from headrace.coordinators.groups.classic.requests import ClassicGroups
from headrace.coordinators.groups.group import Committer, Group, GroupKind, GroupOverview, GroupPosition
from headrace.coordinators.groups.group_event import Actions, GroupEvent, Then, Timer, TimerKind
from headrace.coordinators.groups.kinds import replay_of
from headrace.coordinators.groups.loading import GroupLoading
from headrace.coordinators.groups.registry import Groups
from headrace.coordinators.runtime import OwnedPartitions
from headrace.errors import ErrorCode
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.config import BrokerConfig
    from headrace.coordinators.groups.commits import FetchedOffset
    from headrace.coordinators.groups.consumer.requests import ConsumerRequests
    from headrace.coordinators.groups.kind import GroupsOfKind
    from headrace.coordinators.groups.modern.topics import Topics
    from headrace.coordinators.groups.offsets import CommittedOffset
    from headrace.coordinators.groups.registry import GroupNumber
    from headrace.coordinators.groups.replies import Reply
    from headrace.coordinators.groups.share.group import ShareGroup
    from headrace.coordinators.groups.share.requests import ShareGroups
    from headrace.coordinators.groups.streams.requests import StreamsGroups
    from headrace.coordinators.runtime import TransactionalProducer
    from headrace.protocol import messages as m

log = logging.getLogger(__name__)

NEW_ERRORS_FROM = 9
"""The version of OffsetCommit from which a group that does not exist is GROUP_ID_NOT_FOUND."""


class GroupCoordinator:
    """The groups of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        partition_for: Callable[[str], int],
        new_id: Callable[[], str],
        now_ms: int,
        topics: Topics,
        number: GroupNumber | None = None,
        high_watermark: Callable[[int], int] = lambda _: 0,
    ) -> None:
        """`partition_for` maps a group to its partition of `__consumer_offsets`, whose high watermark `high_watermark`
        returns. `new_id` returns the random part of a member id: a UUID as Java prints it. `number` is the value of a
        group's config; the broker's without."""
        self._high_watermark = high_watermark
        self.partitions = OwnedPartitions(partial(GroupLoading, replay_of=replay_of))
        self._groups = Groups(
            config, self.partitions, topics, partition_for=partition_for, new_id=new_id, number=number
        )
        self.find: Callable[[str], Group | None] = self._groups.get
        """The group of an id, if this broker coordinates it."""
        self.classic = ClassicGroups(self._groups, self._kind, lambda: self.consumer)
        self._transactions: dict[tuple[int, int], set[str]] = {}
        """The groups with offsets in an open transaction, by partition and producer id. A group may be gone since."""
        self._start_retention(now_ms)

    def count(self, prefix: str) -> int:
        """The number of groups here whose ids begin with a name and a dot."""
        return self._groups.count(prefix)

    def with_prefix(self, prefix: str) -> list[Group]:
        """These groups."""
        return self._groups.with_prefix(prefix)

    @cached_property
    def consumer(self) -> ConsumerRequests:
        """The consumer groups. Imported with the first of them."""
        from headrace.coordinators.groups.consumer.requests import ConsumerRequests

        return ConsumerRequests(self._groups, self.classic)

    @cached_property
    def share(self) -> ShareGroups:
        """The share groups. Imported with the first of them."""
        from headrace.coordinators.groups.share.requests import ShareGroups

        return ShareGroups(self._groups)

    @cached_property
    def streams(self) -> StreamsGroups:
        """The streams groups. A broker without any does not import them."""
        from headrace.coordinators.groups.streams.requests import StreamsGroups

        return StreamsGroups(self._groups, self.classic)

    # Partitions of __consumer_offsets

    def loaded(self, loading: GroupLoading, now_ms: int) -> Iterator[Actions]:
        """Takes over the groups of a loaded partition, some in each step."""
        groups = iter(loading.finish(now_ms))
        while some := list(islice(groups, ELEMENTS_PER_SLICE)):
            yield self._take_over(some, loading, now_ms)

    def _take_over(self, groups: Iterable[Group], loading: GroupLoading, now_ms: int) -> Actions:
        group_event = self._groups.event(now_ms)
        for group in groups:
            self._groups.put(group)
            for producer_id in group.offsets.transactional:
                self._transactions.setdefault((group.partition, producer_id), set()).add(group.group_id)
            self._kind(group).loaded(group, group_event)
            if loading.deleted_topics:
                self._forget(group, loading.deleted_topics, group_event)
        return group_event.actions

    def unloaded(self, partition: int, now_ms: int) -> Actions:
        """Drops the groups of a partition that another broker leads now; waiting requests get NOT_COORDINATOR."""
        group_event = self._groups.event(now_ms)
        for group in self._groups:
            if group.partition == partition:
                self._groups.remove(group)
                self._kind(group).unload(group, ErrorCode.NOT_COORDINATOR, group_event)
        for key in [each for each in self._transactions if each[0] == partition]:
            del self._transactions[key]
        return group_event.actions

    def _kind(self, group: Group) -> GroupsOfKind[Any]:
        match group.kind:
            case GroupKind.CLASSIC:
                return self.classic
            case GroupKind.CONSUMER:
                return self.consumer
            case GroupKind.SHARE:
                return self.share
            case GroupKind.STREAMS:
                return self.streams
        raise AssertionError(f"no groups of the kind {group.kind}")

    # Offsets

    def commit(self, request: m.OffsetCommitRequest, api_version: int, reply: Reply, now_ms: int) -> Actions:
        """OffsetCommit; answered when the offsets are stored. The caller has checked that the topics exist."""
        group_event = self._groups.event(now_ms)
        epoch = request.generation_id_or_member_epoch
        missing = ErrorCode.GROUP_ID_NOT_FOUND if api_version >= NEW_ERRORS_FROM else ErrorCode.ILLEGAL_GENERATION
        group, error = self._committed_to(request.group_id, epoch, missing, now_ms, needs_name=False)
        if group is None:
            group_event.answer(reply, committed((each, error) for each in commits.offsets_of(request, now_ms)))
        else:
            committer = Committer(request.member_id, request.group_instance_id, epoch, api_version)
            commits.commit(group, request, committer, reply, group_event)
        return group_event.actions

    def plain_committer(
        self, group_id: str, committer: Committer, partitions: Collection[TopicPartition]
    ) -> Group | None:
        """The group of a commit that is stored if the log takes it at once. None if it is refused, or if it creates its
        group."""
        group = self._groups.get(group_id)
        if group is None or group.commit_fault(committer, partitions) is not ErrorCode.NONE:
            return None
        return group

    def commit_begins(
        self, group: Group, committer: Committer, offsets: Mapping[TopicPartition, CommittedOffset], now_ms: int
    ) -> None:
        """Notes a plain commit that is in the log and not durable yet; `commits.ended` ends it. Its offsets have their
        `record_offset`."""
        group.committing(committer, self._groups.event(now_ms))
        group.offsets.prepare(offsets)

    def committed_at_once(
        self, group: Group, committer: Committer, offsets: Mapping[TopicPartition, CommittedOffset], now_ms: int
    ) -> None:
        """Takes over the offsets of a plain commit that is in the log and durable. They have their `record_offset`."""
        group.committing(committer, self._groups.event(now_ms))
        group.offsets.stored(offsets)

    def commit_in_transaction(
        self,
        request: m.TxnOffsetCommitRequest,
        api_version: int,
        producer: TransactionalProducer,
        reply: Reply,
        now_ms: int,
    ) -> Actions:
        """TxnOffsetCommit; answered when the offsets are stored. The caller has checked that the topics exist, and that
        the partition of `__consumer_offsets` is in the transaction."""
        group_event = self._groups.event(now_ms)
        epoch, missing = request.generation_id, ErrorCode.ILLEGAL_GENERATION
        group, error = self._committed_to(request.group_id, epoch, missing, now_ms, needs_name=True)
        if group is None:
            offsets = transactional_commits.offsets_of(request, now_ms)
            group_event.answer(reply, committed_in_transaction((each, error) for each in offsets))
            return group_event.actions
        committer = Committer(request.member_id, request.group_instance_id, epoch, api_version, is_transactional=True)
        if transactional_commits.commit(group, request, committer, producer, reply, group_event):
            self._transactions.setdefault((group.partition, producer.producer_id), set()).add(group.group_id)
        return group_event.actions

    def _committed_to(
        self, group_id: str, epoch: int, missing: ErrorCode, now_ms: int, *, needs_name: bool
    ) -> tuple[Group | None, ErrorCode]:
        """The group of a commit, or the error. A simple consumer's commit creates the group."""
        error = self._groups.unavailable(group_id, needs_name=needs_name)
        if error is not ErrorCode.NONE:
            return None, error
        group = self._groups.get(group_id)
        if group is None and epoch < 0:
            group = self.classic.create(group_id, now_ms)
        return group, missing if group is None else ErrorCode.NONE

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        require_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> tuple[ErrorCode, list[FetchedOffset]]:
        """OffsetFetch of one group, for these partitions (all when None), with or without members."""
        error = self._groups.unavailable(group_id, needs_name=False)
        group = self._groups.get(group_id)
        if error is ErrorCode.NONE and group is not None:
            self._take_late(group)
            error = group.fetch_fault(member_id, member_epoch)
        if error is not ErrorCode.NONE:
            return error, []
        return ErrorCode.NONE, commits.fetch(group, partitions, require_stable)

    def _take_late(self, group: Group) -> None:
        """Takes over the commits that were not durable in time, and are now. Before each look at committed offsets."""
        if group.offsets.late:
            group.offsets.committed_to(self._high_watermark(group.partition))

    def end_transaction(self, producer_id: int, partition: int, *, is_commit: bool) -> None:
        """Applies a transaction's marker in a partition of `__consumer_offsets`."""
        for group_id in self._transactions.pop((partition, producer_id), ()):
            group = self._groups.get(group_id)
            if group is not None:
                group.offsets.end_transaction(producer_id, committed=is_commit)

    # Administration

    def overview(self, prefix: str = "") -> tuple[ErrorCode, list[GroupOverview]]:
        """ListGroups: every group here, or those whose ids begin with a name and a dot. COORDINATOR_LOAD_IN_PROGRESS
        while partitions are loading."""
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.partitions.loading else ErrorCode.NONE
        return error, [each.overview() for each in (self._groups.with_prefix(prefix) if prefix else self._groups)]

    def positions(self) -> list[GroupPosition]:
        """Every committed offset of every group here."""
        for group in self._groups:
            self._take_late(group)
        return [
            GroupPosition(group.group_id, partition, known.offset)
            for group in self._groups
            for partition, known in group.offsets.committed.items()
        ]

    def kind_of(self, group_id: str) -> GroupKind | None:
        """The kind of a group; None if there is none here."""
        group = self._groups.get(group_id)
        return None if group is None else group.kind

    def delete_group(self, group_id: str, now_ms: int) -> tuple[ErrorCode, Actions]:
        """DeleteGroups, for one group. Only a group without members can be deleted; its offsets are deleted too."""
        error, group = self._existing(group_id)
        if group is not None and error is ErrorCode.NONE:
            error = group.delete_fault()
        if group is None or error is not ErrorCode.NONE:
            return error, []
        group_event = self._groups.event(now_ms)
        self._remove(group, group.offsets.partitions(), True, group_event)
        return ErrorCode.NONE, group_event.actions

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], now_ms: int
    ) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode], Actions]:
        """OffsetDelete: deletes offsets of topics that the group's members do not read. An empty group remains, as in
        Apache Kafka 4, even if it has no offsets left."""
        error, group = self._existing(group_id)
        if group is not None and error is ErrorCode.NONE:
            error = group.delete_offsets_fault()
        if group is None or error is not ErrorCode.NONE:
            return error, {}, []
        errors = {
            each: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed(each.topic) else ErrorCode.NONE
            for each in partitions
        }
        group_event = self._groups.event(now_ms)
        self._remove(group, [each for each, fault in errors.items() if fault is ErrorCode.NONE], False, group_event)
        return ErrorCode.NONE, errors, group_event.actions

    def _existing(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        error = self._groups.unavailable(group_id, needs_name=False)
        group = self._groups.get(group_id)
        return (ErrorCode.GROUP_ID_NOT_FOUND if group is None and error is ErrorCode.NONE else error), group

    # Writes, timers and metadata changes

    def appended(self, then: Then, error: ErrorCode, record_offset: int, now_ms: int) -> Actions:
        """Takes in the end of a write: its batch is at `record_offset`, or it failed with `error`."""
        group_event = self._groups.event(now_ms)
        then.stored(error, record_offset, group_event)
        return group_event.actions

    def next_deadline_ms(self) -> int | None:
        """The time at which to call `tick`; None without deadlines."""
        return self._groups.deadlines.next_ms()

    def clock_was_set(self, by_ms: int) -> None:
        """Shifts deadlines by a jump of the caller's clock."""
        self._groups.deadlines.shift(by_ms)

    def tick(self, now_ms: int) -> Actions:
        """Handles every deadline that has passed. One that raises is logged, and the others are handled."""
        group_event = self._groups.event(now_ms)
        while (timer := self._groups.deadlines.pop_due(now_ms)) is not None:
            try:
                self._timed_out(timer, group_event)
            except Exception:  # the actions of all other groups would be lost
                log.exception("a deadline of group %r cannot be handled: %s", timer.group_id, timer)
        return group_event.actions

    def _timed_out(self, timer: Timer, group_event: GroupEvent) -> None:
        if timer.kind is TimerKind.RETENTION:
            self._start_retention(group_event.now_ms)
            self._expire(group_event)
        elif (group := self._groups.get(timer.group_id)) is not None:  # a replaced member's deadline may outlive it
            self._kind(group).timed_out(group, timer, group_event)

    def _start_retention(self, now_ms: int) -> None:
        interval_ms = self._groups.config.offsets_retention_check_interval_ms
        self._groups.deadlines.set(Timer(TimerKind.RETENTION), now_ms + interval_ms)

    def forget_topics(self, names: Collection[str], now_ms: int) -> Actions:
        """Deletes the offsets of deleted topics, so that a topic recreated under the name starts without any.

        Groups that are loading lose them once they are loaded. Other coordinators delete those of their own groups.
        The cost is one look at each offset, for any number of topics.
        """
        group_event = self._groups.event(now_ms)
        for loading in self.partitions.loading:
            loading.deleted_topics.update(names)
        for group in self._groups:
            self._forget(group, names, group_event)
        return group_event.actions

    def topics_changed(self, names: AbstractSet[str], now_ms: int) -> Actions:
        """Tells the groups whose members read one of these topics that it was created, deleted, or changed. A broker
        with a new rack changes all topics."""
        group_event = self._groups.event(now_ms)
        for group in self._groups:
            group.topics_changed(names)
        return group_event.actions

    def _forget(self, group: Group, names: Collection[str], group_event: GroupEvent) -> None:
        partitions = group.offsets.of_topics(names)
        if partitions:
            self._clean(group, partitions, group_event)
        if group.kind is GroupKind.SHARE:
            self.share.forget_topics(cast("ShareGroup", group), names, group_event)

    def _expire(self, group_event: GroupEvent) -> None:
        retention_ms = self._groups.config.offsets_retention_minutes * 60_000
        for group in self._groups:
            self._take_late(group)
            self._clean(group, commits.expired(group, retention_ms, group_event.now_ms), group_event)

    def _clean(self, group: Group, partitions: list[TopicPartition], group_event: GroupEvent) -> None:
        """Removes these offsets, and the group if it is empty and has no offsets left."""
        gone = set(partitions)
        offsets = group.offsets
        is_leaving = (
            group.is_empty
            and group.can_expire
            and not offsets.transactional
            and offsets.committed.keys() <= gone
            and offsets.pending.keys() <= gone
            and offsets.late.keys() <= gone
        )
        self._remove(group, partitions, is_leaving, group_event)

    def _remove(
        self, group: Group, partitions: Iterable[TopicPartition], is_leaving: bool, group_event: GroupEvent
    ) -> None:
        """Removes offsets, and the group with `is_leaving`. Writes tombstones, and does not wait for them."""
        tombstones = commits.tombstones(group, group.offsets.remove(partitions))
        if is_leaving:
            kind = self._kind(group)
            tombstones += kind.tombstones(group)
            self._groups.remove(group)
            kind.unload(group, ErrorCode.UNKNOWN_MEMBER_ID, group_event)
        if tombstones:
            group_event.append_in_parts(group, tombstones)
