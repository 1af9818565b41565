"""What waits for the writes of a streams group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from headrace.coordinators.groups.replies import Reply
    from headrace.errors import ErrorCode


class Refusable(Protocol):
    """A message that waits for a write."""

    def refused(self, error: ErrorCode) -> object:
        """The answer in its place after a write that failed."""


class Waiting(NamedTuple):
    """An open request, and its answer."""

    reply: Reply
    answer: Refusable


@dataclass(slots=True)
class WaitingWrites:
    """The appends of one group that are under way, and the answers that wait for all of them."""

    under_way: int = 0
    waiting: list[Waiting] = field(default_factory=list)
    is_log_behind: bool = False
    """Whether an append failed since the log last had everything."""
    lost_members: set[str] = field(default_factory=set)
    """Members of failed appends."""
