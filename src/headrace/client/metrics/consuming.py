"""What a consumer does: fetches, records, polls, commits and rebalances."""

from __future__ import annotations

import math
from time import monotonic
from typing import Protocol

from headrace.client.core.cluster import Cluster
from headrace.client.metrics.client_metrics import ClientMetrics
from headrace.client.metrics.meters import Clock, Meter
from headrace.client.metrics.registry import Resource
from headrace.types import TopicPartition

GROUP, FETCH_GROUP, COORDINATOR_GROUP = (
    "consumer-metrics",
    "consumer-fetch-manager-metrics",
    "consumer-coordinator-metrics",
)


class Measured(Protocol):
    """The positions of a consumer."""

    assigned: list[TopicPartition]

    def known_lag(self) -> float:
        """The largest lag of a partition, by the ends that fetches have told."""


class ConsumerMetrics(ClientMetrics):
    """The metrics of one consumer."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Measured,
        resource: Resource | None = None,
        clock: Clock = monotonic,
    ) -> None:
        """`resource`: see ClientMetrics."""
        super().__init__(cluster, "consumer", clock, resource)
        registry = self.registry
        self._clock = registry.clock
        self._polled_s: float | None = None
        self._unsettled_s: float | None = None
        self._rebalanced_s: float | None = None
        group = registry.group(GROUP)
        self._between_polls = group.timed("time-between-poll")
        self._idle = Meter(registry.clock)
        group.gauge("poll-idle-ratio-avg", lambda: self._idle.average)
        group.gauge("last-poll-seconds-ago", lambda: self._since(self._polled_s))
        group = registry.group(FETCH_GROUP)
        self._latency = group.timed("fetch-latency", "fetch")
        self._size = group.timed("fetch-size")
        self._bytes = group.totalled("bytes-consumed")
        self._records = group.totalled("records-consumed")
        self._per_request = Meter(registry.clock)
        self.throttled: Meter = group.timed("fetch-throttle-time")
        """How long brokers asked the consumer to wait, in milliseconds."""
        group.gauge("records-per-request-avg", lambda: self._per_request.average)
        group.gauge("records-lag-max", positions.known_lag)
        group = registry.group(COORDINATOR_GROUP)
        self._commits = group.timed("commit-latency", "commit")
        self._rebalances = group.timed("rebalance-latency", "rebalance")
        group.gauge("assigned-partitions", lambda: len(positions.assigned))
        group.gauge("last-rebalance-seconds-ago", lambda: self._since(self._rebalanced_s))

    def now_s(self) -> float:
        """The clock of the metrics."""
        return self._clock()

    def _since(self, at_s: float | None) -> float:
        """Kafka says -1 for what has not happened."""
        return -1.0 if at_s is None else math.floor(self._clock() - at_s)

    def poll_begins(self) -> float:
        """The program asks for records; returns the time."""
        self.begin()
        now_s = self._clock()
        if self._polled_s is not None:
            self._between_polls.record((now_s - self._polled_s) * 1000)
        return now_s

    def poll_ends(self, began_s: float, records: int) -> None:
        """The program has its answer: so many records."""
        now_s = self._clock()
        if self._polled_s is not None and now_s > self._polled_s:
            self._idle.record((now_s - began_s) / (now_s - self._polled_s))
        self._polled_s = began_s
        if records:
            self._records.record(records)

    def fetched(self, sent_s: float, size: int) -> None:
        """A fetch that was sent at that time has brought so many bytes of records."""
        self._latency.record((self._clock() - sent_s) * 1000)
        self._size.record(size)
        self._bytes.record(size)

    def chunk(self, records: int) -> None:
        """So many offsets of one partition were in an answer."""
        self._per_request.record(records)

    def committed(self, began_s: float) -> None:
        """A commit that began at that time was answered."""
        self._commits.record((self._clock() - began_s) * 1000)

    def is_settled(self, *, settled: bool) -> None:
        """Whether the member has all that it is to have; in between is a rebalance."""
        if not settled:
            self._unsettled_s = self._clock() if self._unsettled_s is None else self._unsettled_s
        elif self._unsettled_s is not None:
            now_s, since_s, self._unsettled_s = self._clock(), self._unsettled_s, None
            self._rebalances.record((now_s - since_s) * 1000)
            self._rebalanced_s = now_s
