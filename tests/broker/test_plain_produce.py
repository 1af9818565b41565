"""The short way of a plain produce does what the long way does: the same answers, the same bytes in the log."""

import gc
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.produce.plain_produce import Uncommitted, append_plainly
from headrace.broker.request import dispatch
from headrace.broker.request.dispatch import Dispatcher
from headrace.broker.request.shortcuts import Shortcuts
from headrace.broker.services import Services
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import write_request_header
from headrace.protocol.plain_produce import PlainProduce
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.format2.header import CHECKED_FROM, read_header, set_max_timestamp
from headrace.testing import Broker
from tests.eventually import WITHIN_SECONDS
from tests.wire import Wire

SHORT, LONG, SHORTEST = "by-the-short-way", "by-the-long--way", "by-the-least-way"
NOW_MS = int(time.time() * 1000)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"socket.send.buffer.bytes": 8192}) as found, Wire(found.bootstrap) as wire:
        wire.create_topic("by-id", 1)
        wire.create_topic("recent", 1, {"message.timestamp.before.max.ms": "3600000"})
        for topic in (SHORT, LONG, SHORTEST):
            wire.create_topic(topic, 2, {"max.message.bytes": "5000"})
            wire.create_topic(topic + "-stamped", 1, {"message.timestamp.type": "LogAppendTime"})
            wire.create_topic(topic + "-compacted", 1, {"cleanup.policy": "compact"})
            wire.create_topic(topic + "-early", 1, {"message.timestamp.before.max.ms": "1000"})
        yield found


@pytest.fixture
def without_shortcut(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections that are opened from now on offer no frame to the shortest way."""
    for each in shortcuts():
        monkeypatch.setattr(each, "shortcut", None)


def shortcuts() -> list[Dispatcher]:
    return [each for each in gc.get_objects() if type(each) is Dispatcher]


def taken_by_the_shortest() -> int:
    return sum(each.shortcut.produces.taken for each in shortcuts() if isinstance(each.shortcut, Shortcuts))


def batch(count: int = 3, *, producer: int = -1, sequence: int = -1, at_ms: int = NOW_MS, codec: Codec = Codec.NONE,
          key: bytes | None = b"k", size: int = 100) -> bytearray:  # fmt: skip
    records = [Record(i, at_ms + i, key, bytes(size), ()) for i in range(count)]
    return encode_batch(
        records, codec=codec, producer_id=producer, producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence
    )


def flipped(records: bytearray, at: int) -> bytearray:
    records[at] ^= 1
    return records


def with_max_timestamp(records: bytearray, max_timestamp: int) -> bytearray:
    set_max_timestamp(records, read_header(records), max_timestamp)
    return records


def requests() -> dict[str, tuple[str, list[list[tuple[int, bytearray]]]]]:
    """By what is tried: behind which topic name, and for each request its partitions' records."""
    return {
        "one batch": ("", [[(0, batch())]]),
        "two partitions": ("", [[(0, batch()), (1, batch(1))]]),
        "one partition twice": ("", [[(0, batch()), (0, batch(1))]]),
        "a sequence, a repetition, a gap, a repetition of what is long gone": (
            "",
            [[(0, batch(2, producer=77, sequence=n))] for n in (0, 2, 2, 8, 4, 6, 8, 10, 12, 0)],
        ),
        "a good partition and one with a gap": (
            "",
            [[(0, batch(producer=78, sequence=0))], [(1, batch()), (0, batch(producer=78, sequence=9))]],
        ),
        "a partition that is not there": ("", [[(7, batch())], [(0, batch()), (7, batch())]]),
        "a topic that is not there": ("-nowhere", [[(0, batch())]]),
        "a wrong CRC": ("", [[(0, flipped(batch(), CHECKED_FROM + 60))]]),
        "format 1": ("", [[(0, flipped(batch(), 16))]]),
        "two batches": ("", [[(0, batch() + batch())]]),
        "a cut batch": ("", [[(0, batch()[:-1])], [(0, batch()[:40])], [(0, batch()[:10])]]),
        "too large a batch": ("", [[(0, batch(60))]]),
        "a max timestamp that is wrong": ("", [[(0, with_max_timestamp(batch(), NOW_MS + 77))]]),
        "in the future": ("", [[(0, batch(at_ms=NOW_MS + 10_000_000))]]),
        "in the past": ("-early", [[(0, batch(at_ms=NOW_MS - 10_000_000))]]),
        "compressed": ("", [[(0, batch(codec=Codec.GZIP))]]),
        "a compacted topic": ("-compacted", [[(0, batch())], [(0, batch(key=None))]]),
    }


def ask(wire: Wire, version: int, topic: str, acks: int, parts: list[tuple[int, bytearray]]) -> bytes:
    partitions = [m.ProduceRequest.PartitionProduceData(index=i, records=bytes(records)) for i, records in parts]
    data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=partitions)
    body = m.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[data]).encode(version)
    answer = wire.ask(0, version, (b"\0" if version >= 9 else b"") + body)
    return re.sub(rb"(broker's) \d+", rb"\1", answer)  # its clock


CLOCK = re.compile(rb"\d{13,19}")
"""A time in an error message, which goes with the broker's clock."""


@pytest.mark.parametrize("version", [3, 5, 7, 8, 9, 11, 12])
@pytest.mark.parametrize("acks", [1, -1])
def test_all_ways_give_the_same_answers_and_the_same_log(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, version: int, acks: int
) -> None:
    taken, taken_before = 0, taken_by_the_shortest()

    def counted(parts: Services, request: PlainProduce, *how: Any) -> bytes | Uncommitted | None:
        nonlocal taken
        answer = append_plainly(parts, request, *how)
        taken += answer is not None
        return answer

    with Wire(broker.bootstrap) as shortest, monkeypatch.context() as way:
        shortest.ask(18, 0, b"")  # the connection is there, with its shortcut
        for each in shortcuts():
            way.setattr(each, "shortcut", None)
        with Wire(broker.bootstrap) as wire:
            for what, (suffix, asked) in requests().items():
                for parts in asked:
                    way.setattr(dispatch, "append_plainly", counted)
                    answers = [ask(wire, version, SHORT + suffix, acks, parts).replace(SHORT.encode(), LONG.encode())]
                    way.setattr(dispatch, "append_plainly", lambda *_: None)
                    answers.append(ask(wire, version, LONG + suffix, acks, parts))
                    last = ask(shortest, version, SHORTEST + suffix, acks, parts)
                    answers.append(last.replace(SHORTEST.encode(), LONG.encode()))
                    assert len({CLOCK.sub(b"now", each) for each in answers}) == 1, what
            ask(wire, version, SHORT + "-stamped", acks, [(0, batch())])
            ask(shortest, version, SHORTEST + "-stamped", acks, [(0, batch())])
    assert taken > 10, "the short way was not gone"
    assert taken_by_the_shortest() > taken_before, "the shortest way was not gone"
    for partition in (0, 1):
        logs = [
            Path(broker.data, f"{topic}-{partition}", "00000000000000000000.log").read_bytes()
            for topic in (SHORT, LONG, SHORTEST)
        ]
        assert logs[0] == logs[1] == logs[2]
        assert logs[0]


@pytest.mark.usefixtures("without_shortcut")
def test_topics_by_id_go_the_short_way_too(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def counted(parts: Services, request: PlainProduce, *how: Any) -> bytes | Uncommitted | None:
        taken.append(append_plainly(parts, request, *how))
        return taken[-1]

    monkeypatch.setattr(dispatch, "append_plainly", counted)
    with Wire(broker.bootstrap) as wire:
        asked = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="by-id")])
        answer, _ = m.MetadataResponse.decode(12, wire.ask(3, 12, b"\0" + asked.encode(12)), 1)
        for topic_id in (answer.topics[0].topic_id, bytes(15) + b"x"):
            partition = m.ProduceRequest.PartitionProduceData(index=0, records=bytes(batch()))
            data = m.ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[partition])
            wire.ask(0, 13, b"\0" + m.ProduceRequest(acks=1, timeout_ms=9, topic_data=[data]).encode(13))
    assert [each is None for each in taken] == [False, True]


@pytest.mark.usefixtures("without_shortcut")
def test_a_topic_that_refuses_old_records_takes_recent_ones_the_short_way(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record is looked at: the first one alone, which the header has the timestamp of, would not tell."""
    taken = []

    def counted(parts: Services, request: PlainProduce, *how: Any) -> bytes | Uncommitted | None:
        taken.append(append_plainly(parts, request, *how))
        return taken[-1]

    monkeypatch.setattr(dispatch, "append_plainly", counted)
    now_ms = int(time.time() * 1000)
    mixed = encode_batch([Record(0, now_ms, None, b"", ()), Record(1, now_ms - 7_200_000, None, b"", ())])
    with Wire(broker.bootstrap) as wire:
        for records in (batch(at_ms=now_ms), mixed, batch(at_ms=now_ms - 7_200_000)):
            ask(wire, 12, "recent", 1, [(0, records)])
    assert [each is None for each in taken] == [False, True, True]
    log = Path(broker.data, "recent-0", "00000000000000000000.log").read_bytes()
    assert read_header(log).size_bytes == len(log), "more was written than the recent batch"


@pytest.mark.usefixtures("without_shortcut")
def test_a_disk_that_fails_behind_the_first_batch_is_said_of_the_second(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.errors import StorageError
    from headrace.log import appending
    from headrace.log.partition_log import PartitionLog

    append = appending.append

    def fails_for_the_second(log: PartitionLog, *arguments: object, **how: object) -> object:
        if log.partition.partition == 1:
            raise StorageError("no space")
        return append(log, *arguments, **how)  # type: ignore[arg-type]

    answers = []
    with Wire(broker.bootstrap) as wire:
        for topic in (SHORT, LONG):
            if topic is LONG:
                monkeypatch.setattr(dispatch, "append_plainly", lambda *_: None)
            with monkeypatch.context() as disk:
                disk.setattr(appending, "append", fails_for_the_second)
                answers.append(ask(wire, 9, topic, -1, [(0, batch()), (1, batch())]))
        ask(wire, 9, SHORTEST, -1, [(0, batch())])  # all three stay the same
    assert answers[0].replace(SHORT.encode(), LONG.encode()) == answers[1]
    assert b"no space" in answers[0]


def test_a_client_that_reads_late_gets_all_answers_in_order(broker: Broker) -> None:
    """The socket takes a part of what is answered at once; the rest waits in the queue, and later answers behind it."""
    topic, count, version = "late-" + "x" * 244, 2_000, 9  # answers of 300 bytes
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(topic, 1)
    data = m.ProduceRequest.TopicProduceData(
        name=topic, partition_data=[m.ProduceRequest.PartitionProduceData(index=0, records=bytes(batch(1, size=1)))]
    )
    body = m.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]).encode(version)
    host, _, port = broker.bootstrap.rpartition(":")
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(WITHIN_SECONDS)
        connection.connect((host, int(port)))
        frames = [write_request_header(ApiKey.PRODUCE, version, number, "late") + body for number in range(count)]
        connection.sendall(b"".join(len(each).to_bytes(4, "big") + each for each in frames))
        with connection.makefile("rb") as stream:
            offsets = []
            for number in range(count):
                answer = stream.read(int.from_bytes(stream.read(4), "big"))
                assert int.from_bytes(answer[:4], "big") == number
                response, _ = m.ProduceResponse.decode(version, memoryview(answer), 5)
                offsets.append(response.responses[0].partition_responses[0].base_offset)
    assert offsets == list(range(offsets[0], offsets[0] + count))
