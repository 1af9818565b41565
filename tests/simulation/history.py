"""What clients did and saw in one run, and what the replicas held in the end: all that the checker is given.

Times are virtual, in µs. A value is unique: it is sent once by a user (a producer may send it again and again).
Negative partitions are those of internal topics, to which brokers write: -1 is `__consumer_offsets-0`, those below are
partitions of `__transaction_state`, and from -100 down those of `__share_group_state`. Of them only who led and what
replicas hold is noted.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

BEGINS_AGAIN = "BEGINS AGAIN"
"""The error of a reading that stands for none: the reader goes on from `position`, as records were deleted."""

OFFSETS_PARTITION = -1
SHARES_PARTITION = -100


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


class Reset(NamedTuple):
    """A reader was told in a new leader epoch that its position is lost."""

    reader: str
    partition: int
    broker: int
    at_us: int
    position: int
    epoch: int
    """Of the last record that it had read."""

    told: str


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


@dataclass(slots=True)
class Tenure:
    """A member of a group owned a partition: from the answer that assigned it until the member gave it up."""

    member: str
    partition: int
    epoch: int
    """The member's epoch when it began."""

    session_timeout_us: int
    began_us: int
    ended_us: int | None = None


class Beat(NamedTuple):
    """A heartbeat of a member that was answered without an error."""

    member: str
    epoch: int
    sent_us: int


class MemberCommit(NamedTuple):
    """A member's commit of an offset. It ended without an answer, or was acknowledged; refused ones are not noted."""

    member: str
    partition: int
    offset: int
    sent_us: int
    ended_us: int
    is_acknowledged: bool


class MemberPosition(NamedTuple):
    """A committed offset as a member read it, -1 for none."""

    member: str
    partition: int
    offset: int
    sent_us: int
    ended_us: int


class Delivery(NamedTuple):
    """A record that a member of a share group was given by an answer to its fetch."""

    member: str
    partition: int
    offset: int
    delivery_count: int
    """How often the record was delivered, this time included, as the answer says."""

    broker: int
    sent_us: int
    at_us: int
    is_current: bool
    """Whether the broker knew that it led, in the newest epoch, from before the fetch was sent."""


@dataclass(slots=True)
class ShareAcknowledgement:
    """A member of a share group accepted (kind 1), released (2) or rejected (3) a record that it got at `got_us`."""

    member: str
    partition: int
    offset: int
    kind: int
    delivery_count: int
    broker: int
    got_us: int
    sent_us: int
    ended_us: int = -1
    outcome: Outcome = Outcome.UNKNOWN
    """REFUSED: it certainly changed nothing."""


class UnansweredFetch(NamedTuple):
    """A fetch of a member of a share group that may have been given records of a partition without learning of it."""

    partition: int
    sent_us: int


class Unfinished(NamedTuple):
    """What was still under way long after everything was healed."""

    partition: int
    what: str


class Leak(NamedTuple):
    """A client of an instance was shown what is not its instance's."""

    instance: str
    client: str
    at_us: int
    what: str


class RatesInForce(NamedTuple):
    """What all brokers together let through of an instance at one time, in bytes/s."""

    instance: str
    direction: str
    at_us: int
    in_force: float
    limit: float
    """The highest that a broker may know of."""

    unreachable: float
    """F of the brokers that could not be reached a short while ago, or were served by a controller of the past."""


class LateRate(NamedTuple):
    """A broker held clients back at a rate above all that were in force there lately."""

    instance: str
    broker: int
    at_us: int
    rate: float
    in_force: float


class Volume(NamedTuple):
    """The bytes that were produced to an instance in a run, and those that its limit allows."""

    instance: str
    produced: float
    allowed: float


class StoredSeen(NamedTuple):
    """What the controller holds to be stored of an instance, and what its replicas hold, in bytes. `is_exact` where
    both must be the same; otherwise the first may not be more."""

    instance: str
    at_us: int
    counted: int
    held: int
    is_exact: bool


class GrownFull(NamedTuple):
    """An instance has stored its capacity or more for so long that every broker must know. Bytes on all replicas."""

    instance: str
    at_us: int
    capacity: int
    blocked_at: int
    """What it held when production had to be blocked at last."""

    held: int


@dataclass(slots=True)
class History:
    """One run."""

    sent: list[Sent] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    resets: list[Reset] = field(default_factory=list)
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
    tenures: list[Tenure] = field(default_factory=list)
    beats: list[Beat] = field(default_factory=list)
    member_commits: list[MemberCommit] = field(default_factory=list)
    member_positions: list[MemberPosition] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    share_acknowledgements: list[ShareAcknowledgement] = field(default_factory=list)
    unanswered_fetches: list[UnansweredFetch] = field(default_factory=list)
    share_ends: dict[int, int] = field(default_factory=dict)
    """The start offset of each share partition when the group had drained its partition."""
    undrained: list[str] = field(default_factory=list)
    unowned: list[str] = field(default_factory=list)
    """Which members own what, long after everything was healed, where that is not as it must be."""
    leaks: list[Leak] = field(default_factory=list)
    rates: list[RatesInForce] = field(default_factory=list)
    late_rates: list[LateRate] = field(default_factory=list)
    volumes: list[Volume] = field(default_factory=list)
    stored: list[StoredSeen] = field(default_factory=list)
    full: list[GrownFull] = field(default_factory=list)
    instances_left: list[str] = field(default_factory=list)
    """What is wrong with instances long after everything was healed."""
    of_instances: dict[str, "History"] = field(default_factory=dict)
    """What the clients of each instance that lives as long as the run did and saw."""
