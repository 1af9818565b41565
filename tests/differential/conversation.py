"""One broker's side of a scenario: it asks, and records what was answered.

topic = ask.topic(partitions=2)                            a topic of this scenario, version and run; not recorded
answer = ask(m.InitProducerIdRequest(...))                 recorded; the scenario's API at the version under test
ask(m.EndTxnRequest(producer_id=answer.producer_id), 4)    another API at a version of its own
ask.until(lambda answer: ..., m.FetchRequest(...))         asks again until the answer is accepted; the last is recorded
ask.quietly(m.MetadataRequest(...))                        not recorded
"""

import socket
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple, Self

from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message, Struct
from headrace.protocol.headers import read_response_header, write_request_header
from headrace.records.format2.batch import Record, encode_batch, read_header
from tests.broker.quota_requests import alter, describe
from tests.differential.answers import Plain, Tokens, plain
from tests.eventually import WITHIN_SECONDS
from tests.harness import receive_frame

CLIENT_ID = "differential"
TIMESTAMP_MS = 1_700_000_000_000


class Step(NamedTuple):
    """One answer of one broker. Steps of two brokers correspond by their number."""

    line: int
    """The line of the scenario that asked."""

    request: str
    """What was asked, to be read."""

    api: str
    version: int
    answer: Plain


@dataclass
class Conversation:
    """Asks one broker what a scenario asks, on a connection of its own."""

    bootstrap: str
    file: str
    api: ApiKey | None
    version: int
    run: str
    versions: Mapping[int, range]
    steps: list[Step] = field(default_factory=list)
    tokens: Tokens = field(default_factory=Tokens)
    _socket: socket.socket | None = None
    _correlation_id: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; the next request opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def name(self, text: str = "t") -> str:
        """A name that only this run of the scenario uses, and that is the same for both brokers."""
        return f"{text}-{self.run}"

    def __call__(self, request: Message, version: int | None = None) -> Any:
        """Ask, and record the answer; None if the broker closes the connection instead."""
        number = self._version(request, version)
        answer = self._exchange(request, number)
        self.record(request, number, answer)
        return answer

    def record(self, request: Message, version: int, answer: Message | None) -> None:
        """Note an answer for the comparison."""
        found = "connection closed" if answer is None else plain(answer, version, self.tokens)
        self.steps.append(Step(self._line(), shown(request, self.tokens), _title(request), version, found))

    def note(self, what: str, value: Plain) -> None:
        """Record a value that the scenario computed."""
        self.steps.append(Step(self._line(), what, "note", -1, {"value": value}))

    def quietly(self, request: Message, version: int | None = None) -> Any:
        """Ask, and do not record the answer."""
        return self._exchange(request, self._version(request, version))

    def until(self, accept: Callable[[Any], bool], request: Message, version: int | None = None) -> Any:
        """Ask until the answer is accepted; record the last one."""
        answer = self.settle(accept, request, version)
        self.record(request, self._version(request, version), answer)
        return answer

    def settle(self, accept: Callable[[Any], bool], request: Message, version: int | None = None) -> Any:
        """Ask until the answer is accepted; record nothing."""
        deadline = time.monotonic() + WITHIN_SECONDS
        while True:
            answer = self.quietly(request, version)
            if (answer is not None and accept(answer)) or time.monotonic() > deadline:
                return answer
            time.sleep(0.01)

    def raw(self, api: ApiKey, version: int, body: bytes) -> None:
        """Send bytes as the body of a request; records the answer's bytes after the header, or that there is none."""
        request = getattr(m, api.title + "Request")
        answer = self._send_and_receive(request.API_KEY, version, body)
        response = getattr(m, api.title + "Response")
        found: Plain = "connection closed"
        if answer is not None:
            found = plain(response.decode(version, *answer)[0], version, self.tokens)
        self.steps.append(Step(self._line(), body.hex(), api.title, version, found))

    # ---- what many scenarios begin with --------------------------------------------------------------------------

    def topic(self, text: str = "t", partitions: int = 1, **configs: str) -> str:
        """The name of a new topic that is being served."""
        name = self.name(text)
        # Scenarios write records of 2023 and markers of today: neither is to roll a segment or to expire.
        lasting = {"retention_ms": "-1", "segment_ms": str(2**40), **configs}
        settings = [
            m.CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in lasting.items()
        ]
        wish = m.CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=settings
        )
        answer = self.quietly(m.CreateTopicsRequest(topics=[wish], timeout_ms=10_000), 5)
        assert answer.topics[0].error_code == 0, answer
        self.served(name, partitions)
        self._applied()
        return name

    def _applied(self) -> None:
        """Wait until every part of the broker knows what its partitions know. Apache Kafka's coordinators learn of a
        topic a little after that; a later change is seen only when they have."""
        fence = f"fence-{uuid.uuid4().hex[:8]}"
        self.quietly(alter({"client_id": fence}, producer_byte_rate=1e9), 1)
        self.settle(lambda found: bool(found.entries), describe(("client-id", 0, fence)), 1)
        self.quietly(alter({"client_id": fence}, producer_byte_rate=None), 1)

    def served(self, name: str, partitions: int = 1) -> None:
        """Wait until a topic's partitions can be read."""
        wanted = [
            m.ListOffsetsRequest.ListOffsetsPartition(partition_index=number, timestamp=-1)
            for number in range(partitions)
        ]
        topic = m.ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=wanted)
        self.settle(
            lambda found: all(each.error_code == 0 for each in found.topics[0].partitions),
            m.ListOffsetsRequest(replica_id=-1, topics=[topic]),
            5,
        )

    def topic_id(self, name: str) -> bytes:
        """A topic's id."""
        wanted = m.MetadataRequest.MetadataRequestTopic(name=name)
        found = self.quietly(m.MetadataRequest(topics=[wanted], allow_auto_topic_creation=False), 12)
        return bytes(found.topics[0].topic_id)

    def produce(self, topic: str, records: bytes | None = None, partition: int = 0) -> None:
        """Append a batch of one record, or the given bytes; not recorded."""
        answer = self.quietly(produce_request(topic, batch() if records is None else records, partition=partition), 9)
        code = answer.responses[0].partition_responses[0].error_code
        assert code == 0, ErrorCode(code).name

    # ---- bytes ---------------------------------------------------------------------------------------------------

    def _version(self, request: Message, version: int | None) -> int:
        if version is not None:
            return version
        assert request.API_KEY is not None
        return self.version if self.api == request.API_KEY else self.versions[request.API_KEY][-1]

    def _exchange(self, request: Message, version: int) -> Any:
        assert request.API_KEY is not None
        answer = self._send_and_receive(request.API_KEY, version, request.encode(version))
        if answer is None:
            return None
        data, position = answer
        response = getattr(m, type(request).__name__.replace("Request", "Response"))
        decoded, end = response.decode(version, data, position)
        assert end == len(data), f"{len(data) - end} bytes follow the answer"
        return decoded

    def _send_and_receive(self, api_key: int, version: int, body: bytes) -> tuple[bytes, int] | None:
        self._correlation_id += 1
        frame = write_request_header(api_key, version, self._correlation_id, CLIENT_ID) + body
        try:
            if self._socket is None:
                host, _, port = self.bootstrap.rpartition(":")
                self._socket = socket.create_connection((host, int(port)), WITHIN_SECONDS)
            self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
            data = receive_frame(self._socket)
        except ConnectionError:
            self.close()
            return None
        correlation_id, position = read_response_header(data, api_key, version)
        assert correlation_id == self._correlation_id
        return data, position

    def _line(self) -> int:
        """The line of the scenario's file that is being run."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        return 0 if frame is None else frame.f_lineno


def batch(values: tuple[str, ...] = ("a",), **how: Any) -> bytes:
    """A record batch of small records; keywords as `encode_batch` has them."""
    records = [Record(0, TIMESTAMP_MS, None, value.encode(), ()) for value in values]
    return bytes(encode_batch(records, **how))


def produce_request(
    topic: str | bytes,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
) -> m.ProduceRequest:
    """One batch to one partition; a topic's name, or its id for version 13."""
    data = m.ProduceRequest.PartitionProduceData(index=partition, records=records)
    named = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
    wanted = m.ProduceRequest.TopicProduceData(partition_data=[data], **named)
    return m.ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=5_000, topic_data=[wanted])


def shown(value: Any, tokens: Tokens) -> str:
    """A request without the fields that have their default values."""
    if isinstance(value, Struct):
        usual = type(value)()
        fields = []
        for name in value.FIELDS:
            item = getattr(value, name)
            if name.endswith("producer_id") and isinstance(item, int) and item not in (-1, getattr(usual, name)):
                fields.append(f"{name}={tokens.of('producer', item)}")
            elif name == "topic_id" and item != bytes(16):
                fields.append(f"{name}={tokens.of('topic', item)}")
            elif name == "producer_id_filters":
                fields.append(f"{name}={[each if each == -1 else tokens.of('producer', each) for each in item]}")
            elif name == "producer_epoch" or item != getattr(usual, name):
                fields.append(f"{name}={shown(item, tokens)}")
        return f"({', '.join(fields)})"
    if isinstance(value, str) and len(value) > 60:
        return f"{tokens.in_text(value[:60])!r}…"
    if isinstance(value, str):
        return repr(tokens.in_text(value))
    if isinstance(value, list):
        return f"[{', '.join(shown(each, tokens) for each in value)}]"
    return _shown_bytes(bytes(value), tokens) if isinstance(value, bytes | memoryview) else repr(value)


def _shown_bytes(value: bytes, tokens: Tokens) -> str:
    """A batch by its producer; other long bytes by their number."""
    if len(value) <= 16:
        return repr(value)
    try:
        header = read_header(value)
    except KafkaError:
        return f"{len(value)} bytes"
    if header.producer_id == -1:
        return f"a batch of {header.record_count}"
    producer = tokens.of("producer", header.producer_id)
    kinds = (("transactional", header.is_transactional), ("control", header.is_control))
    named = "".join(f" {name}" for name, is_so in kinds if is_so)
    numbers = f"epoch {header.producer_epoch} sequence {header.base_sequence}"
    return f"a{named} batch of {header.record_count}, {producer} {numbers}"


def _title(request: Message) -> str:
    return type(request).__name__.removesuffix("Request")
