"""Parser of places in a log: where to start or stop reading.

beginning | end          the first offset, the end (exclusive)
1234                     an offset
-100                     100 records before the end
@2013-01-01T05:00Z       the first record at or after a time; without a zone, local time
@1357016400000           the same, in milliseconds since 1970
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from headrace.cli.shared import UsageProblem
from headrace.client.operations.admin import EARLIEST, LATEST, Admin
from headrace.types import Offset, TopicPartition


class StartPlace(NamedTuple):
    """A place in every partition of a topic: an offset, or a time (or EARLIEST, LATEST) to look up."""

    offset: int | None
    when: int


BEGINNING = StartPlace(None, EARLIEST)
END = StartPlace(None, LATEST)


def parse_place(option: str, text: str) -> StartPlace:
    """The place that `text` names; UsageProblem names the option."""
    match text:
        case "beginning" | "earliest":
            return BEGINNING
        case "end" | "latest":
            return END
    if text.startswith("@"):
        return StartPlace(None, _milliseconds(option, text))
    try:
        return StartPlace(int(text), LATEST)
    except ValueError:
        raise UsageProblem(f"{option} {text!r}: expected beginning, end, an offset, -N or @TIME") from None


def resolve(admin: Admin, place: StartPlace, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
    """The offset of the place in each partition, within its log. A time after the last record is the end."""
    wanted = list(partitions)
    marks = admin.watermarks(wanted)
    if place.offset is not None:
        return {each: _within(place.offset, start, end) for each, (start, end) in marks.items()}
    found = admin.list_offsets(dict.fromkeys(wanted, place.when))
    return {each: at.offset if at.offset >= 0 else marks[each][1] for each, at in found.items()}


def _within(offset: int, start: Offset, end: Offset) -> Offset:
    return Offset(max(start, min(end, offset if offset >= 0 else end + offset)))


def _milliseconds(option: str, text: str) -> int:
    bare = text[1:]
    if bare.isascii() and bare.isdigit():
        return int(bare)
    try:
        return int(datetime.fromisoformat(bare).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        raise UsageProblem(f"{option} {text!r}: expected @ and a time, such as @2013-01-01T05:00Z") from None
