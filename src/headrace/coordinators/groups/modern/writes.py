"""The writes of a group whose state is a replay of its records: consumer and share groups.

An event changes the group by records, which are applied to it at once. One batch of a group is in flight at a time; the
records of later events wait for its end, and then go as one batch. Answers go out when their batch is durable. So does
the answer of an event without records, which may have seen a state that is not durable.

    write(records A)    applied ── appended ─────────────▶ durable: answers of A
    write(no records)   ············waits for A··········▶ its answer
    write(records B)    applied ·················waits···▶ appended ──▶ …

The records of a large event are several batches, and its answer waits for the last. What a replay of some of them gives
is a group that goes on: the epoch of a target assignment comes behind the assignment.

If a batch does not reach the log, its records and those that wait are taken back, since they were decided upon it, and
all their answers are errors. Where the log has taken a batch but could not say that it is durable, nothing is taken
back. So memory is always what a replay of the log gives, with what is being written.
Source: Kafka's `CoordinatorRuntime`, whose snapshots and batches do this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from headrace.coordinators.runtime import APPEND_ERRORS
from headrace.errors import ErrorCode
from headrace.limits import GROUP_BATCH_BYTES_MAX

if TYPE_CHECKING:
    from headrace.coordinators.groups.group_event import GroupEvent
    from headrace.coordinators.groups.replies import Reply
    from headrace.coordinators.runtime import KeyValue


IN_THE_LOG = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""The results of an append after which the log has the batch."""

Refused: TypeAlias = "Callable[[ErrorCode], object]"
"""Builds a response with an error and nothing else."""


class WrittenGroup(Protocol):
    """A group whose records are written here."""

    @property
    def group_id(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def writes(self) -> Writes[Any]: ...

    def taken_back(self, group_event: GroupEvent) -> None:
        """Sets the deadlines of the group anew: a failed write was taken back."""


W = TypeVar("W", bound=WrittenGroup)


class GroupRecord(Protocol[W]):
    """A record of a group: a key, and its value or a tombstone. A value."""

    def encode(self, group_id: str) -> KeyValue:
        """The record in `__consumer_offsets`."""
        ...

    def apply(self, group: W) -> GroupRecord[W]:
        """Changes the group. Returns the record that restores what it replaced."""
        ...


class Response(NamedTuple):
    """The response to a request that waits for a write."""

    reply: Reply | None
    message: object
    refused: Refused


NO_RESPONSE = Response(None, None, str)


class EventChange(Generic[W]):
    """The records of one event: each is applied to the group as soon as it is added."""

    __slots__ = ("_group", "records", "undo")

    def __init__(self, group: W) -> None:
        self._group = group
        self.records: list[GroupRecord[W]] = []
        self.undo: list[GroupRecord[W]] = []
        """The records that restore the state before, in the order of `records`."""

    def add(self, *records: GroupRecord[W]) -> None:
        """Adds records, and changes the group by them."""
        for each in records:
            self.undo.append(each.apply(self._group))
            self.records.append(each)

    def take_back(self) -> None:
        """Restores the group as it was."""
        self._group.writes.taken_back += bool(self.undo)
        while self.undo:
            self.undo.pop().apply(self._group)

    def part(self, start: int, end: int) -> EventChange[W]:
        """The records from `start` to before `end`, as a change of their own."""
        some = EventChange(self._group)
        some.records, some.undo = self.records[start:end], self.undo[start:end]
        return some


class GroupWrite(NamedTuple, Generic[W]):
    """The records of one event, or some of many, and the responses that wait for them."""

    change: EventChange[W]
    encoded: list[KeyValue]
    responses: list[Response]

    @property
    def size(self) -> int:
        return sum(map(_size, self.encoded))


@dataclass(slots=True, eq=False)
class BatchInFlight(Generic[W]):
    """The batch of a group that is in flight; the second step of its Append."""

    writes: Writes[W]
    parts: list[GroupWrite[W]]

    def stored(self, error: ErrorCode, record_offset: int, group_event: GroupEvent) -> None:
        """Answers; if the write has failed, takes it back. Appends what waits."""
        self.writes.ended(self, error, group_event)


class Writes(Generic[W]):
    """The writes of one group: the one in flight, and those that wait, the oldest first."""

    __slots__ = ("_group", "_in_flight", "_lost", "_waiting", "has_begun", "is_over", "taken_back")

    def __init__(self, group: W) -> None:
        self._group = group
        self._in_flight: BatchInFlight[W] | None = None
        self._waiting: list[GroupWrite[W]] = []
        self._lost: list[GroupWrite[W]] = []
        """What did not reach the log after the group was given up."""
        self.has_begun = False
        """Whether the log has records of the group."""
        self.is_over = False
        """Whether this broker no longer serves the group: nothing is taken back or appended then."""
        self.taken_back = 0
        """How many changes were taken back: what was computed before the last one may rest on it."""

    def write(
        self,
        records: Sequence[GroupRecord[W]],
        group_event: GroupEvent,
        reply: Reply | None = None,
        message: Any = None,
        refused: Refused = str,
        *,
        before: Sequence[KeyValue] = (),
    ) -> None:
        """Applies and appends records, and answers when they are durable. Without records it answers at once, or with
        the newest write.

        `before` are records that are not of this group and go first in the same batch, such as the tombstones of a
        group of another kind whose place this one takes."""
        change = EventChange(self._group)
        change.add(*records)
        self.commit(change, group_event, reply, message, refused, before=before)

    def commit(
        self,
        change: EventChange[W],
        group_event: GroupEvent,
        reply: Reply | None = None,
        message: Any = None,
        refused: Refused = str,
        *,
        before: Sequence[KeyValue] = (),
    ) -> None:
        """As `write`, for records that are applied already."""
        if change.records or before:
            self._waiting += _in_parts(change, before, self._group.group_id)
            if reply is not None:
                self._waiting[-1].responses.append(Response(reply, message, refused))
            self._append(group_event)
        elif reply is not None:
            self.answer(group_event, reply, message, refused)

    def answer(self, group_event: GroupEvent, reply: Reply, message: Any, refused: Refused) -> None:
        """Answers at once, or with the newest write."""
        if self._waiting:
            self._waiting[-1].responses.append(Response(reply, message, refused))
        elif self._in_flight is not None:
            self._in_flight.parts[-1].responses.append(Response(reply, message, refused))
        else:
            group_event.answer(reply, message)

    @property
    def is_in_flight(self) -> bool:
        """Whether the end of a write is awaited."""
        return self._in_flight is not None

    @property
    def is_busy(self) -> bool:
        """Whether the end of a write is awaited, or others wait for it: an answer waits too."""
        return self._in_flight is not None or bool(self._waiting)

    def unwritten(self) -> list[KeyValue]:
        """The records that wait; they must precede the tombstones of the group's records."""
        return [record for each in self._waiting for record in each.encoded]

    def give_up(self) -> list[GroupWrite[W]]:
        """Ends the writes of a group that another one replaces. Returns those that wait, for the other to write."""
        self.is_over = True
        waiting, self._waiting = self._waiting, []
        return waiting

    def take_up(self, unwritten: Sequence[GroupWrite[W]], group_event: GroupEvent) -> None:
        """Goes on with a group that was given up: its successor was not written, nor were these writes before it."""
        self.is_over = False
        lost, self._lost = self._lost, []
        for each in reversed([*lost, *unwritten]):
            each.change.take_back()
        self._group.taken_back(group_event)

    def ended(self, batch: BatchInFlight[W], error: ErrorCode, group_event: GroupEvent) -> None:
        """Takes in the end of the batch in flight."""
        self._in_flight = None
        code = APPEND_ERRORS.get(error, error)
        self.has_begun = self.has_begun or error in IN_THE_LOG
        waiting: list[GroupWrite[W]] = []
        if self.is_over or error not in IN_THE_LOG:
            waiting, self._waiting = self._waiting, []
        if self.is_over and error not in IN_THE_LOG:
            self._lost = batch.parts
        if not self.is_over and error not in IN_THE_LOG:
            for each in reversed([*batch.parts, *waiting]):
                each.change.take_back()
            self._group.taken_back(group_event)
        for each in batch.parts:
            answer_all(each.responses, code, group_event)
        for each in waiting:
            answer_all(each.responses, ErrorCode.NOT_COORDINATOR if self.is_over else code, group_event)
        self._append(group_event)

    def _append(self, group_event: GroupEvent) -> None:
        """Appends as much of what waits as goes into a batch, unless one is in flight."""
        if self._in_flight is not None or not self._waiting:
            return
        count, size = 1, self._waiting[0].size
        while count < len(self._waiting) and (size := size + self._waiting[count].size) <= GROUP_BATCH_BYTES_MAX:
            count += 1
        parts, self._waiting = self._waiting[:count], self._waiting[count:]
        self._in_flight = BatchInFlight(self, parts)
        group_event.append(self._group, [record for each in parts for record in each.encoded], self._in_flight)


def _in_parts(change: EventChange[W], before: Sequence[KeyValue], group_id: str) -> list[GroupWrite[W]]:
    """The records of an event, with others `before` them, in parts that each go into a batch. A record that is too
    large by itself is a part."""
    parts: list[GroupWrite[W]] = []
    encoded, size, start = list(before), sum(map(_size, before)), 0
    for at, record in enumerate(change.records):
        own = record.encode(group_id)
        if encoded and size + _size(own) > GROUP_BATCH_BYTES_MAX:
            parts.append(GroupWrite(change.part(start, at), encoded, []))
            encoded, size, start = [], 0, at
        encoded.append(own)
        size += _size(own)
    parts.append(GroupWrite(change.part(start, len(change.records)) if parts else change, encoded, []))
    return parts


def _size(record: KeyValue) -> int:
    key, value = record
    return len(key) + len(value or b"")


def answer_all(responses: Iterable[Response], code: ErrorCode, group_event: GroupEvent) -> None:
    """Answers requests that waited for a write with this result."""
    for reply, message, refused in responses:
        group_event.answer(reply, message if code is ErrorCode.NONE else refused(code))
