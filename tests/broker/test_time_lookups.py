"""ListOffsets by time, where the batch that has the answer is large: others are served meanwhile."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import ErrorCode
from headrace.records.codecs.compression import Codec, compress
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.legacy.message_set import encode_message_set
from tests.broker.lies import lying
from tests.broker.siege import Bystander, assert_unharmed
from tests.examples import slow_after
from tests.harness import HeadraceServer
from tests.machine import processor_seconds
from tests.wire import LIST_OFFSETS, PRODUCE, Wire, batch, string, varint

MILLION = 1_000_000
PARTITIONS = 4
LOOP_SECONDS_MAX = 0.25
"""Of processor time in one go, on the reference machine. One such batch, decoded record by record, takes 1.5 s."""
needs_processor_time = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="processor time is read from /proc"
)


def empty_records(count: int) -> bytes:
    """A zstd batch of records without key and value, of which the last is a millisecond later than the others."""
    records = bytearray()
    for number in range(count):
        body = b"\0" + (b"\2" if number == count - 1 else b"\0") + varint(number) + b"\1\1\0"
        records += varint(len(body)) + body
    return lying(
        records=compress(Codec.ZSTD, records),
        attributes=Codec.ZSTD,
        last_offset_delta=count - 1,
        record_count=count,
        base_timestamp=1000,
        max_timestamp=1001,
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    running = HeadraceServer(tmp_path_factory.mktemp("time-lookups") / "data").start()
    yield running
    assert_unharmed(running)


def produce(wire: Wire, topic: str, partition: int, records: bytes, version: int = 7) -> None:
    """Produce of a version that may carry these records."""
    body = string(None) if version >= 3 else b""
    body += struct.pack(">hii", -1, 30_000, 1) + string(topic)
    answer = wire.ask(PRODUCE, version, body + struct.pack(">iii", 1, partition, len(records)) + records)
    (error_code,) = struct.unpack_from(">h", answer, 4 + 2 + len(topic) + 4 + 4)
    assert error_code == 0, ErrorCode(error_code).name


def ask(wire: Wire, topic: str, times_ms: list[int]) -> list[tuple[int, int, int, int]]:
    """ListOffsets version 1, one time for each partition from 0 on: (partition, error code, timestamp, offset)."""
    body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">i", len(times_ms))
    body += b"".join(struct.pack(">iq", number, time_ms) for number, time_ms in enumerate(times_ms))
    answer = wire.ask(LIST_OFFSETS, 1, body)
    return list(struct.iter_unpack(">ihqq", answer[4 + 2 + len(topic) + 4 :]))


@pytest.mark.slow
@needs_processor_time
def test_others_are_served_while_a_time_is_looked_up_in_batches_of_a_million_records(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        wire.create_topic("empty", PARTITIONS)
        large = empty_records(MILLION)
        assert len(large) < 1 << 20
        for partition in range(PARTITIONS):
            produce(wire, "empty", partition, large)
        with Bystander(server.bootstrap, server=server) as bystander:
            found = ask(wire, "empty", [1001] * PARTITIONS)
        assert found == [(partition, 0, 1001, MILLION - 1) for partition in range(PARTITIONS)]
        print(f"most of {bystander.exchanges} exchanges: {bystander.most_loop_seconds * 1000:.0f} ms")
        assert 0 < bystander.most_loop_seconds < processor_seconds(LOOP_SECONDS_MAX)


@pytest.mark.slow
@needs_processor_time
def test_others_are_served_while_many_ordinary_batches_are_looked_into(server: HeadraceServer) -> None:
    count = 60
    with Wire(server.bootstrap) as wire:
        wire.create_topic("ordinary", count)
        records = [Record(0, 1000 + number // 3000, b"key", b"a value %d" % number) for number in range(12_000)]
        data = bytes(encode_batch(records, codec=Codec.LZ4))
        for partition in range(count):
            produce(wire, "ordinary", partition, data)
        with Bystander(server.bootstrap, server=server) as bystander:
            found = ask(wire, "ordinary", [1003] * count)
        assert found == [(partition, 0, 1003, 9000) for partition in range(count)]
        assert 0 < bystander.most_loop_seconds < processor_seconds(LOOP_SECONDS_MAX)


@pytest.mark.slow
def test_a_connection_gets_its_answers_in_order_also_when_a_thread_looks_a_time_up(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        wire.create_topic("in-order")
        produce(wire, "in-order", 0, empty_records(200_000))
        body = struct.pack(">ii", -1, 1) + string("in-order") + struct.pack(">ii", 1, 0)
        sent = [wire.send(LIST_OFFSETS, 1, body + struct.pack(">q", time_ms)) for time_ms in (1001, -1, -2, 1001)]
        answers = [wire.receive() for _ in sent]
        assert [correlation_id for correlation_id, _ in answers] == sent
        offsets = [struct.unpack(">q", answer[-8:])[0] for _, answer in answers]
        assert offsets == [199_999, 200_000, 0, 199_999]


@pytest.mark.parametrize("message_format", ["0.10.2", "3.0"])
@pytest.mark.parametrize("count", slow_after(1, [3, 60_000]))
def test_a_time_is_found_in_messages_of_every_format(server: HeadraceServer, message_format: str, count: int) -> None:
    topic = f"format-{message_format}-{count}"
    with Wire(server.bootstrap) as wire:
        wire.create_topic(topic, configs={"message.format.version": message_format})
        records = [Record(number, 1000 + number, b"k", b"v") for number in range(count)]
        produce(wire, topic, 0, bytes(encode_message_set(records, magic=1, codec=Codec.GZIP)), version=2)
        assert ask(wire, topic, [1000 + count - 1]) == [(0, 0, 1000 + count - 1, count - 1)]
        assert ask(wire, topic, [1000 + count]) == [(0, 0, -1, -1)]
        assert wire.list_offset(topic, 1001)[2] == 1


def test_a_time_is_looked_up_in_more_partitions_than_are_searched_at_once(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        wire.create_topic("many", 40)
        for partition in range(40):
            assert wire.produce("many", batch([b"a", b"b"], timestamp_ms=500 + partition), partition=partition) == (
                0,
                0,
            )
        found = ask(wire, "many", [520] * 40)
        assert found == [(at, 0, 500 + at, 0) if at >= 20 else (at, 0, -1, -1) for at in range(40)]
