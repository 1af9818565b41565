"""A consumer's incremental fetches from one broker (KIP-227). Does no IO.

The broker remembers the partitions and positions of the session, and answers with the partitions that have something
new. So a request names only the partitions whose position changed, and those that are not wanted any more (paused, or
read more slowly than they arrive); a consumer of thousands of quiet partitions sends and receives next to nothing.
Without a session, because the broker is old or has too many, every request names all. Source: Kafka's
FetchSessionHandler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.client.consumer.fetching import FetchSizes, Position, fetch_request
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.conversation.fetch_session_client import FINAL_EPOCH, NO_SESSION, FetchSessionClient
from headrace.types import TopicPartition

_BROKEN = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})


class FetchSessionHandler:
    """What one broker knows of the consumer's partitions."""

    def __init__(self) -> None:
        self._session = FetchSessionClient()
        self._told: dict[TopicPartition, Position] = {}

    def request(
        self, positions: Mapping[TopicPartition, Position], sizes: FetchSizes, isolation_level: int, rack: str = ""
    ) -> m.FetchRequest:
        """The request for all `positions`, and no other partition. One is in flight at a time."""
        told = {} if self._session.is_full else self._told
        changed = {partition: position for partition, position in positions.items() if told.get(partition) != position}
        request = fetch_request(changed, sizes, isolation_level, rack)
        request.session_id, request.session_epoch = self._session.session
        request.forgotten_topics_data = _forgotten(partition for partition in told if partition not in positions)
        self._told = dict(positions)
        return request

    def answered(self, answer: m.FetchResponse) -> bool:
        """Takes in a response. Whether it has data; if not, the session ended, and the next request names all."""
        if answer.error_code and answer.error_code not in _BROKEN:
            self._session.handle_error()
            return True  # an error as without a session
        return self._session.answered(answer.error_code, answer.session_id)

    def failed(self) -> None:
        """There was no response, so the broker may or may not know the positions."""
        self._session.handle_error()

    def last_request(self, sizes: FetchSizes, isolation_level: int) -> m.FetchRequest | None:
        """The request that ends the session; None without one."""
        session_id, _ = self._session.session
        if session_id == NO_SESSION:
            return None
        request = fetch_request({}, sizes._replace(max_wait_ms=0), isolation_level)
        request.session_id, request.session_epoch = session_id, FINAL_EPOCH
        return request


def _forgotten(partitions: Iterable[TopicPartition]) -> list[m.FetchRequest.ForgottenTopic]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return [m.FetchRequest.ForgottenTopic(topic=topic, partitions=those) for topic, those in topics.items()]
