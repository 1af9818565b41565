"""Produce (key 0), versions 0-13.

0     message sets of formats 0 and 1, or one v2 batch; no batch at all is no error
1     throttle time
2     the log append time in the answer
3     one v2 batch per partition; a transactional id
5     log start offset in the answer
7     zstd
8     a message for a batch that was refused
9     flexible
10    (tagged) who leads a partition, when this broker does not, and where that broker is
11,12 what a transaction may do; nothing new without one
13    topics by id
Left out: transactions.

A batch is checked where the socket put it and its bytes are appended as they are: base offset and leader epoch are
set in place, outside the CRC. No record becomes an object. acks=all is answered when the high watermark has passed
the batch, which on a single replica is at once; NOT_ENOUGH_REPLICAS before the append when the ISR is too small then,
NOT_ENOUGH_REPLICAS_AFTER_APPEND when it has become so while the request waited. Where the topic asks for it
(`flush.messages`, `headrace.flush.acks`), the answer waits for the disk too, and so does the high watermark; the
batches that come meanwhile share the next flush. What is not in its topic's format is converted, in
`produce_formats`; every version takes Kafka's three formats as they came about, as Apache Kafka 3.9 does.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from headrace.broker.context import Answer, RequestContext
from headrace.broker.current_leader import current_leader, nodes
from headrace.broker.produce_checks import CheckedBatch, checked_batch
from headrace.broker.produce_formats import (
    BATCHES_ALONE_FROM,
    ZSTD_FROM,
    Checked,
    CheckedMessages,
    RebuiltBatches,
    checked_records,
    is_costly,
    verdict,
    verdict_if_small,
)
from headrace.broker.replica_manager import Partition
from headrace.coordination.model import INTERNAL_TOPICS
from headrace.errors import ErrorCode, InvalidTopic, KafkaError, UnsupportedCompressionType
from headrace.limits import DECOMPRESSING_AT_ONCE_MAX
from headrace.log.partition_log import AppendResult
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.records.compression import Codec
from headrace.records.header import MAGIC
from headrace.types import TopicPartition

API_KEY = ApiKey.PRODUCE
VERSIONS = range(14)

LEADERS_FROM, TOPIC_IDS_FROM = 10, 13
ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1

_Checked = dict[int, Checked | KafkaError]  # by the identity of the partition's part of the request

_decompressing = ThreadPoolExecutor(DECOMPRESSING_AT_ONCE_MAX, "decompress")


def handle(ctx: RequestContext, request: m.ProduceRequest) -> Answer:
    """Appends every batch, or says for each why not."""
    if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        return fail(request, ErrorCode.INVALID_REQUIRED_ACKS)
    if ctx.api_version >= TOPIC_IDS_FROM:
        names = ctx.broker.metadata.snapshot.names_by_id
        for topic in request.topic_data:
            topic.name = names.get(topic.topic_id, "")
    checked: _Checked = {}
    for topic in request.topic_data:
        for each in topic.partition_data:
            if is_costly(each.records) and not _check_if_small(ctx, topic.name, each, checked):
                return _handle_on_threads(ctx, request)
    return _append_all(ctx, request, checked)


def fail(request: m.ProduceRequest, code: ErrorCode) -> m.ProduceResponse:
    """The same refusal for every partition."""
    return m.ProduceResponse(
        responses=[
            m.ProduceResponse.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_refusal(p.index, KafkaError(code=code)) for p in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


def _refusal(index: int, error: KafkaError) -> m.ProduceResponse.PartitionProduceResponse:
    return m.ProduceResponse.PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=-1, error_message=error.message or None
    )


def _append_all(ctx: RequestContext, request: m.ProduceRequest, checked: _Checked) -> Answer:
    """Appends, then answers: at once, or when the replicas have it."""
    responses = []
    waiting = []
    has_failed = False
    now_ms = ctx.broker.now_ms()
    for topic in request.topic_data:
        answers = []
        for each in topic.partition_data:
            try:
                answer, waits = _append(ctx, request.acks, topic.name, each, checked, now_ms)
                if waits is not None:
                    waiting.append(waits)
            except KafkaError as error:
                has_failed = True
                ctx.broker.replicas.traffic.known(topic.name).failed_produces += 1
                answer = _refusal(each.index, error)
            answers.append(answer)
        responses.append(
            m.ProduceResponse.TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
    response = m.ProduceResponse(responses=responses)
    if request.acks == ACKS_NONE:
        if has_failed:  # the only way to tell such a producer; it then asks for metadata again
            ctx.connection.close("a produce with acks=0 failed")
        return None
    if has_failed and ctx.api_version >= LEADERS_FROM:
        _name_leaders(ctx, response)
    if not waiting:
        return response
    keys = [each.partition.key for each in waiting]
    return ctx.wait_for(_WaitingProduce(ctx, response, waiting), keys, request.timeout_ms)


def _name_leaders(ctx: RequestContext, response: m.ProduceResponse) -> None:
    """Says of what this broker does not lead who does, and where that one is."""
    leaders = []
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader = current_leader(ctx, TopicPartition(topic.name, answer.index))
                answer.current_leader = m.ProduceResponse.LeaderIdAndEpoch(
                    leader_id=leader.id, leader_epoch=leader.epoch
                )
                leaders.append(leader.id)
    response.node_endpoints = [
        m.ProduceResponse.NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in nodes(ctx, leaders)
    ]


class _Waiting(NamedTuple):
    """One batch that is not yet as safe as it has to be: up to where (exclusive) it must be committed, and flushed.

    A new leader epoch of the same leader changes nothing for it; a truncation in between may have taken it away.
    """

    partition: Partition
    commit_to: int
    flush_to: int
    truncations: int
    answer: m.ProduceResponse.PartitionProduceResponse

    def is_unsafe(self, now_ms: int) -> bool:
        """Whether it goes on waiting; a flush that it waits for is under way then."""
        log = self.partition.log
        return self.partition.high_watermark < self.commit_to or (
            log.recovery_point < self.flush_to and log.flush_by_count(now_ms) > 0
        )


def _append(
    ctx: RequestContext,
    acks: int,
    topic: str,
    each: m.ProduceRequest.PartitionProduceData,
    checked: _Checked,
    now_ms: int,
) -> tuple[m.ProduceResponse.PartitionProduceResponse, _Waiting | None]:
    broker = ctx.broker
    if not topic and ctx.api_version >= TOPIC_IDS_FROM:
        raise KafkaError("there is no topic of this id", ErrorCode.UNKNOWN_TOPIC_ID)
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"{topic} is written by the broker alone")
    partition = broker.replicas.leader(topic, each.index)
    log, version = partition.log, ctx.api_version
    batch = checked.get(id(each)) if checked else None
    if batch is None:
        if version >= BATCHES_ALONE_FROM and log.config.magic == MAGIC:
            batch = checked_batch(each.records, log.config, now_ms, broker.config.records_check)
        else:
            batch = checked_records(each.records, log.config, version, now_ms, broker.config.records_check)
    elif isinstance(batch, KafkaError):
        raise batch
    if isinstance(batch, CheckedBatch):
        if version < ZSTD_FROM and batch.header.codec is Codec.ZSTD:
            raise UnsupportedCompressionType(f"zstd came with Produce version {ZSTD_FROM}, this is {version}")
        appended = partition.append(batch.records, batch.header, now_ms=now_ms, acks=acks)
    else:
        converted = _append_converted(ctx, partition, batch, now_ms, acks)
        if converted is None:
            return m.ProduceResponse.PartitionProduceResponse(index=each.index, base_offset=-1), None
        appended = converted
    partition.touch_appended(broker.purgatory.touch)
    answer = m.ProduceResponse.PartitionProduceResponse(
        index=each.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )
    commit_to = appended.last_offset + 1 if acks == ACKS_ALL else 0
    flush_to = partition.log.flush_by_count(now_ms)
    if commit_to <= partition.high_watermark and not flush_to:
        return answer, None
    return answer, _Waiting(partition, commit_to, flush_to, log.truncations, answer)


def _append_converted(
    ctx: RequestContext, partition: Partition, checked: RebuiltBatches | CheckedMessages, now_ms: int, acks: int
) -> AppendResult | None:
    """Appends what `produce_formats` made; None when it is nothing."""
    records, elapsed_ns = checked.conversion
    if records:
        partition.traffic.produce_conversions += records
        ctx.broker.replicas.conversion_times["Produce"].add(elapsed_ns)
    if isinstance(checked, CheckedMessages):
        return partition.append_set(checked, now_ms=now_ms, acks=acks)
    appended = [partition.append(*batch, now_ms=now_ms, acks=acks) for batch in checked.batches]
    return appended[-1]._replace(base_offset=appended[0].base_offset) if appended else None


class _WaitingProduce:
    """Until every batch is below its partition's high watermark, and on the disk where that is asked for."""

    def __init__(self, ctx: RequestContext, response: m.ProduceResponse, waiting: list[_Waiting]) -> None:
        self._ctx, self._response, self._waiting = ctx, response, waiting

    def try_complete(self) -> bool:
        """Answers once nothing waits, or once a new leader has to decide."""
        still = []
        now_ms, offline = self._ctx.broker.now_ms(), self._ctx.broker.replicas.offline
        for each in self._waiting:
            partition = each.partition
            is_leader = partition.is_leader and partition.log.truncations == each.truncations
            if partition.key in offline or (is_leader and partition.log.failure is not None):
                each.answer.error_code, each.answer.base_offset = ErrorCode.KAFKA_STORAGE_ERROR, -1
            elif not is_leader:
                each.answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif each.is_unsafe(now_ms):
                still.append(each)
            elif each.commit_to and not partition.state.has_min_isr:
                each.answer.error_code, each.answer.base_offset = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1
        self._waiting = still
        if not still:
            if self._ctx.api_version >= LEADERS_FROM:
                _name_leaders(self._ctx, self._response)
            self._ctx.reply(self._response)
        return not still

    def expire(self) -> None:
        """The replicas were too slow: what is not replicated is answered so."""
        for each in self._waiting:
            each.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
            each.answer.base_offset = -1
        self._ctx.reply(self._response)


def _check_if_small(
    ctx: RequestContext, topic: str, each: m.ProduceRequest.PartitionProduceData, checked: _Checked
) -> bool:
    """Checks a compressed batch; False when that is not for the event loop."""
    broker = ctx.broker
    try:
        config = broker.replicas.leader(topic, each.index).log.config
        version, check = ctx.api_version, broker.config.records_check
        batch = verdict_if_small(each.records or b"", config, version, broker.now_ms(), check)
        if batch is None:
            return False
        checked[id(each)] = batch
    except KafkaError as error:
        checked[id(each)] = error
    return True


def _handle_on_threads(ctx: RequestContext, request: m.ProduceRequest) -> Answer:
    """Checks the compressed batches off the loop; the connection's later requests wait, so order holds."""
    for topic in request.topic_data:
        for each in topic.partition_data:
            if each.records is not None:
                each.records = memoryview(bytearray(each.records))  # the frame is gone when the handler returns

    def failed(error: Exception) -> m.ProduceResponse:
        return fail(request, error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR)

    return ctx.in_order(_check_then_append(ctx, request), failed)


async def _check_then_append(ctx: RequestContext, request: m.ProduceRequest) -> Answer:
    checked: _Checked = {}
    for topic in request.topic_data:
        for each in topic.partition_data:
            if not is_costly(each.records):
                continue
            try:
                checked[id(each)] = await _on_a_thread(ctx, ctx.broker.replicas.leader(topic.name, each.index), each)
            except KafkaError as error:
                checked[id(each)] = error
    return _append_all(ctx, request, checked)


async def _on_a_thread(
    ctx: RequestContext, partition: Partition, each: m.ProduceRequest.PartitionProduceData
) -> Checked | KafkaError:
    """The verdict; messages that have to be compressed anew with their offsets get the next ones, which will be right
    unless another producer is faster."""
    broker, config = ctx.broker, partition.log.config
    run, now_ms, check = broker.loop.run_in_executor, broker.now_ms(), broker.config.records_check
    found = await run(_decompressing, verdict, each.records, config, ctx.api_version, now_ms, check)
    if isinstance(found, CheckedMessages) and found.is_costly_to_place(config):
        base_offset = partition.log.log_end_offset
        placed = await run(_decompressing, found.at, base_offset, config, now_ms)
        return found._replace(placed_at=base_offset, placed=placed)
    return found
