"""One replica of one partition: is it leader or follower, in which epoch, and what is committed.

    0 ........ log start ........ last stable ........ high watermark ........ log end
               |------ readable, read_committed -----|
               |------ readable ------------------------------|--- not yet on every ISR member ---|

The leader's high watermark is the least log end offset among everyone who may be in the ISR, and those who are caught
up and about to join; it never goes back while the leader leads, and stands still below `min.insync.replicas`. With a
single replica it is the log end offset after each append, which is all that `on_leader_append` then does. Where a
topic wants its records flushed (`flush.messages`, or at each acknowledgement), what fills that count is not committed
before the leader's disk has it: the leader counts with its flushed offset instead of its log end, and a follower asks
for what is behind its own only then.

    acks=0, 1   answered after the append
    acks=all    refused before the append when the ISR is below min.insync.replicas (NOT_ENOUGH_REPLICAS); answered
                when the high watermark has passed the batch: every ISR member has it
    Both are answered later where the records have to be flushed first; the caller sees to that.

What the controller says is taken by leader epoch, then partition epoch; older is refused.
Invariants: leader => this broker is in `replicas`; high_watermark <= log_end_offset.
Source: Kafka's `Partition`, `Replica`; KIP-101, KIP-497, KIP-966 (high watermark below min ISR).
Left out: the last stable offset itself, which the log derives from open transactions and `high_watermark`.
"""

from enum import Enum
from typing import NamedTuple

from headrace.errors import ErrorCode
from headrace.limits import INT64_MAX
from headrace.replication.isr import IsrState, PendingExpand, PendingShrink, committed
from headrace.types import NO_EPOCH, NO_LEADER, BrokerId, LeaderEpoch

UNKNOWN_OFFSET = -1


class LeaderAndIsr(NamedTuple):
    """What the controller says about a partition."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    partition_epoch: int
    replicas: tuple[BrokerId, ...]


class Transition(Enum):
    """What hearing from the controller changed."""

    BECAME_LEADER = "became leader"  # a new leader epoch begins here
    BECAME_FOLLOWER = "became follower"  # of another leader, or of the same in a new epoch
    ISR_CHANGED = "isr changed"
    UNCHANGED = "unchanged"
    STALE = "stale"  # older than what is known; nothing was taken over


class AlterIsr(NamedTuple):
    """What to ask the controller for (AlterPartition)."""

    isr: tuple[BrokerId, ...]
    leader_epoch: LeaderEpoch
    partition_epoch: int


class FollowerFetched(NamedTuple):
    """What a follower's fetch changed."""

    high_watermark_moved: bool
    alter: AlterIsr | None = None


class Follower:
    """How far another replica is, as its fetches tell the leader."""

    __slots__ = (
        "broker_epoch", "last_caught_up_ms", "last_fetch_leader_end", "last_fetch_ms", "log_end_offset",
        "log_start_offset",
    )  # fmt: skip

    def __init__(self, last_caught_up_ms: int) -> None:
        self.log_end_offset = self.log_start_offset = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_OFFSET
        """Of its registration; a restart makes it another one. -1 from a follower that does not say."""
        self.last_caught_up_ms = last_caught_up_ms
        self.last_fetch_ms = 0
        self.last_fetch_leader_end = 0

    def fetched(self, offset: int, leader_end: int, now_ms: int) -> None:
        """It asked for `offset`, so it has all before it. Caught up: it reached what was the end when it last asked."""
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.last_fetch_leader_end = leader_end
        self.last_fetch_ms = now_ms

    def is_caught_up(self, leader_end: int, now_ms: int, lag_max_ms: int) -> bool:
        """Whether it is at the end, or was within the last `replica.lag.time.max.ms`."""
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_max_ms


class PartitionState:
    """This broker's replica of one partition."""

    __slots__ = (
        "_alone",
        "epoch_start_offset",
        "flush_count",
        "flushed_offset",
        "followers",
        "high_watermark",
        "is_leader",
        "isr_state",
        "lag_max_ms",
        "leader",
        "leader_epoch",
        "local_id",
        "log_end_offset",
        "min_insync_replicas",
        "partition_epoch",
        "replicas",
    )

    def __init__(
        self,
        local_id: BrokerId,
        *,
        log_end_offset: int = 0,
        high_watermark: int = 0,
        min_insync_replicas: int = 1,
        lag_max_ms: int = 30_000,
        flush_count: int = INT64_MAX,
    ) -> None:
        """`flush_count` records that are not flushed keep the newest of them from being committed."""
        self.local_id = local_id
        self.is_leader = False
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.replicas: tuple[BrokerId, ...] = ()
        self.isr_state: IsrState = committed(())
        self.followers: dict[BrokerId, Follower] = {}
        self.log_end_offset = log_end_offset
        self.high_watermark = min(high_watermark, log_end_offset)
        self.epoch_start_offset = UNKNOWN_OFFSET
        self.min_insync_replicas = min_insync_replicas
        self.lag_max_ms = lag_max_ms
        self.flush_count = flush_count
        self.flushed_offset = log_end_offset
        self._alone = False

    @property
    def isr(self) -> frozenset[BrokerId]:
        """The in-sync replicas that the controller is known to have."""
        return self.isr_state.isr

    # What the controller says

    def apply(self, told: LeaderAndIsr, now_ms: int) -> Transition:
        """Becomes leader or follower, or takes over a new ISR; `log_end_offset` must be current."""
        if told.leader_epoch < self.leader_epoch:
            return Transition.STALE
        new_epoch = told.leader_epoch > self.leader_epoch
        if not new_epoch and told.partition_epoch <= self.partition_epoch:
            return Transition.UNCHANGED if told.partition_epoch == self.partition_epoch else Transition.STALE
        self.leader = told.leader
        self.leader_epoch = told.leader_epoch
        self.partition_epoch = told.partition_epoch
        self.replicas = told.replicas
        self.isr_state = committed(told.isr)
        self.is_leader = told.leader == self.local_id
        if self.is_leader:
            self._lead(told, now_ms, new_epoch)
            return Transition.BECAME_LEADER if new_epoch else Transition.ISR_CHANGED
        self.followers = {}
        self._alone = False
        return Transition.BECAME_FOLLOWER if new_epoch else Transition.ISR_CHANGED

    def step_down(self) -> None:
        """Leads no more: others took this broker for dead, so there is another epoch, of which it has not heard."""
        self.is_leader, self.leader = False, NO_LEADER
        self.followers = {}
        self._alone = False

    def _lead(self, told: LeaderAndIsr, now_ms: int, new_epoch: bool) -> None:
        known = {} if new_epoch else self.followers
        self.followers = {
            broker: known.get(broker) or Follower(now_ms if broker in told.isr else 0)
            for broker in told.replicas
            if broker != self.local_id
        }
        if new_epoch:
            self.epoch_start_offset = self.log_end_offset
        self._alone = not self.followers and self.flush_count == INT64_MAX
        self.advance_high_watermark(now_ms)

    # The leader's log and its followers

    def on_leader_append(self, log_end_offset: int, now_ms: int) -> bool:
        """Takes over the new log end; whether all of the log is committed."""
        self.log_end_offset = log_end_offset
        if self._alone:
            self.high_watermark = log_end_offset
            return True
        self.advance_high_watermark(now_ms)
        return self.high_watermark == log_end_offset

    def on_flush(self, flushed_offset: int, now_ms: int) -> bool:
        """The log is on the disk up to `flushed_offset` (exclusive); whether the high watermark moved."""
        self.flushed_offset = flushed_offset
        return self.is_leader and self.advance_high_watermark(now_ms)

    def set_flush_count(self, flush_count: int, now_ms: int) -> bool:
        """Goes on with another count; whether the high watermark moved. What is committed stays so."""
        self.flush_count = flush_count
        self._alone = self.is_leader and not self.followers and flush_count == INT64_MAX
        return self.is_leader and self.advance_high_watermark(now_ms)

    def follower_fetched(
        self,
        follower: BrokerId,
        offset: int,
        now_ms: int,
        *,
        log_start_offset: int = UNKNOWN_OFFSET,
        broker_epoch: int = UNKNOWN_OFFSET,
        may_join: bool = True,
    ) -> FollowerFetched | None:
        """A follower asked for `offset`; None when it is no replica of this partition, or one of before its restart."""
        progress = self.followers.get(follower)
        if progress is None or UNKNOWN_OFFSET != broker_epoch < progress.broker_epoch:
            return None
        progress.broker_epoch, progress.log_start_offset = broker_epoch, log_start_offset
        progress.fetched(offset, self.log_end_offset, now_ms)
        alter = self._propose_expand(follower, progress) if may_join else None
        return FollowerFetched(self.advance_high_watermark(now_ms), alter)

    def is_still_at_the_end(self, follower: BrokerId, broker_epoch: int, now_ms: int) -> bool:
        """Whether an in-sync follower asks for the log's end as before: then all that changes is when it was seen.
        Most partitions are idle most of the time, and a follower asks for all of them with each fetch."""
        progress, end = self.followers.get(follower), self.log_end_offset
        if (
            progress is None
            or progress.log_end_offset != end
            or progress.broker_epoch != broker_epoch
            or progress.last_fetch_leader_end != end
            or follower not in self.isr_state.isr
        ):
            return False
        progress.last_fetch_ms = now_ms
        progress.last_caught_up_ms = max(progress.last_caught_up_ms, now_ms)
        return True

    # The follower's log

    def on_replicated(self, log_end_offset: int, leader_high_watermark: int) -> None:
        """The log reaches so far, and what the leader has committed of it is committed. What a leader once said is
        committed stays so: a new leader's high watermark may be behind for a moment."""
        self.log_end_offset = log_end_offset
        self.high_watermark = max(self.high_watermark, min(leader_high_watermark, log_end_offset))

    def on_truncated(self, log_start_offset: int, log_end_offset: int) -> None:
        """The log was cut off, or begun anew."""
        self.log_end_offset = log_end_offset
        self.high_watermark = max(log_start_offset, min(self.high_watermark, log_end_offset))

    def advance_high_watermark(self, now_ms: int) -> bool:
        """Moves it to the least log end offset that it waits for; whether it moved."""
        if len(self.isr_state.isr) < self.effective_min_isr:
            return False
        lowest = self.log_end_offset
        if lowest - self.flushed_offset >= self.flush_count:
            lowest = self.flushed_offset
        waits_for = self.isr_state.maximal
        for broker, follower in self.followers.items():
            if follower.log_end_offset < lowest and (broker in waits_for or self._is_about_to_join(follower, now_ms)):
                lowest = follower.log_end_offset
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True

    def _is_about_to_join(self, follower: Follower, now_ms: int) -> bool:
        """Without waiting for it, a busy leader's high watermark would stay out of its reach for ever."""
        return follower.log_end_offset != UNKNOWN_OFFSET and follower.is_caught_up(
            self.log_end_offset, now_ms, self.lag_max_ms
        )

    # Changes of the ISR

    def _propose_expand(self, follower: BrokerId, progress: Follower) -> AlterIsr | None:
        """Asks for a follower that has everything committed, and everything of before this leader's time."""
        state = self.isr_state
        if isinstance(state, PendingExpand | PendingShrink) or follower in state.isr:
            return None
        if progress.log_end_offset < max(self.high_watermark, self.epoch_start_offset):
            return None
        self.isr_state = PendingExpand(state.isr, follower)
        return self.pending_alter()

    def propose_shrink(self, now_ms: int) -> AlterIsr | None:
        """Asks to drop ISR members that have been behind for longer than `replica.lag.time.max.ms`."""
        state = self.isr_state
        if not self.is_leader or isinstance(state, PendingExpand | PendingShrink):
            return None
        leaving = frozenset(
            broker
            for broker, follower in self.followers.items()
            if broker in state.isr and not follower.is_caught_up(self.log_end_offset, now_ms, self.lag_max_ms)
        )
        if not leaving:
            return None
        self.isr_state = PendingShrink(state.isr, leaving)
        return self.pending_alter()

    def pending_alter(self) -> AlterIsr:
        """What the controller is asked for, also when it must be asked again."""
        order = [broker for broker in self.replicas if broker in self.isr_state.proposed]
        return AlterIsr(tuple(order), self.leader_epoch, self.partition_epoch)

    def alter_accepted(self, leader_epoch: int, partition_epoch: int, isr: tuple[BrokerId, ...], now_ms: int) -> bool:
        """The controller's answer; whether the high watermark moved. An answer of another epoch is ignored."""
        if leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self.isr_state = committed(isr)
        return self.advance_high_watermark(now_ms)

    def alter_refused(self, code: ErrorCode) -> bool:
        """The controller's refusal; whether to ask again.

        A fenced or outdated request is left pending: a newer LeaderAndIsr is on its way, and until it is here
        the change may have been made. A follower that may not join is let go.
        """
        if code in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
            self.isr_state = committed(self.isr_state.isr)
            return False
        return code not in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.INVALID_UPDATE_VERSION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NEW_LEADER_ELECTED,
        )

    # Acks

    @property
    def effective_min_isr(self) -> int:
        """`min.insync.replicas`, but never more than there are replicas."""
        return min(self.min_insync_replicas, len(self.followers) + 1)

    @property
    def has_min_isr(self) -> bool:
        """Whether acks=all may be promised now; NOT_ENOUGH_REPLICAS when not."""
        return self._alone or len(self.isr_state.isr) >= self.effective_min_isr

    def acks_all(self, next_offset: int) -> ErrorCode | None:
        """The answer to acks=all for records before `next_offset`; None while it must wait."""
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark < next_offset:
            return None
        return ErrorCode.NONE if self.has_min_isr else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # The follower's log

    def on_follower_append(self, log_end_offset: int, leader_high_watermark: int) -> None:
        """Took over a fetch's answer: what is committed is what the leader says, as far as it is here."""
        self.log_end_offset = log_end_offset
        self.high_watermark = max(self.high_watermark, min(leader_high_watermark, log_end_offset))

    def on_truncate(self, log_end_offset: int) -> None:
        """The log was cut to `log_end_offset`."""
        self.log_end_offset = log_end_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)
