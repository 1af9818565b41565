"""Fetches before version 4, whose clients know message format 0 (versions 0 and 1) or 1 (versions 2 and 3).

    read       as any fetch; then, when there is enough, on a thread, range by range:
    unchanged  if the client knows the format of every batch, the file range is sent as it is
    converted  otherwise, from the fetch offset on (see `records.legacy.conversion`)

Apache Kafka converts while it sends, with a size that it must know before. Here a response holds at most
`CONVERTED_BYTES_PER_FETCH_MAX` of converted messages (or one batch, if that is larger), and the client fetches again.
Two conversions run at a time, and one per connection; other fetches are answered without records meanwhile. The
partition that is converted first changes from fetch to fetch, since such clients always use the same order.

Before version 3 nothing exceeds `partition_max_bytes`: a larger batch is cut, and the client reports it.
Source: Kafka's KafkaApis.maybeDownConvert, FileRecords.downConvert; KIP-74, KIP-283.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count
from time import perf_counter_ns
from typing import NamedTuple, cast

from headrace.broker.fair_threads import FairThreads
from headrace.broker.fetch.fetch import Fetch
from headrace.broker.partitions.replica_manager import Partition
from headrace.broker.request.context import Answer, RequestContext
from headrace.errors import ErrorCode, KafkaError, StorageError
from headrace.limits import CONVERTED_BYTES_PER_FETCH_MAX, CONVERTING_AT_ONCE_MAX
from headrace.log.segment.batch_scan import read_headers
from headrace.log.segment_list import SegmentRange
from headrace.network.connection import Connection
from headrace.protocol import messages as m
from headrace.records.legacy.conversion import convert_batches
from headrace.types import TopicPartition

AS_STORED_FROM = 4
_FORMAT_1_FROM, _AT_LEAST_ONE_FROM = 2, 3
_STEP_BYTES = 1 << 20

_converting = FairThreads(CONVERTING_AT_ONCE_MAX, "convert")
_connections: set[Connection] = set()
_turn = count()


class Sent(NamedTuple):
    """The records sent of one partition; `next_offset` is the offset after them."""

    records: bytes | SegmentRange
    next_offset: int
    converted: int
    elapsed_ns: int


class OldFetch:
    """One fetch of a client that does not know format 2: reads as any `Fetch`, then converts the records."""

    __slots__ = ("_ctx", "_fetch", "_is_cut", "_magic", "_max_wait_ms")

    def __init__(
        self, ctx: RequestContext, request: m.FetchRequest, topics: Sequence[m.FetchRequest.FetchTopic]
    ) -> None:
        self._ctx, self._max_wait_ms = ctx, request.max_wait_ms
        self._magic = 1 if ctx.api_version >= _FORMAT_1_FROM else 0
        self._is_cut = ctx.api_version < _AT_LEAST_ONE_FROM
        self._fetch = Fetch(ctx, request, topics, at_least_one_each=self._is_cut)

    def start(self) -> Answer:
        """Answers now or later."""
        fetch = self._fetch
        if not (fetch.read_enough() or fetch.ends_now()):
            fetch.is_waiting = True
            return self._ctx.wait_for(self, fetch.keys(), self._max_wait_ms)
        if fetch.size == 0:
            return self._finish()
        return self._ctx.in_order(self._convert(), lambda error: self._failed(error))

    def try_complete(self) -> bool:
        """Reads; returns True when that is enough for a response, and begins to convert it."""
        if self._ctx.is_abandoned:
            return True
        if not self._fetch.read_enough():
            return False
        self._send()
        return True

    def expire(self) -> None:
        """Answers with the records read so far."""
        if not self._ctx.is_abandoned:
            self._fetch.read()
            self._send()

    def _send(self) -> None:
        """Answers a fetch that was waiting."""
        if self._fetch.size == 0:
            self._ctx.reply(self._finish())
        else:
            self._ctx.services.spawn(self._convert_and_reply())

    async def _convert_and_reply(self) -> None:
        try:
            answer = await self._convert()
        except Exception as error:
            answer = self._failed(error)
        if not self._ctx.is_abandoned:
            self._ctx.reply(answer)

    def _failed(self, error: Exception) -> m.FetchResponse:
        code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        for topic in self._fetch.response.responses:
            for each in topic.partitions:
                if each.records:
                    each.error_code, each.records = code, b""
        return self._fetch.response

    async def _convert(self) -> m.FetchResponse:
        """Converts the response to the client's format."""
        connection = self._ctx.connection
        found = [
            (topic.topic, wanted, each)
            for topic, topic_response in zip(self._fetch.topics, self._fetch.response.responses, strict=True)
            for wanted, each in zip(topic.partitions, topic_response.partitions, strict=True)
            if each.records
        ]
        if connection in _connections:
            for _, _, each in found:
                each.records = b""
            return self._finish()
        _connections.add(connection)
        try:
            first = next(_turn) % len(found)
            left = CONVERTED_BYTES_PER_FETCH_MAX
            for topic, wanted, each in found[first:] + found[:first]:
                left -= await self._convert_one(topic, wanted, each, left)
        finally:
            _connections.discard(connection)
        return self._finish()

    async def _convert_one(
        self, topic: str, wanted: m.FetchRequest.FetchPartition, each: m.FetchResponse.PartitionData, left: int
    ) -> int:
        """Converts one partition's records; returns the number of converted bytes."""
        broker = self._ctx.services
        key = TopicPartition(topic, wanted.partition)
        offset = wanted.fetch_offset
        range_ = cast(SegmentRange, each.records)
        each.records = b""
        while left > 0:
            send = partial(to_send, range_, offset, self._magic, min(wanted.partition_max_bytes, left), self._is_cut)
            try:
                sent = await broker.loop.run_in_executor(_converting.of(self._ctx.prefix), send)
                each.records = sent.records
                if sent.converted:
                    partition = broker.replicas.find(key)
                    if partition is not None:
                        partition.traffic.fetch_conversions += sent.converted
                    broker.replicas.conversion_times["Fetch"].add(sent.elapsed_ns)
                if sent.records:
                    return len(sent.records) if isinstance(sent.records, bytes) else 0
                following = self._range_behind(broker.replicas.find(key), sent.next_offset, offset)
            except KafkaError as error:
                each.error_code = error.code
                return 0
            if following is None:
                return 0
            range_, offset = following, sent.next_offset  # only markers, which old formats cannot represent
        return 0

    def _range_behind(self, partition: Partition | None, next_offset: int, offset: int) -> SegmentRange | None:
        if partition is None or next_offset <= offset:
            return None
        end_offset = partition.high_watermark
        if next_offset >= end_offset:
            return None
        return partition.log.read(next_offset, _STEP_BYTES, end_offset=end_offset, at_least_one=True)

    def _finish(self) -> m.FetchResponse:
        """Completes the response, and counts what is sent: converted records differ in size from those that were
        read. Quotas count what is larger. It is empty if the client is throttled."""
        sent: list[tuple[str, int]] = []
        for topic in self._fetch.response.responses:
            for each in topic.partitions:
                records = cast("bytes | SegmentRange", each.records)
                sent.append((topic.topic, len(records) if isinstance(records, bytes) else records.size))
        self._fetch.size = max(self._fetch.size, sum(size for _, size in sent))
        if throttle_ms := self._fetch.throttle_ms():
            return m.FetchResponse(throttle_time_ms=throttle_ms)
        traffic = self._ctx.services.replicas.traffic
        for name, size in sent:
            traffic.known(name).bytes_out += size
        return self._fetch.response


def to_send(range_: SegmentRange, offset: int, magic: int, max_bytes: int, is_cut: bool) -> Sent:
    """Converts a range of the log for a client of format `magic` that fetches from `offset`. May run on any thread.

    A converted range has at most `max_bytes`, or one message if that is larger; with `is_cut` that message is cut, too.
    Raises CorruptMessage, UnsupportedCompressionType, StorageError.
    """
    started = perf_counter_ns()
    end = range_.position + range_.size
    try:
        if all(header.magic <= magic for _, header in read_headers(range_.file, range_.position, end)):
            return Sent(range_._replace(size=min(range_.size, max_bytes)) if is_cut else range_, offset, 0, 0)
        data = bytearray()
        position, records, next_offset = range_.position, 0, offset
        while position < end and len(data) < max_bytes:
            chunk = range_.file.read(min(_STEP_BYTES, end - position), position)
            size = _first_batch_bytes(chunk)
            if size > len(chunk):
                if position + size > end:
                    break
                chunk = range_.file.read(size, position)
            try:
                part = convert_batches(
                    chunk, magic, from_offset=next_offset, max_bytes=max_bytes - len(data), upwards=False
                )
            except KafkaError:
                if data:
                    break
                raise
            if data and len(data) + len(part.data) > max_bytes:
                break
            data += part.data
            records += part.records
            next_offset = part.next_offset
            if not part.bytes_consumed:
                break
            position += part.bytes_consumed
    except OSError as error:
        raise StorageError(f"the log could not be read: {error}") from error
    if is_cut:
        del data[max_bytes:]
    return Sent(bytes(data), next_offset, records, perf_counter_ns() - started)


def _first_batch_bytes(chunk: bytes) -> int:
    """The size of the first batch of `chunk`, from its header."""
    return 12 + int.from_bytes(chunk[8:12], "big", signed=True)
