"""The short way of a plain produce: from its frame to the bytes of its answer, with nothing made in between.

What `handlers.produce` does with a request, this does with one that is plain (`protocol.plain_produce`), carries
batches that are not compressed, and goes to partitions that store what they are sent as it is sent and answer as soon
as it is written. Where a look at the batches does not promise that all will be well it returns None, nothing has been
appended, and the request goes the long way, which finds out what is wrong and says so. So each rule is in one place,
and a test sends the same requests both ways.
"""

from __future__ import annotations

from headrace.broker.context import encode_response
from headrace.broker.partition import ACKS_ALL, Partition
from headrace.broker.parts import Broker
from headrace.coordination.model import INTERNAL_TOPICS
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.plain_produce import PlainProduce, write_plain_answer
from headrace.records.header import HEADER_BYTES, MAGIC, BatchHeader
from headrace.records.validation import check_produced

Placed = tuple[int, int, int]
"""A batch's base offset, its log append time and its log's start."""

_NOWHERE: Placed = (-1, -1, -1)
_MAGIC_AT, _CODEC_AT, _CODEC_BITS = 16, 22, 0x07


def append_plainly(broker: Broker, request: PlainProduce) -> bytes | None:
    """Appends every batch; the frame of the answer. None, and nothing was appended, when that is for
    `handlers.produce`."""
    now_ms = broker.now_ms()
    acks = request.acks
    checked: list[tuple[Partition, memoryview, BatchHeader]] = []
    for each in request.batches:
        partition = _partition(broker, each.topic, each.index, acks)
        if partition is None:
            return None
        header = _header(each.records, partition, now_ms, broker.config.records_check)
        if header is None:
            return None
        checked.append((partition, each.records, header))
    placed: list[Placed] = []
    refused: dict[int, KafkaError] = {}
    for partition, records, header in checked:
        try:
            result = partition.append(records, header, now_ms=now_ms, acks=acks)
        except KafkaError as error:
            if not placed:
                return None
            partition.traffic.failed_produces += 1
            refused[len(placed)] = error
            placed.append(_NOWHERE)
        else:
            partition.touch_appended(broker.purgatory.touch)
            placed.append((result.base_offset, result.log_append_time_ms, result.log_start_offset))
    return _with_refusals(request, placed, refused) if refused else write_plain_answer(request, placed)


def _header(records: memoryview, partition: Partition, now_ms: int, check_records: bool) -> BatchHeader | None:
    """The header of a batch that may be appended as it is."""
    if len(records) <= HEADER_BYTES or records[_MAGIC_AT] != MAGIC or records[_CODEC_AT] & _CODEC_BITS:
        return None
    config = partition.log.config
    try:
        header = check_produced(
            records,
            max_message_bytes=config.max_message_bytes,
            compacted=config.is_compacted,
            check_records=check_records,
        )
    except KafkaError:
        return None
    is_plain = (
        not header.attributes
        and now_ms - config.before_max_ms <= header.base_timestamp
        and header.max_timestamp - now_ms <= config.after_max_ms
    )
    return header if is_plain else None


def _partition(broker: Broker, topic: str | bytes, index: int, acks: int) -> Partition | None:
    """The partition, if this broker leads it, and a batch written there needs nothing more to be answered."""
    if isinstance(topic, bytes):
        name = broker.metadata.snapshot.names_by_id.get(topic)
        if name is None:
            return None
        topic = name
    if topic in INTERNAL_TOPICS:
        return None
    partition = broker.replicas.find((topic, index))
    if partition is None or not partition.log.config.stores_what_is_sent:
        return None
    state = partition.state
    return partition if state.is_leader and (acks != ACKS_ALL or not state.followers) else None


def _with_refusals(request: PlainProduce, placed: list[Placed], refused: dict[int, KafkaError]) -> bytes:
    """The answer where the log refused a batch behind others: for its producer's sequence, or the disk's error."""
    answers = []
    for number, (each, (base_offset, append_time_ms, log_start_offset)) in enumerate(
        zip(request.batches, placed, strict=True)
    ):
        error = refused.get(number)
        answers.append(
            m.ProduceResponse.PartitionProduceResponse(
                index=each.index,
                error_code=error.code if error else ErrorCode.NONE,
                base_offset=base_offset,
                log_append_time_ms=append_time_ms,
                log_start_offset=log_start_offset,
                error_message=(error.message or None) if error else None,
            )
        )
    responses, start = [], 0
    for count in request.counts:
        topic = request.batches[start].topic
        response = m.ProduceResponse.TopicProduceResponse(partition_responses=answers[start : start + count])
        if isinstance(topic, bytes):
            response.topic_id = topic
        else:
            response.name = topic
        responses.append(response)
        start += count
    (frame,) = encode_response(
        ApiKey.PRODUCE, request.api_version, request.correlation_id, m.ProduceResponse(responses=responses)
    )
    assert isinstance(frame, bytes)
    return frame
