"""What a follower does with its leader's answers. Pure: what it has and what it is told in, what to do out.

    records               Append: behind what it has; the high watermark and the log's start follow the leader's
    a diverging epoch     Truncate: its log is not the leader's from there on (KIP-101, 279, 595); then ask again
    OFFSET_OUT_OF_RANGE   AskOffsets: where does the leader's log begin and end? `out_of_range` decides with the answer
    anything else         BackOff: this partition is asked for again after `replica.fetch.backoff.ms`

A follower that comes back is truncated by what the leader's epochs say, never to its own high watermark: that lags
behind the leader's, so records that are committed could be above it (the loss that KIP-101 describes).

The epochs that count are those of records. Apache Kafka notes an epoch also when its leader's term begins; an epoch
without a record changes no answer to "where does epoch E end?": it would end where the next one begins.
Source: Kafka's AbstractFetcherThread, ReplicaFetcherThread.
"""

from collections.abc import Callable
from typing import NamedTuple

from headrace.errors import ErrorCode

UNKNOWN = -1


class EpochEnd(NamedTuple):
    """Where an epoch ends (exclusive) in a log; both -1 when that is not known."""

    epoch: int
    end_offset: int


class Append(NamedTuple):
    """Take the records over, if there are any, and the leader's high watermark and log start."""


class Truncate(NamedTuple):
    """Drop everything from `offset` on."""

    offset: int


class Restart(NamedTuple):
    """Drop everything, and go on at `offset`."""

    offset: int


class AskOffsets(NamedTuple):
    """Ask the leader where its log begins and ends."""


class BackOff(NamedTuple):
    """Leave the partition alone for a while."""

    code: ErrorCode


Action = Append | Truncate | AskOffsets | BackOff


def on_answer(
    error_code: int, diverging: EpochEnd, log_end_offset: int, end_of_epoch: Callable[[int], EpochEnd]
) -> Action:
    """What to do with a partition's part of the leader's answer; `diverging` is (-1, -1) where the logs agree.

    `end_of_epoch` is the follower's own log: the largest epoch not above the one asked for, and where that ends.
    """
    if error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return AskOffsets()
    if error_code:
        return BackOff(ErrorCode(error_code))
    if diverging.epoch >= 0 or diverging.end_offset >= 0:
        return Truncate(truncation(diverging, log_end_offset, end_of_epoch))
    return Append()


def truncation(leader_end: EpochEnd, log_end_offset: int, end_of_epoch: Callable[[int], EpochEnd]) -> int:
    """Where to truncate, when the leader has said where an epoch of the follower's ends on its side.

    The leader may answer with an older epoch than was asked for, one that the follower does not know: then what the
    follower has of the epochs above the next older one that it knows goes, and the leader is asked again (KIP-279).
    """
    if leader_end.end_offset == UNKNOWN:
        return log_end_offset
    if leader_end.epoch == UNKNOWN:
        return min(leader_end.end_offset, log_end_offset)
    own = end_of_epoch(leader_end.epoch)
    if own.end_offset == UNKNOWN:  # no epoch is known here: older formats, or an empty log
        return min(leader_end.end_offset, log_end_offset)
    if own.epoch != leader_end.epoch:
        return min(own.end_offset, log_end_offset)
    return min(own.end_offset, leader_end.end_offset, log_end_offset)


def out_of_range(leader_start: int, leader_end: int, log_end_offset: int) -> Truncate | Restart:
    """Where to go on, when the leader does not have the offset that it was asked for.

    It ends before: an unclean election made it leader, and what it does not have is lost. It begins behind: its
    retention was faster than this follower. Else it has the offset by now, and nothing is dropped.
    """
    if leader_end < log_end_offset:
        return Truncate(leader_end)
    if leader_start > log_end_offset:
        return Restart(leader_start)
    return Truncate(log_end_offset)
