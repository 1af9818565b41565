# cython: language_level=3, annotation_typing=False, binding=False
"""What an append as leader reads and moves of a replica's state.

The base of `partition_state.PartitionState`, which has all the rules. Compiled, so that the path of small requests
reads the fields as C integers.
"""

from headrace.types import LeaderEpoch


class ReplicaOffsets:
    """The role, the leader epoch and the offsets of one replica."""

    __slots__ = (
        "commits_at_once", "commits_by_fetches", "high_watermark", "is_leader", "leader_epoch", "log_end_offset",
    )  # fmt: skip

    commits_at_once: bool
    commits_by_fetches: bool
    is_leader: bool
    leader_epoch: LeaderEpoch
    high_watermark: int
    log_end_offset: int

    def committed_to(self, log_end_offset: int) -> None:
        """Takes in an append that is committed at once (`commits_at_once`)."""
        self.log_end_offset = self.high_watermark = log_end_offset
