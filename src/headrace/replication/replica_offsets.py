# cython: language_level=3, annotation_typing=False, binding=False
"""What the paths of small requests read and move of a replica's state: its offsets, and those of its followers.

The base of `partition_state.PartitionState`, which has all other rules. Compiled, so that these paths read the fields
as C integers, and a fetch of an ISR member moves the high watermark without an object.

    changes      counts the changes of the followers and of the ISR: who keeps a `Follower` compares it
    followers    by broker; each knows whether it is in the ISR, and whether the high watermark waits for it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.types import LeaderEpoch

if TYPE_CHECKING:
    from headrace.replication.isr import IsrState
    from headrace.types import BrokerId

UNKNOWN_OFFSET = -1

INELIGIBLE_MS = 1000
"""How long the high watermark does not wait for a follower after the controller kept it out of the ISR or removed it. A
broker that stops fetches a few more times within this; a live one is still fetching afterwards."""


class ReplicaOffsets:
    """The role, the leader epoch and the offsets of one replica, and of those that follow it."""

    __slots__ = (
        "_followers", "_isr_size", "_isr_state", "_maximal_size", "_progress", "changes", "commits_at_once",
        "commits_by_fetches", "flush_count", "flushed_offset", "high_watermark", "is_leader", "leader_epoch",
        "leading_since", "log_end_offset", "min_insync_replicas",
    )  # fmt: skip

    commits_at_once: bool
    commits_by_fetches: bool
    is_leader: bool
    leader_epoch: LeaderEpoch
    leading_since: LeaderEpoch
    """The leader epoch in which this broker last became leader. It may keep leading in later ones; its records are not
    truncated until it has followed another leader."""
    high_watermark: int
    log_end_offset: int
    flush_count: int
    flushed_offset: int
    min_insync_replicas: int

    def __init__(self, isr_state: IsrState) -> None:
        self.changes = self._isr_size = self._maximal_size = 0
        self._followers: dict[BrokerId, Follower] = {}
        self._progress: list[Follower] = []  # the same, without their ids
        self.isr_state = isr_state

    @property
    def followers(self) -> dict[BrokerId, Follower]:
        """The progress of each follower. The dict itself does not change: another one takes its place."""
        return self._followers

    @followers.setter
    def followers(self, followers: dict[BrokerId, Follower]) -> None:
        self._followers, self._progress = followers, list(followers.values())
        self._note_members()

    @property
    def isr_state(self) -> IsrState:
        """The ISR, and its change that is pending."""
        return self._isr_state

    @isr_state.setter
    def isr_state(self, isr_state: IsrState) -> None:
        self._isr_state, self._isr_size = isr_state, len(isr_state.isr)
        self._note_members()

    def _note_members(self) -> None:
        self.changes += 1
        isr, awaited = self._isr_state.isr, self._isr_state.maximal
        self._maximal_size = len(awaited)
        for broker, each in self._followers.items():
            each.is_in_sync, each.is_awaited = broker in isr, broker in awaited

    def committed_to(self, log_end_offset: int) -> None:
        """Takes in an append that is committed at once (`commits_at_once`)."""
        self.log_end_offset = self.high_watermark = log_end_offset

    def on_leader_append(self, log_end_offset: int, now_ms: int) -> bool:
        """Sets the new log end offset. Whether the whole log is committed."""
        self.log_end_offset = log_end_offset
        if self.commits_at_once:
            self.high_watermark = log_end_offset
            return True
        self.advance_high_watermark(now_ms)
        return self.high_watermark == log_end_offset

    def member_fetched(
        self,
        progress: Follower,
        offset: int,
        now_ms: int,
        log_start_offset: int,
        broker_epoch: int,
        may_join: bool,
    ) -> int:
        """Takes in the fetch of an ISR member as it was registered before: see `PartitionState.follower_fetched`.
        Whether the high watermark moved; -1, with nothing done, for any other follower."""
        if not progress.is_in_sync or progress.broker_epoch != broker_epoch:
            return -1
        progress.is_eligible = may_join and now_ms >= progress.ineligible_until_ms
        progress.log_start_offset = log_start_offset
        progress.fetched(offset, self.log_end_offset, now_ms)
        return self.advance_high_watermark(now_ms)

    def member_is_at_the_end(self, progress: Follower, broker_epoch: int, now_ms: int) -> bool:
        """Whether an ISR member fetches from the log end again; then only its timestamps are updated. This is the fast
        path of idle partitions, which a follower names in every fetch."""
        if (
            progress.log_end_offset != self.log_end_offset
            or progress.broker_epoch != broker_epoch
            or progress.last_fetch_leader_end != self.log_end_offset
            or not progress.is_in_sync
        ):
            return False
        progress.last_fetch_ms = now_ms
        progress.last_caught_up_ms = max(progress.last_caught_up_ms, now_ms)
        return True

    def advance_high_watermark(self, now_ms: int) -> bool:
        """Moves the high watermark to the smallest log end offset that it waits for. Whether it moved."""
        lowest, high_watermark = self.log_end_offset, self.high_watermark
        if lowest - self.flushed_offset >= self.flush_count:
            lowest = self.flushed_offset
        for follower in self._progress:
            if follower.log_end_offset < lowest and (follower.is_awaited or self._is_about_to_join(follower, now_ms)):
                lowest = follower.log_end_offset
                if lowest <= high_watermark:
                    return False
        if lowest <= high_watermark or self._isr_size < self._min_isr():
            return False
        self.high_watermark = lowest
        return True

    def _is_about_to_join(self, follower: Follower, now_ms: int) -> bool:
        """Whether the high watermark waits for a follower that is not yet in the ISR."""
        raise NotImplementedError

    def _min_isr(self) -> int:
        return min(self.min_insync_replicas, len(self._progress) + 1)

    @property
    def effective_min_isr(self) -> int:
        """`min.insync.replicas`, but at most the number of replicas."""
        return self._min_isr()

    @property
    def has_min_isr(self) -> bool:
        """Whether acks=all is possible now; otherwise produces get NOT_ENOUGH_REPLICAS."""
        return self.takes_acks_all()

    def takes_acks_all(self) -> bool:
        """As `has_min_isr`, for compiled code."""
        return self.commits_at_once or self._isr_size >= self._min_isr()

    def is_short(self) -> bool:
        """Whether the ISR, with those that are about to join, is below `min.insync.replicas`."""
        return self._maximal_size < self._min_isr()


class Follower:
    """The progress of a follower, as the leader sees it in its fetches."""

    __slots__ = (
        "broker_epoch", "ineligible_until_ms", "is_awaited", "is_eligible", "is_in_sync", "last_caught_up_ms",
        "last_fetch_leader_end", "last_fetch_ms", "log_end_offset", "log_start_offset",
    )  # fmt: skip

    def __init__(self, last_caught_up_ms: int) -> None:
        self.log_end_offset = self.log_start_offset = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_OFFSET
        """The broker epoch of its registration; -1 from a follower that does not send it."""
        self.last_caught_up_ms = last_caught_up_ms
        self.last_fetch_ms = 0
        self.last_fetch_leader_end = 0
        self.is_eligible = True
        """Whether it may join the ISR, as of its last fetch: registered, and not refused by the controller lately."""
        self.ineligible_until_ms = 0
        self.is_in_sync = self.is_awaited = False
        """Whether it is in the ISR, and whether the high watermark waits for it: kept by `ReplicaOffsets`."""

    def make_ineligible(self, now_ms: int) -> None:
        """Makes the follower ineligible for the ISR for `INELIGIBLE_MS`, or until its broker registers anew."""
        self.is_eligible, self.ineligible_until_ms = False, now_ms + INELIGIBLE_MS

    def fetched(self, offset: int, leader_end: int, now_ms: int) -> None:
        """Takes in a fetch from `offset`: the follower has all records before it. It is caught up if it has reached the
        leader's log end offset of its previous fetch."""
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.last_fetch_leader_end = leader_end
        self.last_fetch_ms = now_ms

    def is_caught_up(self, leader_end: int, now_ms: int, lag_max_ms: int) -> bool:
        """Whether it is at the log end, or was within the last `replica.lag.time.max.ms`."""
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_max_ms
