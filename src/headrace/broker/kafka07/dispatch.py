"""The dispatcher of a listener of protocol KAFKA07: its requests become those of today.

    frame ─▶ request of 0.7 ─▶ Produce, Fetch, ListOffsets ─▶ admission ─▶ handler ─▶ response of 0.7

Clients are ANONYMOUS and have no client id, which is what rules and quotas see. A large or compressed produce is
decoded on a thread, and the connection's later requests wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, cast

from headrace.broker.kafka07 import fetch, offsets, produce
from headrace.broker.kafka07.context import Context07, Write
from headrace.broker.request.dispatch import Dispatcher, Handler
from headrace.broker.services import Services
from headrace.errors import InvalidRequest, KafkaError
from headrace.limits import INLINE_REQUEST_BYTES_MAX
from headrace.network.connection import Connection
from headrace.network.held import Held
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message
from headrace.protocol.wire_07 import (
    ErrorCode07,
    FetchedPart07,
    FetchRequest07,
    OffsetsRequest07,
    ProducePart,
    ProduceRequest07,
    code_07,
    encode_fetched,
    encode_offsets,
    read_request,
)
from headrace.records.legacy.format_07 import has_wrapper

if TYPE_CHECKING:
    from headrace.broker.kafka07.discovery import Discovery

log = logging.getLogger(__name__)


class Dispatcher07(Dispatcher):
    """Calls the handler of each frame of Kafka 0.7."""

    def __init__(self, services: Services, handlers: Mapping[int, Handler], discovery: Discovery | None = None) -> None:
        """`handlers`: those of the broker, which count these requests with theirs. With a `discovery` requests name
        partitions by its numbers, without by those of the topic."""
        super().__init__(services, ())
        self._discovery = discovery
        self._produce = handlers[ApiKey.PRODUCE]
        self._fetch = _counted(Handler(fetch.API_KEY, fetch.VERSIONS, partial(_given, fetch)), handlers)
        self._offsets = _counted(Handler(offsets.API_KEY, offsets.VERSIONS, partial(_given, offsets)), handlers)

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        """Handles one frame. Raises `InvalidRequest` when the connection must be closed."""
        request = read_request(frame)
        if isinstance(request, ProduceRequest07):
            self._handle_produce(connection, request, frame)
        elif isinstance(request, FetchRequest07):
            ctx = self._context(connection, self._fetch, 0, frame, partial(_write_fetched, request))
            topics = [
                m.FetchRequest.FetchTopic(
                    topic=topic,
                    partitions=[
                        m.FetchRequest.FetchPartition(
                            partition=self._number_of(topic, number), fetch_offset=offset, partition_max_bytes=max_bytes
                        )
                    ],
                )
                for topic, number, offset, max_bytes in request.parts
            ]
            self._call_loaded(self._fetch, ctx, m.FetchRequest(replica_id=-1, max_wait_ms=0, topics=topics))
        else:
            ctx = self._context(connection, self._offsets, 0, frame, _write_offsets)
            self._call_loaded(self._offsets, ctx, self._list_offsets(request))

    def _number_of(self, topic: str, number: int) -> int:
        return number if self._discovery is None else self._discovery.number_of(topic, number)

    def _list_offsets(self, request: OffsetsRequest07) -> m.ListOffsetsRequest:
        topic, number, time_ms, max_offsets = request.part
        wanted = m.ListOffsetsRequest.ListOffsetsPartition(
            partition_index=self._number_of(topic, number), timestamp=time_ms, max_num_offsets=max_offsets
        )
        return m.ListOffsetsRequest(
            replica_id=-1, topics=[m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])]
        )

    def _context(
        self, connection: Connection, handler: Handler, version: int, frame: memoryview, write: Write
    ) -> Context07:
        handler.times.by_version[version] += 1
        ctx = Context07(self._services, connection, handler.api_key, version, handler.times, write)
        ctx.request_bytes = len(frame)
        return ctx

    def _call_loaded(self, handler: Handler, ctx: Context07, request: object) -> None:
        if handler.request is None:
            handler.load()
        self._call(handler, ctx, request)

    # Produce

    def _handle_produce(self, connection: Connection, request: ProduceRequest07, frame: memoryview) -> None:
        ctx = self._context(connection, self._produce, produce.API_VERSION, frame, _no_response)
        missing = produce.to_be_made(ctx, request.parts)
        if not missing and len(frame) <= INLINE_REQUEST_BYTES_MAX and not any(map(_is_compressed, request.parts)):
            self._append(ctx, *self._placed(ctx, request.parts))
            return
        parts = [part._replace(messages=bytes(part.messages)) for part in request.parts]
        ctx.keep_place()
        connection.hold(Held.DECODING)
        if not self._services.spawn(self._append_later(ctx, parts, missing)):
            connection.close("the broker is shutting down")

    async def _append_later(self, ctx: Context07, parts: Sequence[ProducePart], missing: Sequence[str]) -> None:
        try:
            if missing:
                await produce.make_topics(ctx, missing)
            now_ms, (found, error) = self._services.now_ms(), self._placed(ctx, parts)
            on_a_thread = self._services.kafka07().on_a_thread
            made = await on_a_thread(lambda: produce.translated(found, now_ms))
            if not ctx.is_abandoned:
                self._append_translated(ctx, made, error)
        except InvalidRequest as error:
            ctx.connection.close(error.message)
        except Exception:
            ctx.failed()
        finally:
            ctx.connection.release(Held.DECODING)

    def _placed(self, ctx: Context07, parts: Sequence[ProducePart]) -> tuple[list[produce.Placed], KafkaError | None]:
        """The parts that can be appended here, and an error of the others."""
        found: list[produce.Placed] = []
        led: produce.Led = {}
        refused = None
        for part in parts:
            if self._discovery is not None:
                number = self._discovery.number_to_produce_to(part.topic, part.partition)
                part = part._replace(partition=number)
            try:
                found.append(produce.placed(ctx, part, led))
            except KafkaError as error:
                self._services.replicas.traffic.known(part.topic).failed_produces += 1
                refused = error
        return found, refused

    def _append(self, ctx: Context07, parts: Sequence[produce.Placed], error: KafkaError | None) -> None:
        self._append_translated(ctx, produce.translated(parts, self._services.now_ms()), error)

    def _append_translated(self, ctx: Context07, made: produce.Translated, error: KafkaError | None) -> None:
        error = error or made.error
        if made.request.topic_data:
            self._call_loaded(self._produce, ctx, made.request)
        else:
            ctx.no_reply()
        if error is not None:
            log.info("a produce of Kafka 0.7 is refused: %s", error.message, extra={"peer": ctx.connection.peer})
            ctx.connection.close(f"a produce was refused: {error.message}")


def _given(module: ModuleType) -> ModuleType:
    return module


def _counted(handler: Handler, others: Mapping[int, Handler]) -> Handler:
    """A handler whose requests are counted with those of today's API."""
    handler.times = others[handler.api_key].times
    return handler


def _is_compressed(part: ProducePart) -> bool:
    return has_wrapper(part.messages)


def _write_fetched(request: FetchRequest07, message: Message) -> bytes:
    """A response without parts is that to a throttled client, which gets no messages."""
    response = cast("m.FetchResponse", message)
    parts = [
        FetchedPart07(code_07(each.error_code), cast("bytes", each.records) or b"")
        for topic in response.responses
        for each in topic.partitions
    ]
    if not parts:
        parts = [FetchedPart07(code_07(response.error_code))] * len(request.parts)
    return encode_fetched(parts, is_multi=request.is_multi)


def _write_offsets(message: Message) -> bytes:
    (topic,) = cast("m.ListOffsetsResponse", message).topics
    (answer,) = topic.partitions
    error = code_07(answer.error_code)
    return encode_offsets(error, [] if error is not ErrorCode07.NO_ERROR else answer.old_style_offsets)


def _no_response(_message: Message) -> bytes:
    raise AssertionError("a produce of Kafka 0.7 has no response")
