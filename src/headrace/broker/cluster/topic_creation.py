"""Automatic topic creation: asks the controller to create topics for a client's Metadata, or for a coordinator.

When the controller is another broker, its response may arrive before the UpdateMetadata that contains the new topic.
The creation waits for that UpdateMetadata, since the client will use the topic at once.

A controller that does not permit it to the brokers' principal, which needs no more than CLUSTER_ACTION, finds the topic
in the metadata store instead, as Apache Kafka 3.9's controllers find those of their brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from headrace.broker.cluster.controller_link import ControllerLink
from headrace.controller.controller import Controller
from headrace.controller.controller_epoch import NotController
from headrace.controller.decisions.topics import ClusterTopics, RequestedTopic, flat_name
from headrace.errors import ErrorCode, KafkaError, known_code
from headrace.metadata.metadata_cache import MetadataCache
from headrace.protocol import messages as m

TIMEOUT_MS = 10_000
_FORBIDDEN = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
_KNOWN_WITHIN_S = 2.0
_LOOK_S = 0.01


class TopicCreation:
    """Creates topics through the controller."""

    def __init__(
        self, controller: Controller, link: ControllerLink, metadata: MetadataCache, *, is_alone: bool
    ) -> None:
        """`controller` is this broker's own, active or not; `link` reaches the active one on another broker."""
        self._controller, self._link, self._metadata, self._is_alone = controller, link, metadata, is_alone

    async def make(
        self,
        topics: Sequence[RequestedTopic],
        is_wanted: Callable[[], bool] | None = None,
        client_id: str = "",
    ) -> Mapping[str, KafkaError | None]:
        """Creates topics; returns the outcome of each by name, None for success. Raises `PeerUnreachable` when no
        controller answered, or `is_wanted` ended it, as of `ControllerLink.send`. `client_id` is that of the request to
        another broker."""
        if self._controller.is_active or self._is_alone:
            try:
                made = await self._controller.create_topics(topics, timeout_ms=TIMEOUT_MS)
            except NotController:
                if self._is_alone:
                    raise
            else:
                return {name: outcome if isinstance(outcome, KafkaError) else None for name, outcome in made.items()}
        answer = await self._link.send(
            _request(topics),
            m.CreateTopicsResponse,
            timeout_ms=TIMEOUT_MS,
            is_refused=_is_refused,
            is_wanted=is_wanted,
            client_id=client_id,
        )
        outcomes = {each.name: _outcome(each) for each in answer.topics}
        forbidden = {name for name, error in outcomes.items() if error is not None and error.code in _FORBIDDEN}
        if forbidden:
            snapshot = self._metadata.snapshot
            wanted = [each for each in topics if each.name in forbidden]
            view = ClusterTopics(snapshot.topics, _flat_names(snapshot.topics, wanted), (), snapshot.brokers)
            outcomes |= await self._controller.leave_topics(wanted, view)
        await self._until_known([name for name, error in outcomes.items() if error is None])
        return outcomes

    async def _until_known(self, names: Sequence[str]) -> None:
        for _ in range(int(_KNOWN_WITHIN_S / _LOOK_S)):
            if all(self._metadata.topic(name) is not None for name in names):
                return
            await asyncio.sleep(_LOOK_S)


def _flat_names(known: Iterable[str], wanted: Iterable[RequestedTopic]) -> dict[str, list[str]]:
    """The known topics whose names collide with those of new ones."""
    found: dict[str, list[str]] = {flat_name(each.name): [] for each in wanted}
    for name in known:
        if (flat := flat_name(name)) in found:
            found[flat].append(name)
    return found


def _request(topics: Sequence[RequestedTopic]) -> m.CreateTopicsRequest:
    return m.CreateTopicsRequest(
        topics=[
            m.CreateTopicsRequest.CreatableTopic(
                name=topic.name,
                num_partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                assignments=[],
                configs=[
                    m.CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
                    for name, value in topic.configs.items()
                ],
            )
            for topic in topics
        ],
        timeout_ms=TIMEOUT_MS,
    )


def _is_refused(answer: m.CreateTopicsResponse) -> bool:
    return any(each.error_code == ErrorCode.NOT_CONTROLLER for each in answer.topics)


def _outcome(result: m.CreateTopicsResponse.CreatableTopicResult) -> KafkaError | None:
    return KafkaError(result.error_message or "", known_code(result.error_code)) if result.error_code else None
