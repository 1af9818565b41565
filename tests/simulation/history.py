"""What clients did and saw in one run, and what the replicas held in the end: all that the checker is given.

Times are virtual, in µs. A value is unique: it is sent once by a user (a producer may send it again and again).
Negative partitions are those of internal topics, to which brokers write: -1 is `__consumer_offsets-0`, those below are
partitions of `__transaction_state`. Of them only who led and what replicas hold is noted.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

OFFSETS_PARTITION = -1


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
    """One record, or marker of a transaction, as a reader got it."""

    offset: int
    value: str
    is_marker: bool = False


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


class Kind(Enum):
    """What a record of a log means to a reader of committed records."""

    PLAIN = "plain"
    TRANSACTIONAL = "transactional"
    COMMIT = "commit"
    ABORT = "abort"


class Stored(NamedTuple):
    """One record of a replica's log."""

    offset: int
    epoch: int
    value: str
    kind: Kind = Kind.PLAIN
    producer_id: int = -1


@dataclass(slots=True)
class Replica:
    """A replica at the end of the run, when every fault was over and time enough had passed."""

    broker: int
    partition: int
    is_leader: bool
    leader_epoch: int
    is_in_sync: bool
    log_start_offset: int
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
    pause_max_ms: int = 0
    """How long a producer with acks=all may wait for a batch; 0 where faults may make it wait for any time."""

    unused_id_kept_ms: int = 1 << 40
    """How long a transactional id that nobody uses is known."""


@dataclass(slots=True)
class Transaction:
    """One transaction of a client, as the client knows it."""

    transactional_id: str
    name: str
    producer: tuple[int, int]
    began_us: int
    values: list[Sent] = field(default_factory=list)
    group: str = ""
    """The group whose offset it commits, if any."""
    offset: int = -1
    commit_began_us: int = -1
    """When the client first asked to commit it; -1 if it never did."""
    ended_us: int = -1
    outcome: Outcome = Outcome.UNKNOWN
    """ACKNOWLEDGED: the commit was acknowledged. REFUSED: it cannot have been committed. UNKNOWN: it may have been."""


class CommittedReading(NamedTuple):
    """One answer to a reader of committed records: what it shows of the offsets from `position` to `next_position`."""

    reader: str
    partition: int
    broker: int
    at_us: int
    position: int
    next_position: int
    records: tuple[Seen, ...]
    last_stable_offset: int
    high_watermark: int


class Initialized(NamedTuple):
    """A client got this producer id and epoch for its transactional id."""

    client: str
    transactional_id: str
    producer_id: int
    epoch: int
    at_us: int


class Forgotten(NamedTuple):
    """A coordinator did not know a transactional id that a client last used at `used_us`."""

    client: str
    transactional_id: str
    used_us: int
    at_us: int


class GroupOffset(NamedTuple):
    """A group's offset as somebody read it, with the name of the transaction that committed it."""

    group: str
    transaction: str
    offset: int
    at_us: int
    is_final: bool = False


class Unfinished(NamedTuple):
    """What was still under way long after everything was healed."""

    partition: int
    what: str


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
    transactions: list[Transaction] = field(default_factory=list)
    committed_readings: list[CommittedReading] = field(default_factory=list)
    initialized: list[Initialized] = field(default_factory=list)
    forgotten: list[Forgotten] = field(default_factory=list)
    group_offsets: list[GroupOffset] = field(default_factory=list)
    unfinished: list[Unfinished] = field(default_factory=list)
