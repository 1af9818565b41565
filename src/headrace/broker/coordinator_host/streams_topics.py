"""Creation of the internal topics of Kafka Streams applications: repartition topics and changelogs.

A heartbeat that finds topics missing asks for them and does not wait: the next heartbeats see whether they exist. A
topic is asked for once at a time. After a failure it is asked for again when the failure is forgotten; until then
answers tell it. Source: Kafka's `AutoTopicCreationManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headrace.controller.decisions.topics import RequestedTopic
from headrace.errors import KafkaError
from headrace.limits import STREAMS_TOPIC_FAILURES_MAX

if TYPE_CHECKING:
    from headrace.coordinators.groups.streams.configured_topology import TopologyInternalTopic

log = logging.getLogger(__name__)

DEFAULT_REPLICATION_FACTOR = -1
_FAILURES_SHOWN_MAX = 3


class Creation(Protocol):
    """The part of `TopicCreation` that is needed."""

    async def make(self, topics: Sequence[RequestedTopic]) -> Mapping[str, KafkaError | None]: ...


class _Failure(NamedTuple):
    message: str
    forget_at_ms: int


class StreamsTopics:
    """Creates internal topics of streams groups, in the background."""

    def __init__(
        self,
        creation: Creation,
        spawn: Callable[[Coroutine[object, object, None]], object],
        now_ms: Callable[[], int],
    ) -> None:
        self._creation, self._spawn, self._now_ms = creation, spawn, now_ms
        self._under_way: set[str] = set()
        self._failures: dict[str, _Failure] = {}

    def create(self, topics: Iterable[TopologyInternalTopic], *, forget_after_ms: int) -> str:
        """Begins to create the topics, except those that are under way or have failed lately. Returns the failures of
        these, as text; empty without."""
        now_ms = self._now_ms()
        known = {name: each for name, each in self._failures.items() if each.forget_at_ms > now_ms}
        self._failures = known
        wanted = list(topics)
        new = [each for each in wanted if each.name not in known and each.name not in self._under_way]
        if new:
            self._under_way.update(each.name for each in new)
            self._spawn(self._create(new, forget_after_ms))
        failed = [f"{each.name} ({known[each.name].message})" for each in wanted if each.name in known]
        more = len(failed) - _FAILURES_SHOWN_MAX
        shown = ", ".join(failed[:_FAILURES_SHOWN_MAX])
        return f"{shown} and {more} more" if more > 0 else shown

    async def _create(self, topics: list[TopologyInternalTopic], forget_after_ms: int) -> None:
        names = [each.name for each in topics]
        outcomes: Mapping[str, KafkaError | None]
        try:
            outcomes = await self._creation.make([_new_topic(each) for each in topics])
        except KafkaError as unreachable:
            outcomes = dict.fromkeys(names, unreachable)
        finally:
            self._under_way.difference_update(names)
        forget_at_ms = self._now_ms() + forget_after_ms
        for name, error in outcomes.items():
            if error is None:
                log.info("created %s for a streams group", name)
            elif len(self._failures) < STREAMS_TOPIC_FAILURES_MAX:
                log.warning("%s could not be created for a streams group: %s", name, error)
                self._failures[name] = _Failure(error.message or error.code.name, forget_at_ms)


def _new_topic(topic: TopologyInternalTopic) -> RequestedTopic:
    return RequestedTopic(
        name=topic.name,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor or DEFAULT_REPLICATION_FACTOR,
        configs=dict(topic.configs),
    )
