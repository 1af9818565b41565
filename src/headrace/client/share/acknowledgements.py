"""What a member of a share group says about the records that it acquired. Does no IO.

    delivered ──ACCEPT, RELEASE, REJECT──▶ pending ──sent──▶ done
        ▲                                     │
        └───────────────RENEW─────────────────┘      the lock begins anew, and the record is still the application's

Offsets that an acquired range has and the log has not (compacted, or a marker of a transaction) are acknowledged as
gaps. Source: Kafka's `Acknowledgements`, `ShareInFlightBatch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from headrace.types import Offset

GAP = 0


class AcknowledgeType(IntEnum):
    """What becomes of an acquired record."""

    ACCEPT = 1
    """It was processed."""
    RELEASE = 2
    """It is delivered again, to any member, unless it was delivered too often."""
    REJECT = 3
    """It is not delivered again."""
    RENEW = 4
    """The lock begins anew; another acknowledgement follows."""


class AcknowledgementBatch(NamedTuple):
    """The types of consecutive offsets, or one type for all of them."""

    first_offset: int
    last_offset: int
    types: list[int]


class PartitionRecords:
    """The records of one partition that the application has, and what it has said about them."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._renewed: set[int] = set()
        self._pending: dict[int, int] = {}

    def delivered(self, offsets: Iterable[int]) -> None:
        """The application has these now."""
        for offset in offsets:
            self._open.add(offset)
            self._renewed.discard(offset)

    def taken_back(self, offsets: Iterable[int]) -> None:
        """The application has not received these: they are delivered later."""
        self._open.difference_update(offsets)

    def gaps(self, offsets: Iterable[int]) -> None:
        """These were acquired, and no record has them."""
        self._pending.update(dict.fromkeys(offsets, GAP))

    def acknowledge(self, offset: int, kind: AcknowledgeType) -> bool:
        """Whether the record is the application's; if so, its last word before it is sent counts."""
        if offset not in self._open and offset not in self._renewed and self._pending.get(offset, GAP) == GAP:
            return False
        self._open.discard(offset)
        self._renewed.discard(offset)
        self._pending[offset] = kind
        return True

    def accept_open(self) -> None:
        """Accept all that was delivered and not acknowledged."""
        self._pending.update(dict.fromkeys(self._open, AcknowledgeType.ACCEPT))
        self._open.clear()

    @property
    def unacknowledged(self) -> int:
        """The number of records that the application has said nothing about."""
        return len(self._open)

    @property
    def has_pending(self) -> bool:
        """Whether there is something to send."""
        return bool(self._pending)

    def take(self) -> dict[Offset, int]:
        """What is to be sent: it is sent once. A renewed record is the application's again."""
        taken, self._pending = self._pending, {}
        self._renewed.update(offset for offset, kind in taken.items() if kind == AcknowledgeType.RENEW)
        return {Offset(offset): kind for offset, kind in sorted(taken.items())}


def batches_of(acknowledged: Mapping[Offset, int]) -> list[AcknowledgementBatch]:
    """Runs of consecutive offsets."""
    runs: list[tuple[int, list[int]]] = []
    for offset, kind in sorted(acknowledged.items()):
        if runs and runs[-1][0] + len(runs[-1][1]) == offset:
            runs[-1][1].append(kind)
        else:
            runs.append((offset, [kind]))
    return [
        AcknowledgementBatch(first, first + len(kinds) - 1, kinds[:1] if len(set(kinds)) == 1 else kinds)
        for first, kinds in runs
    ]
