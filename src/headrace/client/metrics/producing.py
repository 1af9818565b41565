"""What a producer does: records, batches, and how long they wait."""

from __future__ import annotations

from collections.abc import Callable, Collection
from time import monotonic
from typing import NamedTuple

from headrace.client.core.cluster import Cluster
from headrace.client.metrics.client_metrics import ClientMetrics
from headrace.client.metrics.meters import Clock, Meter, record_each
from headrace.client.metrics.registry import Resource
from headrace.client.producer.delivery import Batch

GROUP, TOPIC_GROUP = "producer-metrics", "producer-topic-metrics"


class _Counts(NamedTuple):
    """The records of a producer, or of one topic."""

    sent: Meter
    failed: Meter
    retried: Meter


class ProducerMetrics(ClientMetrics):
    """The metrics of one producer."""

    def __init__(
        self,
        cluster: Cluster,
        buffer_bytes: int,
        held: Callable[[], int],
        resource: Resource | None = None,
        clock: Clock = monotonic,
    ) -> None:
        """`held`: the bytes in the buffer. `resource`: see ClientMetrics."""
        super().__init__(cluster, "producer", clock, resource)
        registry = self.registry
        self._topics: dict[str, tuple[_Counts, Meter]] = {}
        self._sent: dict[str, tuple[Meter, ...]] = {}
        group = registry.group(GROUP)
        self._all = self._counts(group.totalled)
        self._batch_size = group.timed("batch-size")
        self._queue_time = group.timed("record-queue-time")
        self._per_request = Meter(registry.clock)
        self._compression = Meter(registry.clock)
        self.throttled: Meter = group.timed("produce-throttle-time")
        """How long brokers asked the producer to wait, in milliseconds."""
        self.exhausted: Meter = group.totalled("buffer-exhausted")
        """How often `send` gave up, because the buffer was full."""
        group.gauge("records-per-request-avg", lambda: self._per_request.average)
        group.gauge("compression-rate-avg", lambda: self._compression.average)
        group.gauge("buffer-total-bytes", lambda: buffer_bytes)
        group.gauge("buffer-available-bytes", lambda: max(0, buffer_bytes - held()))

    def sent(self, batches: Collection[Batch]) -> None:
        """A request with these batches, which are encoded, was sent."""
        now_s = self.registry.clock()
        total = 0
        for batch in batches:
            size, count = len(batch.encoded or b""), batch.count
            total += count
            waited_ms = max(0.0, now_s - batch.opened_s) * 1000
            ratio = size / batch.size_bytes if batch.size_bytes else 1.0
            meters = self._sent.get(batch.partition.topic) or self._meters_of(batch)
            record_each(meters, (size, waited_ms, ratio, count, count, size))
        self._per_request.record(total)

    def _meters_of(self, batch: Batch) -> tuple[Meter, ...]:
        """What a batch of a topic is counted in when it was sent."""
        counts, sizes = self._of(batch)
        found = (self._batch_size, self._queue_time, self._compression, self._all.sent, counts.sent, sizes)
        self._sent[batch.partition.topic] = found
        return found

    def retried(self, batch: Batch) -> None:
        """A batch is sent again."""
        for counts in (self._all, self._of(batch)[0]):
            counts.retried.record(batch.count)

    def failed(self, batch: Batch) -> None:
        """A batch has failed for good."""
        for counts in (self._all, self._of(batch)[0]):
            counts.failed.record(batch.count)

    def _of(self, batch: Batch) -> tuple[_Counts, Meter]:
        topic = batch.partition.topic
        found = self._topics.get(topic)
        if found is None:
            group = self.registry.group(TOPIC_GROUP, "topic", topic)
            found = self._topics.setdefault(topic, (self._counts(group.totalled), group.totalled("byte")))
        return found

    @staticmethod
    def _counts(totalled: Callable[[str], Meter]) -> _Counts:
        return _Counts(totalled("record-send"), totalled("record-error"), totalled("record-retry"))
