"""What clients did and saw in one run, and what the replicas held in the end: all that the checker is given.

Times are virtual, in µs. A value is unique: it is sent once by a user (a producer may send it again and again).
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Outcome(Enum):
    """What a producer knows of a value that it sent."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"  # no attempt was appended, as far as its answers tell
    UNKNOWN = "unknown"  # some attempt had no answer, or one that leaves it open


@dataclass(slots=True)
class Sent:
    """One value on its way."""

    producer: str
    partition: int
    value: str
    acks: int  # -1 is all
    is_idempotent: bool
    began_us: int
    ended_us: int = -1
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = -1


class Seen(NamedTuple):
    """One record as a reader got it."""

    offset: int
    value: str


class Reading(NamedTuple):
    """One answer to a reader that asked for `position`."""

    reader: str
    partition: int
    broker: int
    at_us: int
    position: int
    records: tuple[Seen, ...]
    high_watermark: int
    error: str = ""


class EndSeen(NamedTuple):
    """Where a partition ended (the high watermark), as one reader was told by ListOffsets."""

    reader: str
    partition: int
    broker: int
    at_us: int
    offset: int


class Committed(NamedTuple):
    """A group's offset: acknowledged when it was written, or as it was read back; `is_final` after everything was
    healed."""

    group: str
    partition: int
    broker: int
    at_us: int
    offset: int
    is_read: bool
    is_final: bool = False


class Led(NamedTuple):
    """A broker believed to lead a partition in an epoch, with this high watermark."""

    partition: int
    epoch: int
    broker: int
    at_us: int
    high_watermark: int
    log_end_offset: int


class Stored(NamedTuple):
    """One record of a replica's log."""

    offset: int
    epoch: int
    value: str


@dataclass(slots=True)
class Replica:
    """A replica at the end of the run, when every fault was over and time enough had passed."""

    broker: int
    partition: int
    is_leader: bool
    leader_epoch: int
    is_in_sync: bool
    high_watermark: int
    records: list[Stored]


class Availability(NamedTuple):
    """A partition at the end of the run: who leads it, and which members of its ISR and replicas are alive."""

    partition: int
    leader: int  # -1 for none
    live_isr: tuple[int, ...]
    live_replicas: tuple[int, ...]
    isr: tuple[int, ...]
    took_a_write: bool


class Promises(NamedTuple):
    """What is promised under the faults that were injected."""

    acks_all_kept: bool = True
    acks_one_kept: bool = False
    read_kept: bool = True
    everyone_catches_up: bool = True


@dataclass(slots=True)
class History:
    """One run."""

    sent: list[Sent] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    ends: list[EndSeen] = field(default_factory=list)
    commits: list[Committed] = field(default_factory=list)
    led: list[Led] = field(default_factory=list)
    replicas: list[Replica] = field(default_factory=list)
    availability: list[Availability] = field(default_factory=list)
