"""A share session: what one broker knows of a member's partitions, and the requests that change it. Does no IO.

    epoch 0     the first request: all partitions, no acknowledgements
    1, 2, ...   each next one, after an answer: what was added, what was forgotten, acknowledgements
    -1          the last one, which releases what was not acknowledged

After an error of the session the broker has released everything, and the member begins at 0 again. One request of a
session is in flight at a time. Source: Kafka's `ShareSessionHandler`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

from headrace.client.consumer.fetching import FetchSizes
from headrace.client.share.acknowledgements import AcknowledgeType, batches_of
from headrace.errors import ErrorCode
from headrace.limits import INT32_MAX
from headrace.protocol import messages as m
from headrace.types import Offset

Place: TypeAlias = tuple[bytes, int]
"""A topic id and a partition."""
Acknowledged: TypeAlias = Mapping[Place, Mapping[Offset, int]]

_LAST_EPOCH = -1
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)

V = TypeVar("V")


class FetchLimits(NamedTuple):
    """How much one request may return."""

    sizes: FetchSizes
    max_records: int
    acquire_mode: int


class ShareSessionHandler:
    """The session with one broker."""

    def __init__(self, group_id: str, member_id: str) -> None:
        self._group_id, self._member_id = group_id, member_id
        self._epoch = 0
        self._known: set[Place] = set()

    @property
    def is_open(self) -> bool:
        """Whether the broker has the session, so that acknowledgements can be sent."""
        return self._epoch > 0

    def fetch_request(
        self, wanted: Iterable[Place], acknowledged: Acknowledged, limits: FetchLimits
    ) -> m.ShareFetchRequest:
        """Fetch from these partitions, and acknowledge; the latter only if the session is open."""
        asked = m.ShareFetchRequest.FetchPartition
        batch = m.ShareFetchRequest.AcknowledgementBatch
        chosen = set(wanted)
        topics: dict[bytes, list[m.ShareFetchRequest.FetchPartition]] = {}
        for topic_id, index in sorted((chosen - self._known) | acknowledged.keys()):
            batches = [
                batch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in batches_of(acknowledged.get((topic_id, index), {}))
            ]
            part = asked(partition_index=index, partition_max_bytes=0, acknowledgement_batches=batches)
            topics.setdefault(topic_id, []).append(part)
        forgotten = m.ShareFetchRequest.ForgottenTopic
        gone = _by_topic(self._known - chosen)
        self._known = chosen
        return m.ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=limits.sizes.max_wait_ms,
            min_bytes=limits.sizes.min_bytes,
            max_bytes=limits.sizes.max_bytes,
            max_records=limits.max_records,
            batch_size=limits.max_records,
            share_acquire_mode=limits.acquire_mode,
            is_renew_ack=False,
            topics=[
                m.ShareFetchRequest.FetchTopic(topic_id=topic_id, partitions=parts)
                for topic_id, parts in topics.items()
            ],
            forgotten_topics_data=[forgotten(topic_id=topic_id, partitions=parts) for topic_id, parts in gone.items()],
        )

    def acknowledge_request(self, acknowledged: Acknowledged, *, is_last: bool = False) -> m.ShareAcknowledgeRequest:
        """Acknowledge without a fetch; the last request of a session also releases the rest."""
        batch = m.ShareAcknowledgeRequest.AcknowledgementBatch
        topics: dict[bytes, list[m.ShareAcknowledgeRequest.AcknowledgePartition]] = {}
        for (topic_id, index), offsets in sorted(acknowledged.items()):
            batches = [
                batch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in batches_of(offsets)
            ]
            part = m.ShareAcknowledgeRequest.AcknowledgePartition(
                partition_index=index, acknowledgement_batches=batches
            )
            topics.setdefault(topic_id, []).append(part)
        named = m.ShareAcknowledgeRequest.AcknowledgeTopic
        return m.ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=_LAST_EPOCH if is_last else self._epoch,
            is_renew_ack=has_renewals(acknowledged),
            topics=[named(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
        )

    def answered(self, code: int) -> None:
        """The request was answered: the next epoch, or a new session if this one is gone."""
        if code in _SESSION_ERRORS:
            self.lost()
        elif not code:
            self._epoch = 1 if self._epoch == INT32_MAX else self._epoch + 1

    def lost(self) -> None:
        """The broker may not have the session any more."""
        self._epoch = 0
        self._known = set()


def has_renewals(acknowledged: Acknowledged) -> bool:
    """Whether a record's lock is to be renewed."""
    return any(kind == AcknowledgeType.RENEW for offsets in acknowledged.values() for kind in offsets.values())


def _by_topic(places: Iterable[Place]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(places):
        found.setdefault(topic_id, []).append(index)
    return found
