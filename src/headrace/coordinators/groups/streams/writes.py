"""The writes of a streams group: an answer goes out when everything that it rests on is in the log.

A change takes effect in memory at once, and its records are appended. An answer that follows from it waits for that
append; an answer without changes waits for the appends that are under way, because it tells of their changes too.

If an append fails, memory is ahead of the log. The next write then contains everything of the group, and tombstones of
members that are gone: records are keyed, so the log has the present state again, whatever of the failed one it has.
Apache Kafka takes memory back instead, where nothing was appended; members cannot tell, since the answer was an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from headrace.coordinators.groups.streams.records import everything_of
from headrace.coordinators.runtime import APPEND_ERRORS
from headrace.errors import ErrorCode
from headrace.limits import STREAMS_RECORDS_PER_BATCH_MAX

if TYPE_CHECKING:
    from headrace.coordinators.groups.group_event import GroupEvent
    from headrace.coordinators.groups.streams.group import StreamsGroup
    from headrace.coordinators.groups.streams.records import StreamsChange
    from headrace.coordinators.groups.streams.waiting import Waiting


class ChangeStored(NamedTuple):
    """The second step of an append."""

    group: StreamsGroup
    changes: tuple[StreamsChange, ...]
    waiting: Waiting | None

    def stored(self, error: ErrorCode, record_offset: int, group_event: GroupEvent) -> None:
        """Answers the request, and, after the last append that was under way, those without changes."""
        writes = self.group.writes
        writes.under_way -= 1
        if error is not ErrorCode.NONE:
            writes.is_log_behind = True
            writes.lost_members.update(_members_in(self.changes))
        elif writes.is_log_behind:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE  # an earlier append, on which this one rests, has failed
        if self.waiting is not None:
            _answer(self.waiting, error, group_event)
        if error is not ErrorCode.NONE or not writes.under_way:
            answer_all(self.group, error, group_event)


def write(
    group: StreamsGroup, changes: Iterable[StreamsChange], waiting: Waiting | None, group_event: GroupEvent
) -> None:
    """Appends the records of changes that the group already has, and answers when they are stored."""
    writes = group.writes
    batch = list(changes)
    if writes.is_log_behind:
        batch = everything_of(group, writes.lost_members)
        writes.is_log_behind = False
        writes.lost_members = set()
    if batch:
        # The last batch carries the answer: appends to a partition are committed in order.
        for start in range(0, len(batch), STREAMS_RECORDS_PER_BATCH_MAX):
            part = tuple(batch[start : start + STREAMS_RECORDS_PER_BATCH_MAX])
            is_last = start + len(part) == len(batch)
            writes.under_way += 1
            group_event.append(
                group,
                [each.key_value(group.group_id) for each in part],
                ChangeStored(group, part, waiting if is_last else None),
            )
    elif waiting is not None:
        if writes.under_way:
            writes.waiting.append(waiting)
        else:
            _answer(waiting, ErrorCode.NONE, group_event)


def answer_all(group: StreamsGroup, error: ErrorCode, group_event: GroupEvent) -> None:
    """Answers every request that waits for others' writes."""
    waiting, group.writes.waiting = group.writes.waiting, []
    for each in waiting:
        _answer(each, error, group_event)


def _answer(waiting: Waiting, error: ErrorCode, group_event: GroupEvent) -> None:
    if error is ErrorCode.NONE:
        group_event.answer(waiting.reply, waiting.answer)
    else:
        group_event.answer(waiting.reply, waiting.answer.refused(APPEND_ERRORS.get(error, error)))


def _members_in(changes: Iterable[StreamsChange]) -> set[str]:
    return {each.member_id for each in changes if hasattr(each, "member_id")}
