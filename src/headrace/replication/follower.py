"""Follower logic: decides how a follower acts on its leader's Fetch response. Pure.

    records               FollowerAppend: after the log's end; high watermark and log start offset follow the leader's
    diverging epoch       Truncate: the logs differ from there on (KIP-101, KIP-279, KIP-595); then fetch again
    epoch -1 as diverging Compare: the leader's log has no epochs there
    OFFSET_OUT_OF_RANGE   RequestOffsets: ask for the start and end of the leader's log; `out_of_range` decides
    any other error       BackOff: fetch this partition again after `replica.fetch.backoff.ms`

A returning follower truncates by the leader's epochs, not to its own high watermark. Its high watermark lags behind the
leader's, so committed records may be above it, and would be lost (KIP-101).

Messages of formats before 2 have no epoch. If the follower's log ends with one, or the leader has one there, only the
log below the high watermark is known to be the same in both. Such a follower compares the rest with its leader's log,
byte for byte, once in each leader epoch:

    log start ......... high watermark ........ compared ........ log end
        | known to be the same | found to be the same | not known yet |

It fetches from the high watermark on, and the fetch offset is the end of what it has compared. So the leader does not
count what may differ. The follower truncates its log to the end of the leader's, and at the first difference. It never
removes records that both have. Before the comparison has ended it still has all its records: if it is elected then,
nothing is lost. Apache Kafka's followers truncate to the high watermark, and lose the committed records above it if the
leader fails before they have fetched them again.

A comparison cannot find differences below the high watermark, which only an unclean election can make. Compaction may
have changed records of the leader that the follower has above its high watermark. They count as different.

Only epochs of records count. Apache Kafka also records an epoch when its leader is elected. An epoch without records
does not change the answer to "where does epoch E end?", because it ends where the next one begins.
Source: Kafka's AbstractFetcherThread, ReplicaFetcherThread.
"""

from collections.abc import Callable
from typing import NamedTuple

from headrace.errors import ErrorCode, known_code

UNKNOWN = -1


class EpochEnd(NamedTuple):
    """The end offset (exclusive) of an epoch in a log; both -1 if it is not known."""

    epoch: int
    end_offset: int


class FollowerAppend(NamedTuple):
    """Append the records, if any, and take over the leader's high watermark and log start offset.

    During a comparison the records are compared up to the end of the log, and only those behind it are appended.
    """


class Truncate(NamedTuple):
    """Truncate the log to `offset` (exclusive)."""

    offset: int


class Restart(NamedTuple):
    """Delete the whole log, and continue at `offset`."""

    offset: int


class Compare(NamedTuple):
    """Compare the log with the leader's records from `offset` on."""

    offset: int


class RequestOffsets(NamedTuple):
    """Ask the leader for the start and end offsets of its log."""


class BackOff(NamedTuple):
    """Do not fetch the partition for a while."""

    code: ErrorCode


Action = FollowerAppend | Truncate | Compare | RequestOffsets | BackOff


def comparison_start(last_epoch: int, log_end_offset: int, high_watermark: int) -> int | None:
    """The offset from which a follower has to compare its log with the leader's; None if it does not have to.

    `last_epoch` is the epoch of the log's last record, -1 if it has none.
    """
    return high_watermark if last_epoch == UNKNOWN and high_watermark < log_end_offset else None


def on_answer(
    error_code: int,
    diverging: EpochEnd,
    log_end_offset: int,
    high_watermark: int,
    end_of_epoch: Callable[[int], EpochEnd],
) -> Action:
    """The action for one partition of the leader's response. `diverging` is (-1, -1) if the logs do not diverge.

    `end_of_epoch` looks in the follower's log: it returns the largest epoch not above the given one, and its end.
    """
    if error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return RequestOffsets()
    if error_code:
        return BackOff(known_code(error_code))
    if diverging.epoch >= 0 or diverging.end_offset >= 0:
        return truncation(diverging, log_end_offset, high_watermark, end_of_epoch)
    return FollowerAppend()


def truncation(
    leader_end: EpochEnd, log_end_offset: int, high_watermark: int, end_of_epoch: Callable[[int], EpochEnd]
) -> Truncate | Compare:
    """Where to truncate the log, given the end of the follower's epoch in the leader's log.

    The leader may return an epoch older than the requested one that the follower does not have. Then the follower
    truncates everything above the next older epoch that it has, and asks again (KIP-279). If the leader's log has no
    epochs there, the follower has to compare.
    """
    if leader_end.epoch == UNKNOWN or leader_end.end_offset == UNKNOWN:
        return Compare(min(high_watermark, log_end_offset))
    own = end_of_epoch(leader_end.epoch)
    if own.end_offset == UNKNOWN:  # no epoch is known here: older formats, or an empty log
        return Truncate(min(leader_end.end_offset, log_end_offset))
    if own.epoch != leader_end.epoch:
        return Truncate(min(own.end_offset, log_end_offset))
    return Truncate(min(own.end_offset, leader_end.end_offset, log_end_offset))


def out_of_range(
    leader_start: int, leader_end: int, log_end_offset: int, compared: int | None = None
) -> Truncate | Restart | Compare:
    """Where to continue if the leader does not have the requested offset.

    If the leader's log ends before it, the leader was elected uncleanly, and the records that it lacks are lost. If the
    log starts after it, retention was faster than this follower; records that both still have are compared. Otherwise
    the leader has the offset by now. `compared` is the end of what is compared, None if there is no comparison.
    """
    fetched = log_end_offset if compared is None else compared
    if leader_end < fetched:
        return Truncate(leader_end)
    if leader_start > fetched and leader_start >= log_end_offset:
        return Restart(leader_start)
    return Truncate(log_end_offset) if compared is None else Compare(max(leader_start, compared))
