"""The share partitions that this broker leads: loads, changes, stores and drops them.

    first fetch    ─▶ read their state from the persister, find the start offset ─▶ active
    acknowledgements, released locks, ended sessions ─▶ writes, one at a time for each share partition
    another leader epoch, a deleted topic, a state that is fenced, the group's last session ends ─▶ dropped

Share fetches wait for a share partition under its key, and for the log under the partition's.
Source: Kafka's SharePartitionManager, SharePartitionCache.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from typing import TypeVar

from headrace.broker.partitions.partition import Partition
from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.broker.share.share_counts import ShareCounts
from headrace.broker.share.share_sessions import ShareSession, ShareSessionCache
from headrace.broker.share.start_offset import find_start_offset
from headrace.coordinators.deadlines import Deadlines
from headrace.coordinators.share_partitions.acknowledgement import Acknowledged, acknowledge
from headrace.coordinators.share_partitions.records import RecordTransition
from headrace.coordinators.share_partitions.share_partition import (
    InconsistentState,
    ShareLimits,
    SharePartition,
    StateWrite,
)
from headrace.coordinators.share_state.persister import (
    NO_START_OFFSET,
    Persister,
    PersisterOutcome,
    SharePartitionKey,
    StateUpdate,
    TopicIdPartition,
)
from headrace.errors import ErrorCode, KafkaError, NotLeaderOrFollower, UnknownTopicOrPartition
from headrace.limits import SHARE_PARTITIONS_MAX, SHARE_STATE_BATCHES_MAX
from headrace.metadata.group_configs import GroupConfigs
from headrace.types import TopicPartition

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
Done = Callable[["KafkaError | None"], None]
READ_COMMITTED = "read_committed"

_FENCING = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors after which a share partition is read anew."""
_ERRORS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""The persister's errors, as clients get them."""


def _client_error(error: ErrorCode, message: str | None) -> KafkaError:
    return KafkaError(message or "", _ERRORS.get(error, ErrorCode.UNKNOWN_SERVER_ERROR))


class LedSharePartition:
    """A share partition of a partition that this broker leads."""

    __slots__ = (
        "error", "is_fetching", "is_writing", "key", "leader_epoch", "owner", "partition", "state", "state_epoch",
        "waiting",
    )  # fmt: skip

    def __init__(self, key: SharePartitionKey, partition: Partition, owner: str) -> None:
        """`owner`: the instance of the group; empty for the operator's."""
        self.key, self.partition, self.owner = key, partition, owner
        self.leader_epoch = partition.leader_epoch
        self.state: SharePartition | None = None
        """None until it is loaded."""
        self.state_epoch = 0
        self.error: KafkaError | None = None
        """Why the share partition was dropped; None while it is in use."""
        self.is_fetching = False
        """Whether a fetch reads its log on a thread: others wait."""
        self.is_writing = False
        self.waiting: dict[RecordTransition, Done] = {}


class ShareManager:
    """All share partitions and share sessions of one broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        persister: Callable[[], Persister],
        group_configs: GroupConfigs,
        *,
        sessions_max: int,
        owner_of: Callable[[str], str] = lambda _group_id: "",
        touch: Callable[[Hashable], None],
        spawn: Callable[[Coroutine[object, object, None]], object],
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
    ) -> None:
        """`sessions_max`: of each owner of groups. `owner_of`: the instance of a group; empty for the operator's.
        `now_ms` is the wall clock, for offsets by time; locks are measured by the event loop's."""
        self.sessions = ShareSessionCache(sessions_max, owner_of=owner_of)
        self._owner_of = owner_of
        self._owned: Counter[str] = Counter()  # share partitions in use, by owner
        self.counts = ShareCounts()
        self._replicas, self._persister, self._group_configs = replicas, persister, group_configs
        self._touch, self._spawn, self._loop, self._now_ms = touch, spawn, loop, now_ms
        self._led: dict[SharePartitionKey, LedSharePartition] = {}
        self._by_partition: dict[TopicPartition, set[SharePartitionKey]] = {}
        self._by_group: dict[str, set[SharePartitionKey]] = {}
        self._ending: dict[SharePartitionKey, asyncio.Future[None]] = {}
        """Share partitions that were dropped while they stored something, until that has ended."""
        self._limits: dict[str, ShareLimits] = {}
        self._locks: Deadlines[SharePartitionKey] = Deadlines()
        self._timer: asyncio.Handle | None = None
        self._timer_ms = 0
        group_configs.on_change(self._reconfigured)

    def close(self) -> None:
        """Stops the timer of locks."""
        if self._timer is not None:
            self._timer.cancel()

    def clock_ms(self) -> int:
        """The time by which locks are measured."""
        return int(self._loop.time() * 1000)

    def __len__(self) -> int:
        return len(self._led)

    @property
    def share_partitions(self) -> Iterable[LedSharePartition]:
        """The share partitions in use."""
        return self._led.values()

    # Settings of groups

    def limits(self, group_id: str) -> ShareLimits:
        """What a group's share partitions follow."""
        found = self._limits.get(group_id)
        if found is None:
            configs = self._group_configs
            found = ShareLimits(
                configs.number(group_id, "share.delivery.count.limit"),
                configs.number(group_id, "share.partition.max.record.locks"),
                configs.number(group_id, "share.record.lock.duration.ms"),
                bool(configs.value(group_id, "share.renew.acknowledge.enable")),
            )
            if self.sessions.has_group(group_id):
                self._limits[group_id] = found
        return found

    def is_committed_only(self, group_id: str) -> bool:
        """Whether a group gets no records of open and aborted transactions."""
        return self._group_configs.value(group_id, "share.isolation.level") == READ_COMMITTED

    def _reconfigured(self, group_id: str) -> None:
        self._limits.pop(group_id, None)
        for key in self._by_group.get(group_id, ()):
            state = self._led[key].state
            if state is not None:
                state.limits = self.limits(group_id)
            self._touch(key)

    # Loading and dropping

    def find(self, key: SharePartitionKey) -> LedSharePartition | None:
        """The share partition, if it is in use."""
        return self._led.get(key)

    def use(self, key: SharePartitionKey, topic: str) -> LedSharePartition:
        """The share partition; begins to load it if need be. Raises NOT_LEADER_OR_FOLLOWER and the like."""
        found = self._led.get(key)
        if found is not None:
            return found
        partition = self._replicas.leader(topic, key.partition)
        if partition.log.topic_id not in (key.topic_id, None):
            raise UnknownTopicOrPartition(f"{partition.key} has another topic id than the request")
        owner = self._owner_of(key.group_id)
        if self._owned[owner] >= SHARE_PARTITIONS_MAX:
            raise KafkaError(
                f"this broker has {SHARE_PARTITIONS_MAX} share partitions in use", ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
        led = self._led[key] = LedSharePartition(key, partition, owner)
        self._owned[owner] += 1
        self._by_partition.setdefault(partition.key, set()).add(key)
        self._by_group.setdefault(key.group_id, set()).add(key)
        self._spawn(self._load(led))
        return led

    async def _load(self, led: LedSharePartition) -> None:
        key = led.key
        at = TopicIdPartition(key.topic_id, key.partition)
        began_s = self._loop.time()
        try:
            if (ending := self._ending.get(key)) is not None:
                await asyncio.wait((ending,))  # else its writes would follow what is read here
            read = (await self._persister().read(key.group_id, {at: led.leader_epoch}))[at]
            if read.error:
                raise _client_error(read.error, read.message)
            start_offset = read.start_offset
            if start_offset == NO_START_OFFSET:
                reset = str(self._group_configs.value(key.group_id, "share.auto.offset.reset"))
                start_offset = await find_start_offset(led.partition, reset, self._now_ms())
            if led.error is None:
                led.state = SharePartition(start_offset, read.state_batches, self.limits(key.group_id))
                led.state_epoch = read.state_epoch
                self.counts.loaded += 1
                self.counts.load_ns += int((self._loop.time() - began_s) * 1e9)
        except (KafkaError, InconsistentState, OSError) as error:
            log.info("share partition %s-%s of group %s cannot be read: %s", led.partition.key, at, key.group_id, error)
            self.drop(led, error if isinstance(error, KafkaError) else KafkaError(str(error)))
        except Exception:
            self._failed(led, "loaded")
        self._touch(key)

    def drop(self, led: LedSharePartition, error: KafkaError) -> None:
        """Forgets a share partition. Writes that are under way go on, and answer those that wait for them; the share
        partition is read anew after their end only."""
        if led.error is not None:
            return
        led.error = error
        del self._led[led.key]
        self._owned[led.owner] -= 1
        if not self._owned[led.owner]:
            del self._owned[led.owner]
        if led.is_writing:
            self._ending[led.key] = self._loop.create_future()
        self._locks.cancel(led.key)
        _discard(self._by_partition, led.partition.key, led.key)
        _discard(self._by_group, led.key.group_id, led.key)
        self._touch(led.key)

    def leadership_changed(self, key: TopicPartition, partition: Partition | None) -> None:
        """Drops the share partitions of a partition that this broker leads no more, or in another leader epoch: another
        leader may have stored more in between."""
        for each in list(self._by_partition.get(key, ())):
            led = self._led[each]
            if partition is not led.partition or not partition.is_leader or partition.leader_epoch != led.leader_epoch:
                self.drop(led, NotLeaderOrFollower(f"the leader of {key} has changed"))

    # Sessions

    def disconnected(self, connection: Hashable) -> None:
        """Ends the sessions of a connection that has closed."""
        for session in self.sessions.of_connection(connection):
            self.end_session(session)
        self._drop_groups(self.sessions.closed(connection))

    def _drop_groups(self, group_ids: Iterable[str]) -> None:
        """Forgets groups without a session."""
        for group_id in group_ids:
            self._limits.pop(group_id, None)
            for key in list(self._by_group.get(group_id, ())):
                self.drop(
                    self._led[key], KafkaError("the group has no share session", ErrorCode.SHARE_SESSION_NOT_FOUND)
                )

    def end_session(self, session: ShareSession) -> None:
        """Ends a session, and releases what its member holds."""
        self.sessions.end(session)
        for at in session.partitions:
            led = self._led.get(SharePartitionKey(session.group_id, *at))
            if led is not None and led.state is not None:
                led.state.release(session.member_id)
                self.changed(led)
        self._drop_groups(self.sessions.left())

    # Changes

    def acknowledge(
        self, led: LedSharePartition, member: str, acknowledged: Sequence[Acknowledged], done: Done
    ) -> None:
        """Acknowledges records; calls `done` with the error, or None, maybe at once."""
        if led.state is None:
            done(UnknownTopicOrPartition("This server does not host this topic-partition."))
            return
        try:
            transition = acknowledge(led.state, member, acknowledged, self.clock_ms())
        except KafkaError as error:
            self.changed(led)
            done(error)
            return
        self.counts.acknowledge(acknowledged)
        if transition is None:
            done(None)
        else:
            led.waiting[transition] = done
        self.changed(led)

    def changed(self, led: LedSharePartition) -> None:
        """Stores what a share partition has to store, watches its locks, and wakes fetches that wait for it."""
        state = led.state
        if state is None:
            return
        if state.is_changed:
            state.is_changed = False
            self._touch(led.key)
        if state.writes and not led.is_writing:
            led.is_writing = True
            self._spawn(self._write(led, state))
        if state.next_lock_ms is not None and led.error is None:
            self._watch(led.key, state.next_lock_ms)

    async def _write(self, led: LedSharePartition, state: SharePartition) -> None:
        key = led.key
        at = TopicIdPartition(key.topic_id, key.partition)
        try:
            while state.writes:
                writes = _next_writes(state)
                update = StateUpdate(
                    led.state_epoch,
                    led.leader_epoch,
                    state.start_offset,
                    state.delivery_complete_count,
                    tuple(batch for write in writes for batch in write.batches),
                )
                outcome = (await self._persister().write(key.group_id, {at: update}))[at]
                self._written(led, state, writes, outcome)
        except Exception:
            self._failed(led, "stored")
        finally:
            led.is_writing = False
            if led.error is not None and (ending := self._ending.pop(key, None)) is not None:
                ending.set_result(None)

    def _failed(self, led: LedSharePartition, what: str) -> None:
        """Drops a share partition after an exception, which is a bug of the broker: others go on."""
        log.exception("share partition %s of group %s could not be %s", led.partition.key, led.key.group_id, what)
        error = KafkaError("the share partition failed")
        self.drop(led, error)
        waiting, led.waiting = led.waiting, {}
        for done in waiting.values():
            done(error)

    def _written(
        self, led: LedSharePartition, state: SharePartition, writes: Iterable[StateWrite], outcome: PersisterOutcome
    ) -> None:
        error = _client_error(outcome.error, outcome.message) if outcome.error else None
        now_ms = self.clock_ms()
        for write in writes:
            state.stored(write, now_ms, is_stored=error is None)
            done = led.waiting.pop(write.transition, None) if write.transition is not None else None
            if done is not None:
                done(error)
        if error is not None:
            log.info(
                "the state of share partition %s of group %s is not stored: %s",
                led.partition.key,
                led.key.group_id,
                error,
            )
            if error.code in _FENCING:
                self.drop(led, error)
        self.changed(led)

    # Locks

    def _watch(self, key: SharePartitionKey, at_ms: int) -> None:
        self._locks.set(key, at_ms)
        if self._timer is None or at_ms < self._timer_ms:
            self._set_timer(at_ms)

    def _set_timer(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = at_ms
        self._timer = self._loop.call_at(at_ms / 1000 + 0.001, self._release_expired)

    def _release_expired(self) -> None:
        self._timer = None
        now_ms = self.clock_ms()
        key = self._locks.pop_due(now_ms)
        if key is not None:
            led = self._led[key]
            if led.state is not None:
                self.counts.lock_timeouts += led.state.release_expired(now_ms)
                self.changed(led)
        next_ms = self._locks.next_ms()
        if next_ms is not None:
            self._set_timer(next_ms)  # one share partition in a turn: each may have thousands of records


def _next_writes(state: SharePartition) -> list[StateWrite]:
    """Takes as many writes as one request may hold."""
    count, size = 0, 0
    for write in state.writes:
        size += len(write.batches)
        if count and size > SHARE_STATE_BATCHES_MAX:
            break
        count += 1
    taken = state.writes[:count]
    del state.writes[:count]
    return taken


def _discard(index: dict[K, set[SharePartitionKey]], name: K, key: SharePartitionKey) -> None:
    keys = index[name]
    keys.discard(key)
    if not keys:
        del index[name]
