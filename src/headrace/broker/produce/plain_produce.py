"""The fast path of Produce: from a request's frame to the bytes of its response, without message objects.

It does the work of `handlers.produce` for a request that is plain (`protocol.plain_produce`) and carries uncompressed
batches for partitions that store batches unchanged. When a check fails, the fast path returns None before anything is
appended, and the request takes the general path, which finds the error and answers with it. The rules of refusals are
thus in one place, and a test sends the same requests on both paths. With acks=all and followers the response waits for
the high watermark (`commit_queue`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from headrace.broker.partitions.partition import ACKS_ALL, Partition
from headrace.broker.produce.checks import check_timestamps
from headrace.broker.produce.commit_queue import Refuse
from headrace.broker.produce.rejected_records import check_each_record
from headrace.broker.request.context import RequestContext, encode_response
from headrace.broker.services import Services
from headrace.errors import ErrorCode, KafkaError
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import read_response_header
from headrace.protocol.plain_produce import PlainProduce, write_plain_answer
from headrace.records.format2.header import HEADER_BYTES, MAGIC, BatchHeader, read_header
from headrace.records.format2.validation import check_produced
from headrace.replication.commit_wait import CommitWait
from headrace.topics import INTERNAL_TOPICS

Appended = tuple[int, int, int]
"""A batch's base offset, its log append time and the log start offset."""

Find = Callable[[Services, "str | bytes", int, int], "Partition | None"]
"""Finds the partition of a topic, by name or id, and a number, for a produce with these acks."""


class Uncommitted(NamedTuple):
    """A request whose batches are appended, some of which replicas do not have yet."""

    frame: bytes
    """The response, if they get them in time."""
    waits: list[tuple[int, Partition, CommitWait]]
    """The number of each of these batches in the request, and what it waits for."""
    refuse: Refuse


_NOT_APPENDED: Appended = (-1, -1, -1)
_FLEXIBLE_FROM, _SIZE_BYTES = 9, 4
_MAGIC_AT, _CODEC_AT, _CODEC_BITS = 16, 22, 0x07


def find_partition(broker: Services, topic: str | bytes, index: int, acks: int) -> Partition | None:
    """The partition, if this broker leads it and stores batches as they are sent; else None."""
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
    if acks == ACKS_ALL and not state.commits_at_once and broker.throttling.is_active:
        return None  # the quotas count a response when it is sent
    return partition if state.is_leader else None


def append_plainly(
    broker: Services,
    request: PlainProduce,
    find: Find = find_partition,
    told: Callable[[str], str] = str,
) -> bytes | Uncommitted | None:
    """Appends every batch and returns the frame of the response, or what it waits for. Returns None, with nothing
    appended, when the request is one for `handlers.produce`. `told`: the text of an error as the client may read it."""
    now_ms = broker.now_ms()
    acks = request.acks
    checked: list[tuple[Partition, memoryview, BatchHeader]] = []
    for each in request.batches:
        partition = find(broker, each.topic, each.index, acks)
        if partition is None:
            return None
        header = _header(each.records, partition, now_ms, broker.config.records_check)
        if header is None:
            return None
        checked.append((partition, each.records, header))
    return _append(broker, request, checked, [], {}, now_ms, told)


def append_rest(
    broker: Services,
    request: PlainProduce,
    partitions: Sequence[Partition],
    appended: list[Appended],
    refused: dict[int, KafkaError],
    now_ms: int,
    told: Callable[[str], str] = str,
) -> bytes | Uncommitted:
    """Appends the batches behind the first ones, which are `appended`, or `refused` by the number of each. All are
    checked. Returns what `append_plainly` does."""
    checked = [
        (partition, each.records, read_header(each.records))
        for partition, each in zip(partitions, request.batches, strict=True)
    ]
    answer = _append(broker, request, checked, appended, refused, now_ms, told)
    assert answer is not None
    return answer


def _append(
    broker: Services,
    request: PlainProduce,
    checked: Sequence[tuple[Partition, memoryview, BatchHeader]],
    appended: list[Appended],
    refused: dict[int, KafkaError],
    now_ms: int,
    told: Callable[[str], str],
) -> bytes | Uncommitted | None:
    """Appends what is checked and not yet `appended`. None if nothing is, and the first batch is refused."""
    acks = request.acks
    waits: list[tuple[int, Partition, CommitWait]] = []
    for number, ((partition, _, header), (base_offset, _, _)) in enumerate(zip(checked, appended, strict=False)):
        if base_offset >= 0:
            _note_wait(waits, number, partition, base_offset + header.last_offset_delta, acks)
    for partition, records, header in checked[len(appended) :]:
        try:
            result = partition.append(records, header, now_ms=now_ms, acks=acks)
        except KafkaError as error:
            if not appended:
                return None
            partition.traffic.failed_produces += 1
            broker.replicas.batch_refused(*partition.key, records, error, now_ms)
            refused[len(appended)] = error
            appended.append(_NOT_APPENDED)
        else:
            partition.touch_appended(broker.purgatory)
            _note_wait(waits, len(appended), partition, result.last_offset, acks)
            appended.append((result.base_offset, result.log_append_time_ms, result.log_start_offset))
    if not waits and not refused:
        return write_plain_answer(request, appended)
    targets = [  # not the batches themselves: their records are valid as long as the frame
        (each.topic, partition.key.topic, each.index)
        for each, (partition, _, _) in zip(request.batches, checked, strict=True)
    ]
    made = partial(_response, targets, request.counts, appended)
    frame = _encoded(request, made(refused, told)) if refused else write_plain_answer(request, appended)
    if not waits:
        return frame

    def refuse(ctx: RequestContext, codes: Sequence[ErrorCode]) -> None:
        from headrace.broker.produce.named_leaders import name_leaders  # a broker alone refuses no such request

        failed = {number: KafkaError(code=code) for number, code in enumerate(codes) if code}
        response = made({**refused, **failed}, told)
        name_leaders(ctx, response)
        ctx.reply(response)

    return Uncommitted(frame, waits, refuse)


def _note_wait(
    waits: list[tuple[int, Partition, CommitWait]], number: int, partition: Partition, last_offset: int, acks: int
) -> None:
    """Notes what an appended batch waits for, if it has to."""
    state = partition.state
    if acks == ACKS_ALL and last_offset >= state.high_watermark:
        waits.append((number, partition, CommitWait(last_offset + 1, 0, state.leading_since)))


def refused_answer(
    frame: bytes,
    version: int,
    names: Sequence[str],
    codes: Sequence[ErrorCode | KafkaError],
    told: Callable[[str], str] = str,
) -> m.ProduceResponse:
    """The response for which `frame` was encoded, if batches have these errors. `names`: of each batch's topic. The
    error of a batch that the disk refused has its text, which is told as `told` has it; as that of one that is answered
    at once (`refused_writes`)."""
    _, pos = read_response_header(frame, ApiKey.PRODUCE, version, _SIZE_BYTES)
    response, _ = m.ProduceResponse.decode(version, memoryview(frame), pos)
    left, names_left = iter(codes), iter(names)
    for topic in response.responses:
        for answer in topic.partition_responses:
            topic.name = next(names_left)
            code = next(left)
            if isinstance(code, KafkaError):
                answer.error_code, answer.base_offset, answer.log_start_offset = code.code, -1, -1
                answer.error_message = told(code.message) or None
            elif code:
                answer.error_code, answer.base_offset = code, -1
    return response


def with_throttle_time(frame: bytes, version: int, throttle_time_ms: int) -> bytes:
    """The frame of a response with another throttle time, which is its last field before the tags."""
    end = len(frame) - (1 if version >= _FLEXIBLE_FROM else 0)
    return frame[: end - 4] + throttle_time_ms.to_bytes(4, "big") + frame[end:]


def _header(records: memoryview, partition: Partition, now_ms: int, check_records: bool) -> BatchHeader | None:
    """The header of a batch that may be appended unchanged; None for any other."""
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
        if now_ms > config.before_max_ms:
            check_timestamps(header.base_timestamp, header.max_timestamp, config, now_ms)
            if check_records:  # the first record's timestamp alone does not tell
                check_each_record(records, header, config, now_ms, DECOMPRESSED_BATCH_BYTES_MAX)
    except KafkaError:
        return None
    is_plain = not header.attributes and header.max_timestamp - now_ms <= config.after_max_ms
    return header if is_plain else None


def _response(
    targets: Sequence[tuple[str | bytes, str, int]],
    counts: Sequence[int],
    appended: Sequence[Appended],
    refused: Mapping[int, KafkaError],
    told: Callable[[str], str],
) -> m.ProduceResponse:
    """The response when the log refused a batch after others were appended (an out-of-order sequence, a disk error),
    or replicas did not get one. `targets`: the topic as the client calls it, its name, and the number, of each."""
    answers = []
    for number, ((*_, index), (base_offset, append_time_ms, log_start_offset)) in enumerate(
        zip(targets, appended, strict=True)
    ):
        error = refused.get(number)
        answers.append(
            m.ProduceResponse.PartitionProduceResponse(
                index=index,
                error_code=error.code if error else ErrorCode.NONE,
                base_offset=-1 if error else base_offset,
                log_append_time_ms=append_time_ms,
                log_start_offset=log_start_offset,
                error_message=(told(error.message) or None) if error else None,
            )
        )
    responses, start = [], 0
    for count in counts:
        topic, name, _ = targets[start]
        response = m.ProduceResponse.TopicProduceResponse(partition_responses=answers[start : start + count])
        if isinstance(topic, bytes):
            response.topic_id, response.name = topic, name
        else:
            response.name = topic
        responses.append(response)
        start += count
    return m.ProduceResponse(responses=responses)


def _encoded(request: PlainProduce, response: m.ProduceResponse) -> bytes:
    (frame,) = encode_response(ApiKey.PRODUCE, request.api_version, request.correlation_id, response)
    assert isinstance(frame, bytes)
    return frame
