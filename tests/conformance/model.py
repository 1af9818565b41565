"""What the conformance grid asks of a client, and the records it asks it with."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_NUMBERS = {name: number for number, name in enumerate(CODECS)}
BASE_TIME_MS = 1_704_067_200_000  # 2024-01-01
EARLIEST, LATEST = -2, -1

Header = tuple[str, bytes | None]


class Message(NamedTuple):
    """One record as its writer means it; a timestamp of None is the client's own clock."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None


class Consumed(NamedTuple):
    """One record as a reader got it."""

    partition: int
    offset: int
    message: Message


class FromOffset(NamedTuple):
    """Read from this offset; 0 is the start of every topic here."""

    offset: int


class FromTime(NamedTuple):
    """Read from the first record at or after this time."""

    timestamp_ms: int


FROM_START = FromOffset(0)


class Writing(NamedTuple):
    """How to write; a partition of None leaves the choice to the client, by key."""

    codec: str = "none"
    partition: int | None = 0
    acks: int = -1
    idempotent: bool = False


class Joining(NamedTuple):
    """How to be a member; an instance makes it a static one."""

    strategy: str = "range"
    instance: str = ""
    protocol: str = "classic"
    """As `group.protocol` has it: with "consumer" the broker assigns (KIP-848)."""

    regex: str = ""
    """Subscribes to what this expression matches, which the broker finds out."""


class Transforming(NamedTuple):
    """A consume-transform-produce program: what it writes and the offsets of its group are in one transaction."""

    source: str
    target: str
    group: str
    transactional_id: str
    records: int
    """It reads this many records, all in one transaction."""

    protocol: str = "classic"


NEW_GROUP, NEW_STATIC, NEW_REGEX, NEW_TRANSFORM = "new group", "new static", "new regex", "new transform"
"""Columns about groups of KIP-848."""

NO_NEW_GROUPS = dict.fromkeys((NEW_GROUP, NEW_STATIC, NEW_REGEX, NEW_TRANSFORM), "has no KIP-848")

SHARE, SHARE_AGAIN = "share", "share again"
"""Columns about share groups."""

STREAMS, CLASSIC_STREAMS = "streams", "classic streams"
"""Columns about Kafka Streams."""

TLS, MTLS = "TLS", "mTLS"
PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"
SASL_MECHANISMS = (PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER)
"""Columns about secured listeners; SASL is over TLS."""

NO_SHARES = dict.fromkeys((SHARE, SHARE_AGAIN), "has no share groups")
NO_STREAMS = dict.fromkeys((STREAMS, CLASSIC_STREAMS), "has no Kafka Streams")


class GroupState(NamedTuple):
    """What describing a group says."""

    state: str
    members: int


class Refused(Exception):
    """The broker's error as a client reported it, by Kafka's number; 0 where the client tells none."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"error code {code}: {text}")
        self.code = code


class Member(Protocol):
    """One member of a consumer group; starts at the beginning where the group has no offset."""

    def assignment(self) -> set[int]:
        """The partitions it holds now."""

    def poll(self, seconds: float) -> list[Consumed]:
        """What arrived; also where clients without a thread of their own do the group's work."""

    def commit(self) -> None:
        """Commit everything that `poll` returned, and wait for it."""

    def close(self) -> None:
        """Leave the group."""


class TransactionalProducer(Protocol):
    """A producer with a transactional id."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, topic: str, messages: Sequence[Message]) -> None:
        """Write to partition 0, and wait until all is acknowledged."""

    def commit(self) -> None:
        """Commit; `Refused` if another producer has fenced this one."""

    def abort(self) -> None:
        """Abort."""

    def close(self) -> None:
        """Close the connections."""


class Client(Protocol):
    """One Kafka client under test. Every call opens and closes its own connection."""

    name: str
    messages: Sequence[Message]
    """What it can be asked to write: `MESSAGES`, less what its interface cannot say."""
    gaps: Mapping[str, str]
    """The columns of the grid that it has no way to fill, each with its reason."""
    is_program: bool
    """Whether it runs in a process of its own, in another language, and so takes some seconds to start."""

    def missing(self) -> str | None:
        """Why it cannot run here; None when it is installed."""

    def version(self) -> str:
        """The client's own version."""

    def seen(self, message: Message) -> Message:
        """A record as this client's readers can see it: kafkajs does not tell the order of headers."""

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Create a topic in the way this client has."""

    def produce(self, bootstrap: str, topic: str, messages: Sequence[Message], how: Writing) -> None:
        """Write and wait until all is acknowledged, if that was asked for; `Refused` when the broker refuses."""

    def read(self, bootstrap: str, topic: str, start: FromOffset | FromTime, count: int) -> list[Consumed]:
        """The first `count` records of partition 0 from a position."""

    def read_new(self, bootstrap: str, topic: str, count: int, write: Callable[[], None]) -> list[Consumed]:
        """Stand at the end of partition 0, call `write`, return the `count` records that it wrote."""

    def join(self, bootstrap: str, topic: str, group: str, how: Joining) -> Member:
        """A new member of a group."""

    def transactional(self, bootstrap: str, transactional_id: str) -> TransactionalProducer:
        """A producer with a transactional id; it may get its epoch with the first `begin`."""

    def read_committed(self, bootstrap: str, topic: str, count: int) -> list[Consumed]:
        """The first `count` records of partition 0 that a read_committed reader gets."""

    def transform(self, bootstrap: str, what: Transforming, commit: bool) -> list[Consumed]:
        """Run a consume-transform-produce program for one transaction; the records that it read."""

    def list_offset(self, bootstrap: str, topic: str, when: int) -> int:
        """The offset of partition 0 at EARLIEST, LATEST, or the first at or after a time in ms."""

    def topic_settings(self, bootstrap: str, topic: str) -> Mapping[str, str]:
        """All settings of a topic."""

    def set_topic_setting(self, bootstrap: str, topic: str, name: str, value: str) -> None:
        """Change one setting of a topic."""

    def add_partitions(self, bootstrap: str, topic: str, total: int) -> None:
        """Let a topic grow to `total` partitions."""

    def delete_records(self, bootstrap: str, topic: str, before: int) -> None:
        """Delete the records of partition 0 below an offset."""

    def delete_topic(self, bootstrap: str, topic: str) -> None:
        """Delete a topic."""

    def groups(self, bootstrap: str) -> set[str]:
        """The names of all groups."""

    def group_state(self, bootstrap: str, group: str) -> GroupState:
        """State and members of a group."""

    def delete_group(self, bootstrap: str, group: str) -> None:
        """Delete a group that has no members."""


MESSAGES = (
    Message(b"key", b"value" * 100, (), BASE_TIME_MS),
    Message(None, b"no key, no headers" * 20, (), BASE_TIME_MS + 1),
    Message(b"tombstone", None, (("why", b"deleted"),), BASE_TIME_MS + 2),
    Message(b"", b"", (("empty", b""),), BASE_TIME_MS + 3),
    Message(
        "schlüssel".encode(), "значение 值 🎉".encode() * 30, (("sprache", "Русский 中文".encode()),), BASE_TIME_MS + 4
    ),
    Message(bytes(range(256)), bytes(range(255, -1, -1)) * 8, (("bytes", b"\x01\x80\xfe\xff"),), BASE_TIME_MS + 5),
    Message(b"twice", b"the same header, twice" * 9, (("h", b"1"), ("g", b"2"), ("h", b"3")), BASE_TIME_MS + 6),
    Message(b"late", b"earlier than the one before" * 9, (), BASE_TIME_MS - 60_000),
    Message(b"large", bytes(range(32, 127)) * 2_000, (("large", b"h" * 5_000),), BASE_TIME_MS + 8),
)
"""Null, empty, text, every byte, repeated headers, a step back in time, more than a batch holds by default."""

TIMED = tuple(Message(b"%d" % n, b"timed %d" % n, (), BASE_TIME_MS + 1_000 * n) for n in range(20))
"""One record a second."""
