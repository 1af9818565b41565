# cython: language_level=3, annotation_typing=False, binding=False
"""The partitions of a replica fetcher: those that it follows, and what its next fetch tells the leader of them.

Compiled, so that the shortest way of its fetches (`plain_fetches`) reads numbers, and makes no key to find a partition
that was in the last answers; it also runs uncompiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

from headrace.metadata.model import NO_UUID
from headrace.replication.follower import comparison_start
from headrace.types import NO_EPOCH, TopicPartition

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcmp

if TYPE_CHECKING:
    from headrace.broker.partitions.partition import Partition
    from headrace.protocol.conversation.fetch_session_client import FetchSessionClient

_ID_BYTES, _SLOTS = 16, 16


class Followed:
    """A partition that a fetcher replicates from its leader, in one leader epoch."""

    __slots__ = (
        "compared", "has_epochs", "index", "is_checked", "key", "lag", "leader_epoch", "partition", "refusals",
        "retry_at", "topic_id", "turn",
    )  # fmt: skip

    def __init__(self, partition: Partition) -> None:
        self.partition, self.key, self.index = partition, partition.key, partition.key.partition
        self.topic_id = partition.log.topic_id or NO_UUID
        self.leader_epoch = partition.state.leader_epoch
        self.retry_at = 0.0
        self.refusals = 0  # in a row
        self.has_epochs = True  # False if the leader's log has none there
        self.is_checked = False  # by an older leader, whose Fetch response has no diverging epoch
        self.lag = 0
        self.turn = 0  # of the last answer that tells of it
        self.compared: int | None = None
        """The end of what is compared with the leader's log; None if no comparison is necessary, or it has ended."""
        self.compare_if_unknown()

    @property
    def fetch_offset(self) -> int:
        """The end of what is known to be the same in the leader's log, from which the follower fetches."""
        return self.partition.log.log_end_offset if self.compared is None else self.compared

    @property
    def last_fetched_epoch(self) -> int:
        """The epoch of the last record before `fetch_offset`; -1 if it cannot be compared."""
        return self.partition.log.leader_epochs.latest if self.has_epochs and self.compared is None else NO_EPOCH

    def compare_if_unknown(self) -> None:
        """Begins a comparison if the log ends with records without epochs above the high watermark."""
        log, state = self.partition.log, self.partition.state
        self.compared = comparison_start(log.leader_epochs.latest, log.log_end_offset, state.high_watermark)

    def compare_from(self, offset: int) -> None:
        """Sets the end of what is compared, or the end of the comparison if it is the log end offset."""
        self.compared = offset if offset < self.partition.log.log_end_offset else None


class Following:
    """What a fetcher follows. The dictionaries stay the same objects.

    Whoever changes `partitions`, `by_id` or `ids` calls `forget`.
    """

    __slots__ = ("_found", "by_id", "changed", "conversation", "delayed", "failed", "ids", "partitions", "uncut")

    def __init__(self, conversation: FetchSessionClient, failed: Any) -> None:
        """`failed`: called with a partition's key, the partition, and the error with which its append failed."""
        self.conversation, self.failed = conversation, failed
        self.partitions: dict[TopicPartition, Followed] = {}
        self.by_id: dict[tuple[bytes, int], Followed] = {}
        """The partitions in the leader's fetch session, those without a topic id left out."""
        # Dictionaries keep the order of insertion, so that the same events make the same requests.
        self.changed: dict[TopicPartition, None] = {}
        """The next fetch tells the session."""
        self.uncut: dict[TopicPartition, None] = {}
        """To be compared, but may be longer than the leader's log."""
        self.delayed: dict[TopicPartition, None] = {}
        """Left out of fetches until their `retry_at`."""
        self.ids: dict[str, bytes] = {}
        self._found: list[Followed | None] = [None] * _SLOTS  # the last ones, by their ids' ends

    def find(self, octets: Any, topic_at: int, index: int) -> Followed | None:
        """The partition that is followed, and in the session, by the topic id at `octets[topic_at:]`."""
        slot: int = octets[topic_at + _ID_BYTES - 1] + index & _SLOTS - 1
        each = self._found[slot]
        if each is not None and each.index == index and _is_at(each.topic_id, octets, topic_at):
            return each
        return self._look_up(_id_at(octets, topic_at), index, slot)

    def _look_up(self, topic_id: bytes, index: int, slot: int) -> Followed | None:
        each = self.by_id.get((topic_id, index))
        if each is None or not self.is_told(each):
            return None
        self._found[slot] = each
        return each

    def is_told(self, each: Followed) -> bool:
        """Whether a partition is followed, and in the session by its topic's present id."""
        key = each.key
        return (
            self.partitions.get(key) is each
            and self.ids.get(key.topic) == each.topic_id
            and self.by_id.get((each.topic_id, key.partition)) is each
        )

    def forget(self) -> None:
        """Forgets what was found."""
        self._found = [None] * _SLOTS


def _is_at(topic_id: bytes, octets: Any, at: int) -> bool:
    if cython.compiled:
        is_same: bool = memcmp(PyBytes_AS_STRING(topic_id), octets + at, _ID_BYTES) == 0
        return is_same
    return bool(octets[at : at + _ID_BYTES] == topic_id)


def _id_at(octets: Any, at: int) -> bytes:
    if cython.compiled:
        found: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, octets + at), _ID_BYTES)
        return found
    return bytes(octets[at : at + _ID_BYTES])
