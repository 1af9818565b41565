"""What is wrong with the members of a consumer group. Pure: a history in, findings out.

    two owners      a member was assigned a partition while another one, whose session had not ended, still owned it
    member epoch    a member's epoch went back although it was not fenced
    unowned         long after everything was healed, a partition has no owner, two, or the members are not balanced
    group offset    a member that was assigned a partition did not find an offset there that had been committed

A member owns a partition until it says that it does not, so another one may have it sooner only if the coordinator has
ended the session. That takes the session time-out from the last heartbeat that the coordinator answered.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.simulation.finding import Finding, time
from tests.simulation.history import Beat, History, MemberPosition, Tenure


def check_members(history: History) -> list[Finding]:
    """Everything that is wrong."""
    unowned = [Finding("unowned", -1, text) for text in history.unowned]
    return [*_two_owners(history), *_epochs(history), *unowned, *_offsets(history)]


def _two_owners(history: History) -> Iterator[Finding]:
    beats: defaultdict[str, list[Beat]] = defaultdict(list)
    for beat in history.beats:
        beats[beat.member].append(beat)
    by_partition: defaultdict[int, list[Tenure]] = defaultdict(list)
    for tenure in history.tenures:
        for other in by_partition[tenure.partition]:
            if other.member != tenure.member and (other.ended_us is None or other.ended_us > tenure.began_us):
                heard_us = _last_beat(beats[other.member], other)
                if heard_us > tenure.began_us - other.session_timeout_us:
                    yield Finding(
                        "two owners",
                        tenure.partition,
                        f"{tenure.member} owns it from {time(tenure.began_us)} on, in epoch {tenure.epoch}; "
                        f"{other.member} since {time(other.began_us)}, in epoch {other.epoch}, and its heartbeat of "
                        f"{time(heard_us)} was answered",
                    )
        by_partition[tenure.partition].append(tenure)


def _last_beat(beats: list[Beat], tenure: Tenure) -> int:
    """When the last answered heartbeat was sent that says that the member still owns the partition."""
    times = [beat.sent_us for beat in beats]
    ended_us = times[-1] if tenure.ended_us is None and times else tenure.ended_us
    index = bisect_right(times, ended_us or 0)
    return times[index - 1] if index else -tenure.session_timeout_us


def _epochs(history: History) -> Iterator[Finding]:
    by_member: defaultdict[str, list[Beat]] = defaultdict(list)
    for beat in history.beats:
        by_member[beat.member].append(beat)
    for member, beats in by_member.items():
        for before, after in pairwise(beats):
            if after.epoch < before.epoch:
                text = f"{member} was in epoch {before.epoch}, and at {time(after.sent_us)} in epoch {after.epoch}"
                yield Finding("member epoch", -1, text)


def _offsets(history: History) -> Iterator[Finding]:
    for read in history.member_positions:
        lost = [
            each.offset
            for each in history.member_commits
            if each.partition == read.partition and each.is_acknowledged and each.ended_us <= read.sent_us
        ]
        if lost and read.offset < max(lost) and not _may_come_late(history, read):
            text = f"{read.member} read {read.offset} at {time(read.ended_us)}, but {max(lost)} was committed"
            yield Finding("group offset", read.partition, text)


def _may_come_late(history: History, read: MemberPosition) -> bool:
    """Whether the offset is that of a commit without an answer, which may be written at any time."""
    return any(
        each.offset == read.offset and each.partition == read.partition and not each.is_acknowledged
        for each in history.member_commits
        if each.sent_us <= read.ended_us
    )
