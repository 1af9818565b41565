"""What a consumer commits to its group: when it is told to, and now and then by itself.

A commit by itself is no call of the application's. So it does not hold up a poll while the coordinator is away, and is
not an error then: the next one has the same positions, or later ones. Apache Kafka's consumer logs it, too.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from headrace.client.consumer.group_errors import REJOIN
from headrace.client.consumer.interceptors import ConsumerInterceptors
from headrace.client.consumer.positions import Positions
from headrace.client.consumer.sessions import Session
from headrace.client.consumer.settings import ConsumerSettings
from headrace.client.core.failures import ClientClosed
from headrace.client.core.group_metadata import OffsetAndMetadata
from headrace.client.core.timing import Deadline
from headrace.client.metrics.consuming import ConsumerMetrics
from headrace.errors import ErrorCode, InvalidConfig, KafkaError
from headrace.types import Offset, TopicPartition

_log = logging.getLogger(__name__)

_ATTEMPT_MS = 2_000
"""The longest that a commit by itself may take out of a poll."""
_LAST_MS = 30_000
"""The longest that one may take before partitions go, and so `close`: Kafka's default of that."""


class Commits:
    """The commits of one consumer."""

    def __init__(
        self,
        session: Session | None,
        positions: Positions,
        settings: ConsumerSettings,
        interceptors: ConsumerInterceptors | None,
        metrics: ConsumerMetrics,
    ) -> None:
        self._session = session
        self._positions = positions
        self._settings = settings
        self._interceptors = interceptors
        self._metrics = metrics
        self._is_automatic = session is not None and settings.auto_commit
        self._next = Deadline.after_ms(settings.auto_commit_interval_ms)

    @property
    def is_due(self) -> bool:
        """Whether it is time for a commit by itself."""
        return self._is_automatic and self._next.expired

    def group(self, call: str) -> Session:
        """The consumer's link to its group. InvalidConfig if there is none, which `call` needs."""
        if self._session is None:
            raise InvalidConfig(f"{call} needs a group_id")
        return self._session

    def commit(
        self,
        wanted: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: Deadline | None = None,
        *,
        once: bool = False,
    ) -> None:
        """Commit these offsets; with `once` in one attempt. Raises KafkaError."""
        began_s = self._metrics.now_s()
        try:
            self.group("commit").commit(wanted, deadline, once=once)
        except BaseException:  # the coordinator may have some of them
            for known in wanted:
                self._positions.committed.pop(known, None)
            raise
        if wanted:
            self._metrics.committed(began_s)
        self._positions.committed.update({known: Offset(place.offset) for known, place in wanted.items()})
        if self._interceptors is not None and wanted:
            self._interceptors.on_commit(wanted)

    def auto_commit(self, *, now: bool = False) -> None:
        """Commit the positions if it is time, or `now`, unless the consumer does not commit by itself.

        Raises KafkaError if the group refuses them for good. Other failures are lines in the log.
        """
        if not (now and self._is_automatic) and not self.is_due:
            return
        self._next = Deadline.after_ms(self._settings.auto_commit_interval_ms)
        try:
            deadline = Deadline.after_ms(_LAST_MS if now else _ATTEMPT_MS)
            self.commit(self._positions.to_commit(), deadline, once=not now)
        except KafkaError as cause:
            if cause.code in REJOIN:
                return
            is_late = isinstance(cause, ClientClosed)  # close() has cut the connection to a silent coordinator
            if not (is_late or cause.code.retriable or cause.code == ErrorCode.STALE_MEMBER_EPOCH):
                raise
            _log.warning("positions were not committed: %s", cause)
