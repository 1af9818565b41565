"""Handlers build their responses without a change of the request: whoever reads it after them sees what was sent."""

import copy
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from headrace.broker.handlers import all_modules
from headrace.broker.request.context import Answer, RequestContext
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from tests.broker.test_admission import Gated
from tests.broker.test_every_version import TOPIC, ask, requests
from tests.wire import Wire

UNKNOWN_ID = b"nobody has this."
LARGE_BYTES = 4 << 20
"""Decompressed, too much to check a batch on the event loop."""


class Watched:
    """Handler modules that compare each request before and after their handler."""

    def __init__(self) -> None:
        self.modules = [self._watched(module) for module in all_modules()]
        self.changed: list[str] = []
        self._seen: list[tuple[str, Message, int, bytes]] = []

    def _watched(self, module: ModuleType) -> ModuleType:
        watched = ModuleType(module.__name__)
        watched.__dict__.update(module.__dict__)
        watched.__dict__["handle"] = partial(self._handle, module)
        return watched

    def _handle(self, module: ModuleType, ctx: RequestContext, request: Message | None) -> Answer:
        if request is None:  # ApiVersions in an unknown version
            return module.handle(ctx, request)  # type: ignore[no-any-return]
        before = request.encode(ctx.api_version)
        answer: Answer = module.handle(ctx, request)
        seen = (f"{ctx.api_key.name} {ctx.api_version}", request, ctx.api_version, before)
        self._compare(*seen)
        if ctx.api_key is not ApiKey.PRODUCE:  # its records are in a buffer that later frames reuse
            self._seen.append(seen)
        return answer

    def _compare(self, name: str, request: Message, version: int, before: bytes) -> None:
        if request.encode(version) != before:
            self.changed.append(name)

    def compare_all(self) -> None:
        """Compares the requests once more, after their responses."""
        for seen in self._seen:
            self._compare(*seen)


def repeated(ids: dict[str, bytes]) -> Iterator[tuple[ApiKey, int, Message]]:
    """Requests with repeated and unknown elements, and one whose batch is checked on a thread."""
    for version in (9, 12):
        topics = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in (TOPIC, TOPIC, "missing")]
        yield ApiKey.METADATA, version, m.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    for version in (8, 10):
        fetched = [
            m.OffsetFetchRequest.OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=[0, 0])
            for name, topic_id in ((TOPIC, ids[TOPIC]), ("missing", UNKNOWN_ID))
        ]
        group = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=fetched)
        yield ApiKey.OFFSET_FETCH, version, m.OffsetFetchRequest(groups=[group, copy.copy(group)])
        commit = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        for size in (1, 3_000):
            unknown = [
                m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=number) for number in range(1, size)
            ]
            committed = [
                m.OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=name, topic_id=topic_id, partitions=[commit, *unknown]
                )
                for name, topic_id in ((TOPIC, ids[TOPIC]), ("missing", UNKNOWN_ID))
            ]
            yield ApiKey.OFFSET_COMMIT, version, m.OffsetCommitRequest(group_id="g", topics=committed)
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    for version in (3, 12, 13):
        read = [
            m.FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=[part, copy.copy(part)])
            for name, topic_id in ((TOPIC, ids[TOPIC]), ("missing", UNKNOWN_ID))
        ]
        yield ApiKey.FETCH, version, m.FetchRequest(replica_id=-1, max_bytes=1 << 20, topics=read, session_epoch=-1)
    large = bytes(encode_batch([Record(0, 1, None, bytes(LARGE_BYTES), ())], codec=Codec.GZIP))
    for records in (large, large[:-1] + b"!"):
        each = m.ProduceRequest.PartitionProduceData(index=0, records=records)
        data = [
            m.ProduceRequest.TopicProduceData(name=name, topic_id=topic_id, partition_data=[each])
            for name, topic_id in ((TOPIC, ids[TOPIC]), ("missing", UNKNOWN_ID))
        ]
        for version in (12, 13):
            yield ApiKey.PRODUCE, version, m.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=data)


@pytest.mark.slow
def test_no_handler_changes_its_request(tmp_path: Path) -> None:
    watched = Watched()
    with Gated(tmp_path / "data", watched.modules) as gated, Wire(gated.bootstrap) as wire:
        while ask(wire, ApiKey.FIND_COORDINATOR, 0, m.FindCoordinatorRequest(key="g")).error_code:  # type: ignore[attr-defined]
            pass
        described = ask(wire, ApiKey.METADATA, 12, next(requests(ApiKey.METADATA, 12, {})))
        ids = {each.name: each.topic_id for each in described.topics}  # type: ignore[attr-defined]
        answered = 0
        for module in all_modules():
            for version in module.VERSIONS:
                for request in requests(module.API_KEY, version, ids):
                    ask(wire, module.API_KEY, version, request)
                    answered += 1
        for key, version, request in repeated(ids):
            answer = ask(wire, key, version, request)
            answered += 1
            assert getattr(answer, "error_code", ErrorCode.NONE) == ErrorCode.NONE, (key, version)
        watched.compare_all()
    assert answered > 150
    assert not watched.changed
