# cython: language_level=3, annotation_typing=False, binding=False
"""What the paths of small requests read and move of a replica's state: its offsets, and those of its followers.

The base of `partition_state.PartitionState`, which has all the rules. Compiled, so that these paths
read the fields as C integers.
"""

from headrace.types import LeaderEpoch

UNKNOWN_OFFSET = -1

INELIGIBLE_MS = 1000
"""How long the high watermark does not wait for a follower after the controller kept it out of the ISR or removed it. A
broker that stops fetches a few more times within this; a live one is still fetching afterwards."""


class ReplicaOffsets:
    """The role, the leader epoch and the offsets of one replica."""

    __slots__ = (
        "commits_at_once", "commits_by_fetches", "high_watermark", "is_leader", "leader_epoch", "leading_since",
        "log_end_offset",
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

    def committed_to(self, log_end_offset: int) -> None:
        """Takes in an append that is committed at once (`commits_at_once`)."""
        self.log_end_offset = self.high_watermark = log_end_offset


class Follower:
    """The progress of a follower, as the leader sees it in its fetches."""

    __slots__ = (
        "broker_epoch", "ineligible_until_ms", "is_eligible", "last_caught_up_ms", "last_fetch_leader_end",
        "last_fetch_ms", "log_end_offset", "log_start_offset",
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
