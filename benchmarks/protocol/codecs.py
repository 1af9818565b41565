"""Measures decode and encode times beside kio and kafka-python, in one process.

    python benchmarks/protocol/codecs.py

The messages are Produce v9 of 5 topics x 3 partitions with 100 bytes of records each, its response, and a Metadata v9
response of 5 x 3. Reports microseconds per message in the best of several rounds. kio and kafka-python use their own
classes for the same bytes. kio decodes in compiled Rust and encodes in Python; kafka-python generates Python, as
headrace does.
"""

import io
import timeit
from collections.abc import Callable

from kafka.protocol.metadata import MetadataResponse as TheirMetadata
from kafka.protocol.producer import ProduceRequest as TheirRequest
from kafka.protocol.producer import ProduceResponse as TheirResponse
from kio.schema.metadata.v9.response import MetadataResponse as KioMetadata
from kio.schema.produce.v9.request import ProduceRequest as KioRequest
from kio.schema.produce.v9.response import ProduceResponse as KioResponse
from kio.serial import entity_reader, entity_writer

from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message

VERSION = 9
TOPICS, PARTITIONS = 5, 3
ROUNDS = 15


def samples() -> list[tuple[str, Message, type, type]]:
    """The name, headrace's message, kio's class, and kafka-python's class."""
    topic, part = m.ProduceRequest.TopicProduceData, m.ProduceRequest.PartitionProduceData
    answer, done = m.ProduceResponse.TopicProduceResponse, m.ProduceResponse.PartitionProduceResponse
    known, place = m.MetadataResponse.MetadataResponseTopic, m.MetadataResponse.MetadataResponsePartition
    names, numbers = [f"topic-{number}" for number in range(TOPICS)], range(PARTITIONS)
    request = m.ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[topic(name=t, partition_data=[part(index=p, records=b"r" * 100) for p in numbers]) for t in names],
    )
    response = m.ProduceResponse(
        responses=[answer(name=t, partition_responses=[done(index=p, base_offset=7) for p in numbers]) for t in names]
    )
    metadata = m.MetadataResponse(
        brokers=[m.MetadataResponse.MetadataResponseBroker(node_id=1, host="localhost", port=9092)],
        topics=[
            known(name=t, partitions=[place(partition_index=p, replica_nodes=[1], isr_nodes=[1]) for p in numbers])
            for t in names
        ],
    )
    return [
        ("Produce request", request, KioRequest, TheirRequest),
        ("Produce response", response, KioResponse, TheirResponse),
        ("Metadata response", metadata, KioMetadata, TheirMetadata),
    ]


def microseconds(call: Callable[[], object]) -> float:
    """The time per call in the best round."""
    call()
    count = max(1, int(0.01 / max(1e-7, timeit.timeit(call, number=20) / 20)))
    return min(timeit.repeat(call, number=count, repeat=ROUNDS)) / count * 1e6


def main() -> None:
    """Measures and prints."""
    print(f"{'us per message':28}{'headrace':>10}{'kio':>10}{'kafka-python':>14}")
    for name, ours, kio, theirs in samples():
        data = ours.encode(VERSION)
        read, write = entity_reader(kio), entity_writer(kio)
        kios, _ = read(data, 0)
        python = theirs.decode(data, version=VERSION)
        python._header = None  # it wants one decoded with the body, and the others measure the body alone

        def kio_encode(write: Callable[..., object] = write, kios: object = kios) -> bytes:
            buffer = io.BytesIO()
            write(buffer, kios)
            return buffer.getvalue()

        assert kio_encode() == data
        assert bytes(python.encode(version=VERSION)) == data
        decoders = (
            lambda ours=ours, data=data: ours.decode(VERSION, data),
            lambda read=read, data=data: read(data, 0),
            lambda theirs=theirs, data=data: theirs.decode(data, version=VERSION),
        )
        encoders = (
            lambda ours=ours: ours.encode(VERSION),
            kio_encode,
            lambda python=python: python.encode(version=VERSION),
        )
        for what, calls in (("decode", decoders), ("encode", encoders)):
            a, b, c = (microseconds(call) for call in calls)
            print(f"{name + ', ' + what:28}{a:10.1f}{b:10.1f}{c:14.1f}    {b / a:.1f}x kio, {c / a:.1f}x kafka-python")


if __name__ == "__main__":
    main()
