"""An incremental fetch (KIP-227): the session has the partitions, and the response has those that changed.

A partition that is unchanged since the last response costs a few comparisons and no object.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from headrace.broker.fetch.fetch import Fetch, code_of, topic_name, unknown_topic
from headrace.broker.fetch.fetch_sessions import FetchSession, PartitionKey, SessionPartition
from headrace.broker.partitions.partition import Partition
from headrace.broker.request.context import RequestContext
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.model import NO_UUID
from headrace.protocol import messages as m


class SessionFetch(Fetch):
    """An incremental fetch: reads every partition of the session, and answers with the changed ones."""

    __slots__ = ("_changed", "_epoch", "_session")

    def __init__(
        self, ctx: RequestContext, request: m.FetchRequest, session: FetchSession, epoch: int | None = None
    ) -> None:
        """`epoch`: of the session, behind this request, which is not the session's own if the client has sent another
        request since."""
        super().__init__(ctx, request, ())
        self._session, self._epoch = session, session.epoch if epoch is None else epoch
        self._changed: list[tuple[PartitionKey, SessionPartition, m.FetchResponse.PartitionData]] = []

    def keys(self) -> Iterable[Hashable]:
        """What the fetch waits for."""
        return self._watched(each.key for each in self._session.partitions.values())

    def partition_count(self) -> int:
        """How many partitions the fetch reads."""
        return len(self._session.partitions)

    def finish(self) -> m.FetchResponse:
        """Completes the response, and notes it in the session."""
        session, response = self._session, self.response
        response.session_id = session.id
        if session.epoch != self._epoch:  # the client sent another request before this response
            response.error_code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            return response
        if throttle_ms := self.throttle_ms():
            return m.FetchResponse(session_id=session.id, throttle_time_ms=throttle_ms)
        self._count()
        self._name_leaders()
        by_topic: dict[str | bytes, m.FetchResponse.FetchableTopicResponse] = {}
        for key, partition, answer in self._changed:
            session.record_response(key, answer)
            topic = by_topic.get(key[0])
            if topic is None:
                topic = by_topic[key[0]] = m.FetchResponse.FetchableTopicResponse(
                    topic=partition.key.topic, topic_id=partition.topic_id
                )
            topic.partitions.append(answer)
        response.responses = list(by_topic.values())
        return response

    def read(self) -> None:
        """Reads every partition of the session that changed since the last response."""
        self._reset()
        self._changed = []
        if self._session.epoch != self._epoch:
            self._must_answer = True
            return
        replicas, has_rules = self._ctx.services.replicas, self._ctx.services.admission.has_rules
        for key, each in self._session.partitions.items():
            found = replicas.find(each.key)
            try:
                if has_rules and each.key.topic:
                    self.check_rights(each.key.topic)
                if found is not None and self._is_unchanged(found, each):
                    self._has_readable = True
                    continue
                answer = self._read_partition(self._leader(each), each.topic_id, each.wanted)
            except (KafkaError, OSError) as error:
                answer = self._refuse(each.key, code_of(error))
            if each.must_be_sent(answer):
                self._changed.append((key, each, answer))

    def _leader(self, each: SessionPartition) -> Partition:
        if not each.key.topic:
            name = topic_name(self._ctx, each.topic_id, is_follower=self._follower is not None)
            if name is None:
                raise unknown_topic(self._ctx, each.topic_id)
            each.named(name)
            self.check_rights(name)
        return self._replica(*each.key)

    def _is_unchanged(self, partition: Partition, cached: SessionPartition) -> bool:
        if self._follower is not None:
            return self._follower.is_unchanged(partition, cached, counts=not self.is_waiting)
        return _is_unchanged(partition, cached)


def _is_unchanged(partition: Partition, cached: SessionPartition) -> bool:
    """Whether the partition is unchanged since the last response. False when in doubt; a read then decides."""
    state = partition.state
    return (
        cached.fetch_offset == state.high_watermark == cached.high_watermark
        and partition.log.log_start_offset == cached.log_start_offset
        and state.is_leader
        and (cached.leader_epoch < 0 or cached.leader_epoch == state.leader_epoch)
        and cached.topic_id in (NO_UUID, partition.log.topic_id)
    )
