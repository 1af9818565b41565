"""The replication state of one partition on this broker: role, leader epoch, followers, high watermark.

    0 ........ log start ........ last stable ........ high watermark ........ log end
               |------ readable, read_committed -----|
               |------ readable ------------------------------|--- not yet on every ISR member ---|

The leader's high watermark is the smallest log end offset of all replicas that may be in the ISR, and of eligible
followers that are caught up and about to join. It never goes back while the leader leads, and does not advance below
`min.insync.replicas`. With a single replica it is the log end offset after each append, and `on_leader_append` does
nothing else. If a topic requires flushed records (`flush.messages`, or a flush before each acknowledgement), then as
soon as that many records are unflushed, the leader counts with its flushed offset instead of its log end offset, and
a follower sends its next fetch only after its own flush.

    acks=0, 1   answered after the append
    acks=all    refused before the append if the ISR is below min.insync.replicas (NOT_ENOUGH_REPLICAS); answered
                once the high watermark has passed the batch, so that every ISR member has it
    Both wait for a flush if the records must be flushed first. `commit_wait` has the rule.

Requests of the controller are ordered by leader epoch, then partition epoch; older ones are refused.
Invariants: the leader is in `replicas`; high_watermark <= log_end_offset.
Source: Kafka's `Partition`, `Replica`; KIP-101, KIP-497, KIP-966 (high watermark below min ISR).
Left out: the last stable offset itself, which the log derives from open transactions and `high_watermark`.
"""

from enum import Enum
from typing import NamedTuple

from headrace.errors import ErrorCode
from headrace.limits import INT64_MAX
from headrace.replication.isr import PendingExpand, PendingShrink, committed
from headrace.replication.replica_offsets import UNKNOWN_OFFSET, Follower, ReplicaOffsets
from headrace.types import NO_EPOCH, NO_LEADER, BrokerId, LeaderEpoch


class LeaderAndIsr(NamedTuple):
    """The state of a partition that the controller sent."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    partition_epoch: int
    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    """The replicas that a reassignment adds."""


class Transition(Enum):
    """The effect of a state that the controller sent."""

    BECAME_LEADER = "became leader"  # a new leader epoch begins here
    BECAME_FOLLOWER = "became follower"  # of another leader, or of the same one in a new epoch
    ISR_CHANGED = "isr changed"
    UNCHANGED = "unchanged"
    STALE = "stale"  # older than the known state, and ignored


class AlterIsr(NamedTuple):
    """The ISR change to request from the controller (AlterPartition)."""

    isr: tuple[BrokerId, ...]
    leader_epoch: LeaderEpoch
    partition_epoch: int


class FollowerFetched(NamedTuple):
    """The effect of a follower's fetch."""

    high_watermark_moved: bool
    alter: AlterIsr | None = None


class PartitionState(ReplicaOffsets):
    """This broker's replica of one partition."""

    __slots__ = (
        "epoch_start_offset",
        "lag_max_ms",
        "leader",
        "local_id",
        "partition_epoch",
        "replicas",
        "settled_replicas",
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
        """`flush_count`: the number of unflushed records from which on they are not committed before a flush."""
        super().__init__(committed(()))
        self.local_id = local_id
        self.is_leader = False
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.leading_since = NO_EPOCH
        self.partition_epoch = -1
        self.replicas: tuple[BrokerId, ...] = ()
        self.settled_replicas = 0
        """The number of replicas without those that a reassignment adds."""
        self.log_end_offset = log_end_offset
        self.high_watermark = min(high_watermark, log_end_offset)
        self.epoch_start_offset = UNKNOWN_OFFSET
        self.min_insync_replicas = min_insync_replicas
        self.lag_max_ms = lag_max_ms
        self.flush_count = flush_count
        self.flushed_offset = log_end_offset
        self.commits_at_once = False
        """Whether this broker leads the partition without followers and without flushes to wait for."""
        self.commits_by_fetches = False
        """Whether this broker leads it with followers, and without flushes to wait for."""

    @property
    def isr(self) -> frozenset[BrokerId]:
        """The in-sync replicas that the controller is known to have."""
        return self.isr_state.isr

    # Requests of the controller

    def apply(self, state: LeaderAndIsr, now_ms: int) -> Transition:
        """Makes this replica leader or follower, or updates the ISR. `log_end_offset` must be current."""
        if state.leader_epoch < self.leader_epoch:
            return Transition.STALE
        new_epoch = state.leader_epoch > self.leader_epoch
        if not new_epoch and state.partition_epoch <= self.partition_epoch:
            return Transition.UNCHANGED if state.partition_epoch == self.partition_epoch else Transition.STALE
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = state.replicas
        self.settled_replicas = len(state.replicas) - len(state.adding)
        left = self.isr_state.isr - set(state.isr)
        self.isr_state = committed(state.isr)
        was_leader, self.is_leader = self.is_leader, state.leader == self.local_id
        if self.is_leader:
            if not was_leader:
                self.leading_since = state.leader_epoch
            self._lead(state, left, now_ms, new_epoch)
            return Transition.BECAME_LEADER if new_epoch else Transition.ISR_CHANGED
        self.followers = {}
        self.commits_at_once = self.commits_by_fetches = False
        return Transition.BECAME_FOLLOWER if new_epoch else Transition.ISR_CHANGED

    def step_down(self) -> None:
        """Stops leading, because this broker was fenced: there is a newer leader epoch that it does not know."""
        self.is_leader, self.leader = False, NO_LEADER
        self.followers = {}
        self.commits_at_once = self.commits_by_fetches = False

    def _lead(self, state: LeaderAndIsr, left: frozenset[BrokerId], now_ms: int, new_epoch: bool) -> None:
        known = {} if new_epoch else self.followers
        self.followers = {
            broker: known.get(broker) or Follower(now_ms if broker in state.isr else 0)
            for broker in state.replicas
            if broker != self.local_id
        }
        for broker in left & self.followers.keys():
            self.followers[broker].make_ineligible(now_ms)
        if new_epoch:
            self.epoch_start_offset = self.log_end_offset
        self._note_how_it_commits()
        self.advance_high_watermark(now_ms)

    def _note_how_it_commits(self) -> None:
        is_plain = self.is_leader and self.flush_count == INT64_MAX
        self.commits_at_once, self.commits_by_fetches = (
            is_plain and not self.followers,
            is_plain and bool(self.followers),
        )

    # The leader's log and its followers

    def on_flush(self, flushed_offset: int, now_ms: int) -> bool:
        """Sets the flushed offset (exclusive). Whether the high watermark moved."""
        self.flushed_offset = flushed_offset
        return self.is_leader and self.advance_high_watermark(now_ms)

    def set_flush_count(self, flush_count: int, now_ms: int) -> bool:
        """Sets the flush count. Whether the high watermark moved; it never goes back."""
        self.flush_count = flush_count
        self._note_how_it_commits()
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
        """Takes in a follower's fetch from `offset`. None if the follower is no replica of this partition, or the fetch
        is from an earlier registration of its broker.

        `may_join`: whether its broker is registered, as far as this broker knows."""
        progress = self.followers.get(follower)
        if progress is None or UNKNOWN_OFFSET != broker_epoch < progress.broker_epoch:
            return None
        moved = self.member_fetched(progress, offset, now_ms, log_start_offset, broker_epoch, may_join)
        if moved >= 0:
            return FollowerFetched(moved > 0)
        is_restarted = UNKNOWN_OFFSET != progress.broker_epoch != broker_epoch
        progress.is_eligible = may_join and (is_restarted or now_ms >= progress.ineligible_until_ms)
        if is_restarted:
            progress.ineligible_until_ms = 0
        progress.broker_epoch, progress.log_start_offset = broker_epoch, log_start_offset
        progress.fetched(offset, self.log_end_offset, now_ms)
        may_join = may_join and follower not in self.isr_state.isr
        alter = self._propose_expand(follower, progress) if may_join else None
        return FollowerFetched(self.advance_high_watermark(now_ms), alter)

    def is_still_at_the_end(self, follower: BrokerId, broker_epoch: int, now_ms: int) -> bool:
        """See `member_is_at_the_end`."""
        progress = self.followers.get(follower)
        return progress is not None and self.member_is_at_the_end(progress, broker_epoch, now_ms)

    # The follower's log

    def on_replicated(self, log_end_offset: int, leader_high_watermark: int) -> None:
        """Sets the log end offset after an append, and raises the high watermark to the leader's. It never goes back:
        a new leader's high watermark may be behind for a moment."""
        self.log_end_offset = log_end_offset
        self.high_watermark = max(self.high_watermark, min(leader_high_watermark, log_end_offset))

    def on_truncated(self, log_start_offset: int, log_end_offset: int) -> None:
        """Sets the offsets after the log was truncated or deleted."""
        self.log_end_offset = log_end_offset
        self.high_watermark = max(log_start_offset, min(self.high_watermark, log_end_offset))

    def _is_about_to_join(self, follower: Follower, now_ms: int) -> bool:
        """Whether the high watermark waits for a follower that is caught up but not yet in the ISR.

        Without the wait, the follower could never reach the high watermark of a busy leader, and never join. Waiting
        for an ineligible follower would stall acks=all until it counts as lagging. Source: Kafka's
        `shouldWaitForReplicaToJoinIsr`.
        """
        return (
            follower.is_eligible
            and follower.log_end_offset != UNKNOWN_OFFSET
            and follower.is_caught_up(self.log_end_offset, now_ms, self.lag_max_ms)
        )

    def follower_gone(self, follower: BrokerId, now_ms: int) -> bool:
        """Makes a follower ineligible whose broker is no longer registered. Whether the high watermark moved."""
        progress = self.followers.get(follower)
        if progress is None or not progress.is_eligible:
            return False
        progress.is_eligible = False
        return self.is_leader and self.advance_high_watermark(now_ms)

    # Changes of the ISR

    def _propose_expand(self, follower: BrokerId, progress: Follower) -> AlterIsr | None:
        """Proposes a follower for the ISR if it has all committed records, and all from before this leader epoch."""
        state = self.isr_state
        if isinstance(state, PendingExpand | PendingShrink) or follower in state.isr:
            return None
        if progress.log_end_offset < max(self.high_watermark, self.epoch_start_offset):
            return None
        self.isr_state = PendingExpand(state.isr, follower)
        return self.pending_alter()

    def propose_shrink(self, now_ms: int) -> AlterIsr | None:
        """Proposes to remove ISR members that have lagged for longer than `replica.lag.time.max.ms`."""
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
        """The pending ISR change, to send or to send again."""
        order = [broker for broker in self.replicas if broker in self.isr_state.proposed]
        return AlterIsr(tuple(order), self.leader_epoch, self.partition_epoch)

    def alter_accepted(self, leader_epoch: int, partition_epoch: int, isr: tuple[BrokerId, ...], now_ms: int) -> bool:
        """Takes in the ISR that the controller granted. Whether the high watermark moved. Ignores other epochs."""
        if leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self.isr_state = committed(isr)
        return self.advance_high_watermark(now_ms)

    def alter_refused(self, code: ErrorCode, now_ms: int) -> bool:
        """Takes in the controller's refusal. Whether to ask again; the high watermark may have moved.

        A fenced or outdated change stays pending: a newer LeaderAndIsr is on its way, and until it arrives the change
        may have been made. An ineligible follower is dropped from the change, and the high watermark does not wait for
        it.
        """
        if code in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
            if isinstance(self.isr_state, PendingExpand) and code is ErrorCode.INELIGIBLE_REPLICA:
                joining = self.followers.get(self.isr_state.joining)
                if joining is not None:
                    joining.make_ineligible(now_ms)
            self.isr_state = committed(self.isr_state.isr)
            self.advance_high_watermark(now_ms)
            return False
        return code not in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.INVALID_UPDATE_VERSION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NEW_LEADER_ELECTED,
        )
