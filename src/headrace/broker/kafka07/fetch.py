"""Fetch and MultiFetch of Kafka 0.7: the offset in the request is a position, and nothing waits for records.

Each part gets what follows its position, up to its size and no more: a message that does not fit is cut, and the client
asks again with more. All parts together get at most CONVERTED_BYTES_PER_FETCH_MAX, and those that are not read within
READING_07_S_MAX get nothing: a few bytes may lie in a batch that takes long to decompress. An error has 0.7's code:

    1 OffsetOutOfRange    the position is before the log's start, after its end, or inside a message
    2 InvalidMessage      the log is damaged there
    3 WrongPartition      no such partition, another broker leads it, or the topic is not for clients of 0.7
    4 InvalidFetchSize    the size is negative
    -1 Unknown            everything else, such as a missing right
"""

from __future__ import annotations

from headrace.broker.fetch.fetch import code_of, partition_error
from headrace.broker.kafka07.partition_positions import PartitionPositions
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import READ_TOPIC, Demands
from headrace.errors import ErrorCode, KafkaError, StorageError
from headrace.limits import CONVERTED_BYTES_PER_FETCH_MAX, READING_07_S_MAX
from headrace.metadata.znodes import CorruptNode
from headrace.metastore.store import StoreError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.FETCH
VERSIONS = range(1)
DEMANDS: Demands = (READ_TOPIC,)


def handle(ctx: RequestContext, request: m.FetchRequest) -> Answer:
    """Answers at once where nobody has written since the last fetch; else reads on a thread."""
    found = []
    for topic, wanted in _parts(request):
        try:
            partition = _partition(ctx, topic, wanted)
        except KafkaError:
            break
        if not partition.is_at_end(wanted.fetch_offset):
            break
        found.append(m.FetchResponse.PartitionData(partition_index=wanted.partition, records=b""))
    else:
        return _answered(ctx, request, found)
    return ctx.in_order(_read_all(ctx, request), lambda _: fail(request, ErrorCode.UNKNOWN_SERVER_ERROR))


def fail(request: m.FetchRequest, code: ErrorCode) -> m.FetchResponse:
    """Returns the same error for every partition."""
    return _response(request, [partition_error(wanted.partition, code) for _, wanted in _parts(request)])


def _parts(request: m.FetchRequest) -> list[tuple[str, m.FetchRequest.FetchPartition]]:
    return [(topic.topic, each) for topic in request.topics for each in topic.partitions]


def _partition(ctx: RequestContext, topic: str, wanted: m.FetchRequest.FetchPartition) -> PartitionPositions:
    if not ctx.services.admission.permits(ctx, READ_TOPIC, topic):
        raise KafkaError(f"{topic} may not be read", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if wanted.partition_max_bytes < 0:
        raise KafkaError(f"{wanted.partition_max_bytes} bytes cannot be fetched", ErrorCode.INVALID_FETCH_SIZE)
    return ctx.services.kafka07().leader(topic, wanted.partition)


async def _read_all(ctx: RequestContext, request: m.FetchRequest) -> m.FetchResponse:
    found = []
    left: float = CONVERTED_BYTES_PER_FETCH_MAX
    now = ctx.services.loop.time
    until = now() + READING_07_S_MAX
    if ctx.services.throttling.is_active:
        left = min(left, ctx.services.throttling.fetch_bytes_max(ctx))
    for topic, wanted in _parts(request):
        try:
            positions = _partition(ctx, topic, wanted)
            is_late = now() > until or ctx.is_abandoned
            most = 0 if is_late else min(wanted.partition_max_bytes, int(left))
            data = await positions.read(wanted.fetch_offset, most)
        except (KafkaError, OSError) as error:
            ctx.services.replicas.traffic.known(topic).failed_fetches += 1
            found.append(partition_error(wanted.partition, code_of(error)))
        except (StoreError, CorruptNode) as error:
            code = code_of(StorageError(f"the positions of {topic}-{wanted.partition} are not known: {error}"))
            found.append(partition_error(wanted.partition, code))
        else:
            left -= len(data)
            found.append(m.FetchResponse.PartitionData(partition_index=wanted.partition, records=data))
    return _answered(ctx, request, found)


def _answered(
    ctx: RequestContext, request: m.FetchRequest, found: list[m.FetchResponse.PartitionData]
) -> m.FetchResponse:
    """The response; one without parts if the client is throttled, which is answered as one without messages."""
    throttling, replicas = ctx.services.throttling, ctx.services.replicas
    sizes = [len(each.records or b"") for each in found]
    if throttling.is_active and (throttle_ms := throttling.fetched(ctx, sum(sizes))):
        return m.FetchResponse(throttle_time_ms=throttle_ms)
    for (topic, _), size in zip(_parts(request), sizes, strict=True):
        if size:
            replicas.traffic.known(topic).bytes_out += size
    return _response(request, found)


def _response(request: m.FetchRequest, found: list[m.FetchResponse.PartitionData]) -> m.FetchResponse:
    return m.FetchResponse(
        responses=[
            m.FetchResponse.FetchableTopicResponse(topic=topic, partitions=[each])
            for (topic, _), each in zip(_parts(request), found, strict=True)
        ]
    )
