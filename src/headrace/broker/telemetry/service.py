"""The service of client telemetry: follows subscriptions, answers the two requests of clients, keeps what they push.

A payload is decompressed and decoded on a thread, within bounds. Counters of one client are added up here, so a client
that a broker forgot, or that pushes to another broker now, begins at 0 again, as after a restart of the client.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from headrace.broker.telemetry.client_instances import ClientInstances, Peer, is_reserved
from headrace.broker.telemetry.otlp import Metric, read_metrics
from headrace.broker.telemetry.pushed_metrics import PushedMetrics
from headrace.broker.telemetry.subscriptions import parse_subscription
from headrace.errors import CorruptMessage, ErrorCode, KafkaError
from headrace.in_slices import Turns
from headrace.protocol import messages as m
from headrace.records.codecs.compression import Codec, decompress

log = logging.getLogger(__name__)

ACCEPTED_CODECS = [Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY]
"""In the order of Apache Kafka, the best one first."""

DECOMPRESSED_BYTES_MAX = 8 << 20
POINTS_PER_TURN = 1_000
POINTS_PER_PUSH_MAX = 20_000
"""Values of one push that are read; the rest is ignored."""


class ClientTelemetry:
    """Client telemetry of one broker."""

    def __init__(
        self,
        *,
        max_bytes: int,
        now_ms: Callable[[], int],
        new_id: Callable[[], bytes],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`max_bytes`: telemetry.max.bytes."""
        self._max_bytes, self._now_ms, self._loop = max_bytes, now_ms, loop
        self.pushed = PushedMetrics()
        self.instances = ClientInstances(on_forget=self.pushed.forget, new_id=new_id)
        self.pushes = self.malformed = 0
        self._decoding = asyncio.Lock()
        """Held by the one payload that is decoded: the threads have other work, and a flood of pushes must not delay
        it."""

    def configs_changed(self, name: str, configs: Mapping[str, str]) -> None:
        """Takes in the configs of a subscription; none means that it was deleted."""
        try:
            subscription = parse_subscription(configs) if configs else None
        except KafkaError as error:  # a broker of another version wrote it
            log.warning("the subscription %s to clients' metrics is ignored: %s", name, error.message)
            subscription = None
        self.instances.subscribe(name, subscription)

    def get(self, client: bytes, attributes: Mapping[str, str], peer: Peer) -> m.GetTelemetrySubscriptionsResponse:
        """What a client is asked to push. Raises `KafkaError`."""
        now_ms = self._now_ms()
        instance = self.instances.instance(client, attributes, peer, now_ms)
        try:
            instance.check_get(now_ms)
        except KafkaError:
            self.instances.throttled += 1
            raise
        instance.last_error = ErrorCode.NONE
        return m.GetTelemetrySubscriptionsResponse(
            client_instance_id=instance.id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=[int(each) for each in ACCEPTED_CODECS],
            push_interval_ms=instance.wanted.interval_ms,
            telemetry_max_bytes=self._max_bytes,
            delta_temporality=True,
            requested_metrics=list(instance.wanted.metrics),
        )

    async def push(self, request: m.PushTelemetryRequest, attributes: Mapping[str, str], peer: Peer) -> None:
        """Takes in what a client pushes. Raises `KafkaError`."""
        client = request.client_instance_id
        if is_reserved(client):
            raise KafkaError("a client that pushes metrics has an id of its own", ErrorCode.INVALID_REQUEST)
        now_ms = self._now_ms()
        instance = self.instances.instance(client, attributes, peer, now_ms)
        try:
            instance.check_push(
                now_ms,
                subscription_id=request.subscription_id,
                codec=request.compression_type,
                size=len(request.metrics or b""),
                max_size=self._max_bytes,
                ends=request.terminating,
            )
        except KafkaError as error:
            instance.last_error = error.code
            self.instances.throttled += error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            self.instances.unknown_subscriptions += error.code is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
            raise
        finally:
            instance.is_terminating = request.terminating
        self.pushes += 1
        try:
            await self._take(client, Codec(request.compression_type), bytes(request.metrics or b""))
        except CorruptMessage as error:
            self.malformed += 1
            instance.last_error = ErrorCode.INVALID_RECORD
            raise KafkaError(error.message, ErrorCode.INVALID_RECORD) from None
        instance.last_error = ErrorCode.NONE

    async def _take(self, client: bytes, codec: Codec, payload: bytes) -> None:
        """Decodes a payload and keeps its values. Raises `CorruptMessage`."""
        if not payload:
            return

        def read() -> list[Metric]:
            return read_metrics(decompress(codec, payload, DECOMPRESSED_BYTES_MAX))

        async with self._decoding:
            metrics = await self._loop.run_in_executor(None, read)
        points, turns = 0, Turns(POINTS_PER_TURN)
        for metric in metrics:
            points += len(metric.points)
            for first in range(0, len(metric.points), POINTS_PER_TURN):
                part = metric.points[first : first + POINTS_PER_TURN]
                if points > POINTS_PER_PUSH_MAX or client not in self.instances:
                    self.pushed.dropped += len(part)
                else:
                    self.pushed.take(client, metric._replace(points=part))
                await turns.count(len(part))
