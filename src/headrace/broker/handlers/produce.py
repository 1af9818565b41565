"""Produce (key 0), versions 0-13.

0     message sets of formats 0 and 1, or one v2 batch; an empty record set is not an error
1     throttle time
2     log append time in the response
3     one v2 batch per partition; a transactional id
5     log start offset in the response
7     zstd
8     an error message for a refused batch, and the records that caused it
9     flexible
10    (tagged) the current leader of a partition that this broker does not lead, and the leader's address
11    TRANSACTION_ABORTABLE for a batch that its transaction's coordinator does not know of
12    adds its partitions to the transaction; clients of earlier versions do so with AddPartitionsToTxn
13    topics by id

A batch is checked in the receive buffer and its bytes are appended unchanged, except for base offset and leader epoch,
which are outside the CRC. No record becomes an object. With acks=all, the response is sent when the high watermark has
passed the batch, which on a single replica is at once. If the ISR is too small before the append, the partition gets
NOT_ENOUGH_REPLICAS; if it becomes too small while the request waits, NOT_ENOUGH_REPLICAS_AFTER_APPEND. If the topic
requires a flush (`flush.messages`, `headrace.flush.acks`), the response and the high watermark wait for the flush too;
batches that arrive meanwhile share the next flush. Records in another format than their topic's are converted
(`broker.produce.formats`). Versions 0 to 2 accept all three message formats, as in Apache Kafka 3.9. The first batch of
a transaction for a partition waits for the transaction's coordinator (`broker.produce.transaction_partitions`), and the
connection's later requests with it.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterable, Sequence
from copy import copy
from itertools import repeat
from time import monotonic_ns

from headrace.broker.fair_threads import FairThreads
from headrace.broker.partitions.durable_append import PendingAppend
from headrace.broker.partitions.partition import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from headrace.broker.partitions.replica_manager import Partition
from headrace.broker.produce.checks import CheckedBatch, checked_batch
from headrace.broker.produce.formats import (
    BATCHES_ALONE_FROM,
    ZSTD_FROM,
    Checked,
    CheckedMessages,
    RebuiltBatches,
    checked_records,
    is_costly,
    is_costly_to_compress,
    is_plain_batch,
    validate,
    validate_if_small,
)
from headrace.broker.produce.named_leaders import name_leaders
from headrace.broker.produce.rejected_records import RejectedRecords
from headrace.broker.produce.reliability import check_reliable
from headrace.broker.produce.transaction_partitions import ClientKind, Verified, error_of_produce
from headrace.broker.produce.transactional_batches import has_transactional_batches, transactional_batches
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import PLAIN_DEMAND, Demand, Demands, Entries, topic_by_id
from headrace.errors import ErrorCode, InvalidTopic, KafkaError, UnsupportedCompressionType
from headrace.limits import (
    DECOMPRESSING_AT_ONCE_MAX,
    INLINE_CHECKS_NS_MAX,
    INLINE_COMPRESS_BYTES_MAX,
    PARTITIONS_PER_PRODUCE_MAX,
    RECORD_ERRORS_PER_PRODUCE_MAX,
)
from headrace.log.appending import AppendResult
from headrace.log.producers.verification import Verification
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.records.codecs.compression import Codec
from headrace.records.format2.header import MAGIC
from headrace.security.access import Operation, ResourceType
from headrace.topics import INTERNAL_TOPICS
from headrace.types import TopicPartition

API_KEY = ApiKey.PRODUCE
VERSIONS = range(14)


def _transaction(_ctx: RequestContext, request: m.ProduceRequest) -> Iterable[str]:
    """The transactional id, if there are batches of a transaction."""
    transactional_id = request.transactional_id
    return () if transactional_id is None or not has_transactional_batches(request) else (transactional_id,)


DEMANDS: Demands = (
    Demand(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, _transaction),
    PLAIN_DEMAND._replace(entries=Entries("topic_data", "responses", topic_by_id)),
)

RECORD_ERRORS_FROM, TOPIC_IDS_FROM = 8, 13

_Check = Checked | KafkaError | None
"""The result of a check before the append; None for records that are checked when they are appended."""

_decompressing = FairThreads(DECOMPRESSING_AT_ONCE_MAX, "decompress")


def handle(ctx: RequestContext, request: m.ProduceRequest) -> Answer:
    """Appends every batch; returns an offset or an error for each."""
    if request.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        return fail(request, ErrorCode.INVALID_REQUIRED_ACKS)
    names = _topic_names(ctx, request)
    partitions, is_plain = 0, True
    for topic in request.topic_data:
        partitions += len(topic.partition_data)
        for each in topic.partition_data:
            if not is_plain_batch(each.records):
                is_plain = False
                break
    if partitions > PARTITIONS_PER_PRODUCE_MAX:
        return fail(request, ErrorCode.INVALID_REQUEST)
    if is_plain and not _compresses_much(ctx, request, names):
        return _append_all(ctx, request, names, repeat(None), None)
    verifying: Future[Verified] | None = None
    batches = transactional_batches(request, names)
    if batches is not None:
        verifying = ctx.services.transaction_partitions.begin(*batches, ClientKind.of_produce(ctx.api_version))
        if not verifying.done():
            return _handle_later(ctx, detached(request), names, verifying)
    checks: list[_Check] = []
    until_ns = 0
    for name, topic in zip(names, request.topic_data, strict=True):
        for each in topic.partition_data:
            if not _takes_long(ctx, name, each):
                checks.append(None)
                continue
            now_ns = monotonic_ns()
            until_ns = until_ns or now_ns + INLINE_CHECKS_NS_MAX
            check = None if now_ns > until_ns else _check_if_small(ctx, name, each)
            if check is None:
                return _handle_later(ctx, detached(request), names, verifying)
            checks.append(check)
    verified = None if verifying is None else verifying.result()
    return _append_all(ctx, request, names, checks if until_ns else repeat(None), verified)


def _topic_names(ctx: RequestContext, request: m.ProduceRequest) -> list[str]:
    """Returns the name of each topic of the request; an empty name for an unknown topic id."""
    if ctx.api_version < TOPIC_IDS_FROM:
        return [topic.name for topic in request.topic_data]
    names_by_id = ctx.services.metadata.snapshot.names_by_id
    return [names_by_id.get(topic.topic_id, "") for topic in request.topic_data]


def has_answer(request: m.ProduceRequest) -> bool:
    """Whether the client waits for an answer. With acks=0 only a closed connection tells it of an error."""
    return request.acks != ACKS_NONE


def fail(request: m.ProduceRequest, code: ErrorCode) -> m.ProduceResponse:
    """Returns the same error for every partition."""
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


def refused(ctx: RequestContext, request: m.ProduceRequest, error: KafkaError) -> m.ProduceResponse | None:
    """Refuses every batch with the same error and its message, as one that is found here: later sequences of its
    producers are refused until it is sent again."""
    replicas, now_ms = ctx.services.replicas, ctx.services.now_ms()
    for name, topic in zip(_topic_names(ctx, request), request.topic_data, strict=True):
        for each in topic.partition_data:
            replicas.batch_refused(name or topic.topic_id, each.index, each.records, error, now_ms)
    if request.acks == ACKS_NONE:
        ctx.connection.close("a produce with acks=0 was refused")
        return None
    response = fail(request, error.code)
    for topic_response in response.responses:
        for answer in topic_response.partition_responses:
            answer.error_message = error.message or None
    return response


def _refusal(index: int, error: KafkaError) -> m.ProduceResponse.PartitionProduceResponse:
    return m.ProduceResponse.PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=-1, error_message=error.message or None
    )


def _rejection(
    partition: TopicPartition, error: RejectedRecords, named_max: int
) -> m.ProduceResponse.PartitionProduceResponse:
    """Returns the error for a batch with invalid records, and lists the first `named_max` of these records."""
    answer = _refusal(partition.partition, error)
    answer.error_message = error.summary(partition)
    answer.record_errors = [
        m.ProduceResponse.BatchIndexAndErrorMessage(
            batch_index=record.batch_index, batch_index_error_message=error.reason(record, partition)
        )
        for record in error.records[:named_max]
    ]
    return answer


def _append_all(
    ctx: RequestContext,
    request: m.ProduceRequest,
    names: Sequence[str],
    checks: Iterable[_Check],
    verified: Verified | None,
) -> Answer:
    """Appends, then answers at once or when the appends are durable. `checks` has one entry per partition."""
    responses = []
    waiting = []
    has_failed = False
    named_left = RECORD_ERRORS_PER_PRODUCE_MAX
    now_ms = ctx.services.now_ms()
    remaining_checks = iter(checks)
    for name, topic in zip(names, request.topic_data, strict=True):
        answers = []
        for each, check in zip(topic.partition_data, remaining_checks, strict=False):
            try:
                answer, pending = _append(ctx, request.acks, name, each, check, verified, now_ms)
                if pending is not None:
                    waiting.append((answer, pending))
            except KafkaError as error:
                has_failed = True
                replicas = ctx.services.replicas
                replicas.traffic.known(name).failed_produces += 1
                replicas.batch_refused(name or topic.topic_id, each.index, each.records, error, now_ms)
                if isinstance(error, RejectedRecords) and ctx.api_version >= RECORD_ERRORS_FROM:
                    answer = _rejection(TopicPartition(name, each.index), error, named_left)
                    named_left -= len(answer.record_errors)
                else:
                    answer = _refusal(each.index, error)
            answers.append(answer)
        responses.append(
            m.ProduceResponse.TopicProduceResponse(name=name, topic_id=topic.topic_id, partition_responses=answers)
        )
    response = m.ProduceResponse(responses=responses)
    if request.acks == ACKS_NONE:
        if has_failed:  # the only signal that such a producer gets; it then refreshes its metadata
            ctx.connection.close("a produce with acks=0 failed")
        return None
    if has_failed:
        name_leaders(ctx, response)
    return _wait(ctx, request, response, waiting) if waiting else response


def _append(
    ctx: RequestContext,
    acks: int,
    topic: str,
    each: m.ProduceRequest.PartitionProduceData,
    batch: _Check,
    verified: Verified | None,
    now_ms: int,
) -> tuple[m.ProduceResponse.PartitionProduceResponse, PendingAppend | None]:
    broker = ctx.services
    if not topic and ctx.api_version >= TOPIC_IDS_FROM:
        raise KafkaError("no topic has this topic id", ErrorCode.UNKNOWN_TOPIC_ID)
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"{topic} is an internal topic: only brokers may write to it")
    verification = None
    if verified is not None:
        verification = _verification(verified, TopicPartition(topic, each.index), ctx.api_version)
    partition = broker.replicas.leader(topic, each.index)
    log, version = partition.log, ctx.api_version
    is_reliable = log.config.reliable
    if is_reliable:
        acks = ACKS_ALL  # also for a client that does not wait for it
    if batch is None:
        if version >= BATCHES_ALONE_FROM and log.config.magic == MAGIC:
            batch = checked_batch(each.records, log.config, now_ms, broker.config.records_check)
        else:
            batch = checked_records(each.records, log.config, version, now_ms, broker.config.records_check)
    elif isinstance(batch, KafkaError):
        raise batch
    if is_reliable:
        check_reliable(partition, batch)
    traffic = partition.traffic
    stored = traffic.bytes_in
    if isinstance(batch, CheckedBatch):
        if version < ZSTD_FROM and batch.header.codec is Codec.ZSTD:
            raise UnsupportedCompressionType(
                f"zstd requires Produce version {ZSTD_FROM} or later, but the request has version {version}"
            )
        appended = partition.append(batch.records, batch.header, now_ms=now_ms, acks=acks, verification=verification)
    else:
        converted = _append_converted(ctx, partition, batch, now_ms, acks)
        if converted is None:
            return m.ProduceResponse.PartitionProduceResponse(index=each.index, base_offset=-1), None
        appended = converted
    if ctx.is_of_instance and each.records is not None:
        ctx.stored_more(traffic.bytes_in - stored - len(each.records))
    pending = broker.appends.pending(partition, appended, acks=acks, now_ms=now_ms)
    answer = m.ProduceResponse.PartitionProduceResponse(
        index=each.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )
    return answer, pending


def _verification(verified: Verified, key: TopicPartition, version: int) -> Verification | None:
    """Returns the verification of a partition's batch, None for a batch without one. Raises its error."""
    error = verified.errors.get(key)
    if error is not None:
        raise error_of_produce(error, ClientKind.of_produce(version))
    return verified.verifications.get(key)


def _append_converted(
    ctx: RequestContext, partition: Partition, checked: RebuiltBatches | CheckedMessages, now_ms: int, acks: int
) -> AppendResult | None:
    """Appends converted records; returns None if there are none."""
    records, elapsed_ns = checked.conversion
    if records:
        partition.traffic.produce_conversions += records
        ctx.services.replicas.conversion_times["Produce"].add(elapsed_ns)
    if isinstance(checked, CheckedMessages):
        return partition.append_set(checked, now_ms=now_ms, acks=acks)
    appended = [partition.append(*batch, now_ms=now_ms, acks=acks) for batch in checked.batches]
    return appended[-1]._replace(base_offset=appended[0].base_offset) if appended else None


def _wait(
    ctx: RequestContext,
    request: m.ProduceRequest,
    response: m.ProduceResponse,
    waiting: list[tuple[m.ProduceResponse.PartitionProduceResponse, PendingAppend]],
) -> Answer:
    """Answers when every append is durable or has failed."""

    def done(codes: Sequence[ErrorCode]) -> None:
        for (answer, _), code in zip(waiting, codes, strict=True):
            if code is not ErrorCode.NONE:
                answer.error_code, answer.base_offset = code, -1
        name_leaders(ctx, response)
        ctx.reply(response)

    appends = [append for _, append in waiting]
    keys = [each.partition.key for each in appends]
    return ctx.wait_for(ctx.services.appends.until_durable(appends, done), keys, request.timeout_ms)


def _compresses_much(ctx: RequestContext, request: m.ProduceRequest, names: Sequence[str]) -> bool:
    """Whether a topic's own codec has so much to compress that it takes too long for the event loop."""
    return any(
        each.records is not None
        and len(each.records) > INLINE_COMPRESS_BYTES_MAX
        and _is_costly_to_compress(ctx, name, each)
        for name, topic in zip(names, request.topic_data, strict=True)
        for each in topic.partition_data
    )


def _takes_long(ctx: RequestContext, topic: str, each: m.ProduceRequest.PartitionProduceData) -> bool:
    return is_costly(each.records) or _is_costly_to_compress(ctx, topic, each)


def _is_costly_to_compress(ctx: RequestContext, topic: str, each: m.ProduceRequest.PartitionProduceData) -> bool:
    partition = ctx.services.replicas.find((topic, each.index))
    return partition is not None and is_costly_to_compress(each.records, partition.log.config)


def _check_if_small(ctx: RequestContext, topic: str, each: m.ProduceRequest.PartitionProduceData) -> _Check:
    """Checks a compressed batch; returns None if the check takes too long for the event loop."""
    broker = ctx.services
    try:
        config = broker.replicas.leader(topic, each.index).log.config
        if is_costly_to_compress(each.records, config):
            return None
        version, check = ctx.api_version, broker.config.records_check
        return validate_if_small(each.records or b"", config, version, broker.now_ms(), check)
    except KafkaError as error:
        return error


def detached(request: m.ProduceRequest) -> m.ProduceRequest:
    """Returns the request with a copy of its records: the frame is reused when the handler returns."""
    detached = copy(request)
    detached.topic_data = [
        m.ProduceRequest.TopicProduceData(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_data=[
                m.ProduceRequest.PartitionProduceData(
                    index=each.index,
                    records=None if each.records is None else memoryview(bytearray(each.records)),
                )
                for each in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
    return detached


def _handle_later(
    ctx: RequestContext, request: m.ProduceRequest, names: Sequence[str], verifying: Future[Verified] | None
) -> Answer:
    """Checks the compressed batches on threads, and waits for the transaction's coordinator. The connection's later
    requests wait, which keeps the order."""

    def failed(error: Exception) -> m.ProduceResponse:
        return fail(request, error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR)

    return ctx.in_order(_check_then_append(ctx, request, names, verifying), failed)


async def _check_then_append(
    ctx: RequestContext, request: m.ProduceRequest, names: Sequence[str], verifying: Future[Verified] | None
) -> Answer:
    checks: list[_Check] = []
    for name, topic in zip(names, request.topic_data, strict=True):
        for each in topic.partition_data:
            check: _Check = None
            if _takes_long(ctx, name, each):
                try:
                    check = await _on_a_thread(ctx, ctx.services.replicas.leader(name, each.index), each)
                except KafkaError as error:
                    check = error
            checks.append(check)
    return _append_all(ctx, request, names, checks, None if verifying is None else await verifying)


async def _on_a_thread(
    ctx: RequestContext, partition: Partition, each: m.ProduceRequest.PartitionProduceData
) -> Checked | KafkaError:
    """Checks or converts records on a thread.

    Messages that are compressed again with their offsets get the next offsets of the log, which are right unless
    another producer appends first.
    """
    broker, config = ctx.services, partition.log.config
    run, now_ms, check = broker.loop.run_in_executor, broker.now_ms(), broker.config.records_check
    threads = _decompressing.of(ctx.prefix)
    found = await run(threads, validate, each.records, config, ctx.api_version, now_ms, check)
    if isinstance(found, CheckedMessages) and found.is_costly_to_place(config):
        base_offset = partition.log.log_end_offset
        placed = await run(threads, found.at, base_offset, config, now_ms)
        return found._replace(placed_at=base_offset, placed=placed)
    return found
