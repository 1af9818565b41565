"""Records are deleted up to an offset as Apache Kafka does it, and stay deleted."""

import struct
import time
from pathlib import Path

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.admin_requests import create_topic, delete_records, start_offsets
from tests.conftest import StartHeadrace
from tests.eventually import eventually
from tests.wire import FETCH, Wire, batch, string

NO_SUCH = (-1, "UNKNOWN_TOPIC_OR_PARTITION")
OUT_OF_RANGE = (-1, "OFFSET_OUT_OF_RANGE")
CHECKPOINT_SECONDS = 10


def fill(bootstrap: str, topic: str, batches: int = 3, records: int = 10) -> None:
    with Wire(bootstrap) as wire:
        for number in range(batches):
            produced = wire.produce(topic, batch([b"v"] * records, keys=[b"k"] * records))
            assert produced == (ErrorCode.NONE, number * records)


def test_the_log_begins_where_it_is_told_to(either_broker: str, asker: Asker) -> None:
    topic = create_topic(asker, 2)
    fill(either_broker, topic)
    for version, offset in ((0, 5), (1, 6), (2, 17)):
        assert delete_records(asker, topic, {0: offset}, version=version) == {0: (offset, "NONE")}
        assert start_offsets(asker, topic, [0, 1]) == {0: offset, 1: 0}
    with Wire(either_broker) as wire:
        assert wire.fetch(topic, 16).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert struct.unpack_from(">q", wire.fetch(topic, 17).records) == (10,)  # the whole batch that holds it


def test_only_forward_and_never_past_the_high_watermark(either_broker: str, asker: Asker) -> None:
    topic = create_topic(asker, 2)
    fill(either_broker, topic)
    for offset, told in (
        (7, (7, "NONE")),
        (3, (7, "NONE")),
        (31, OUT_OF_RANGE),
        (-2, OUT_OF_RANGE),
        (1 << 62, OUT_OF_RANGE),
        (30, (30, "NONE")),
        (-1, (30, "NONE")),
    ):
        assert delete_records(asker, topic, {0: offset}) == {0: told}, offset
    assert delete_records(asker, topic, {1: 0}) == {1: (0, "NONE")}
    assert delete_records(asker, topic, {1: -1}) == {1: (0, "NONE")}
    assert delete_records(asker, topic, {1: 1}) == {1: OUT_OF_RANGE}
    assert delete_records(asker, topic, {0: -1, 1: -1, 9: -1}) == {0: (30, "NONE"), 1: (0, "NONE"), 9: NO_SUCH}
    assert delete_records(asker, "no-such-topic", {0: 1}) == {0: NO_SUCH}
    assert delete_records(asker, "", {0: 1}) == {0: NO_SUCH}
    assert (start_offsets(asker, topic, [0]), start_offsets(asker, topic, [0], -1)) == ({0: 30}, {0: 30})


@pytest.mark.parametrize(
    ("policy", "told"),
    [("compact", (-1, "POLICY_VIOLATION")), ("compact,delete", (5, "NONE")), ("delete", (5, "NONE"))],
)
def test_what_only_the_cleaner_may_take_away_stays(
    either_broker: str, asker: Asker, policy: str, told: tuple[int, str]
) -> None:
    topic = create_topic(asker, settings={"cleanup.policy": policy})
    fill(either_broker, topic, 1)
    assert delete_records(asker, topic, {0: 5}) == {0: told}


def test_a_partition_named_twice_is_done_as_it_is_named_last(either_broker: str, asker: Asker) -> None:
    topic = create_topic(asker)
    fill(either_broker, topic)
    part = m.DeleteRecordsRequest.DeleteRecordsPartition
    asked = m.DeleteRecordsRequest.DeleteRecordsTopic(
        name=topic, partitions=[part(partition_index=0, offset=offset) for offset in (20, 4)]
    )
    answer = asker.ask(m.DeleteRecordsRequest(topics=[asked], timeout_ms=10_000), 2).topics[0].partitions
    assert [(each.partition_index, each.low_watermark, each.error_code) for each in answer] == [(0, 4, 0)]


def test_a_reader_that_waits_below_the_new_start_hears_of_it_at_once(headrace_server: StartHeadrace) -> None:
    """Apache Kafka lets it wait its time out first."""
    server = headrace_server()
    with Asker(server.bootstrap) as asker, Wire(server.bootstrap) as wire:
        topic = create_topic(asker)
        fill(server.bootstrap, topic)
        body = struct.pack(">iiiibi", -1, 60_000, 1 << 20, 1 << 20, 0, 1) + string(topic)
        wire.send(FETCH, 4, body + struct.pack(">iiqi", 1, 0, 5, 1 << 20))
        time.sleep(0.1)  # it waits for more bytes than there are
        assert delete_records(asker, topic, {0: 10}) == {0: (10, "NONE")}
        _, answer = wire.receive()
        after_topic = 4 + 4 + 2 + len(topic) + 4 + 4
        assert struct.unpack_from(">h", answer, after_topic) == (ErrorCode.OFFSET_OUT_OF_RANGE,)


def wait_for_checkpoint(data: Path, topic: str, offset: int) -> None:
    checkpoint = data / "log-start-offset-checkpoint"
    eventually(
        lambda: checkpoint.exists() and f"{topic} 0 {offset}" in checkpoint.read_text().splitlines(),
        f"{checkpoint} to say that {topic} begins at {offset}",
    )


def test_deleted_records_do_not_come_back_after_a_kill(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    with Asker(server.bootstrap) as asker:
        topic = create_topic(asker)
        fill(server.bootstrap, topic)
        assert delete_records(asker, topic, {0: 17}) == {0: (17, "NONE")}
        wait_for_checkpoint(server.data, topic, 17)
    server.kill()
    server.restart()
    with Asker(server.bootstrap) as asker:
        assert start_offsets(asker, topic, [0]) == {0: 17}
        assert start_offsets(asker, topic, [0], -1) == {0: 30}


@pytest.mark.parametrize("offset", [17, 30])
def test_deleted_records_do_not_come_back_after_a_stop(headrace_server: StartHeadrace, offset: int) -> None:
    server = headrace_server()
    with Asker(server.bootstrap) as asker:
        topic = create_topic(asker)
        fill(server.bootstrap, topic)
    for expected in (0, offset, offset):  # the second time from a log that was stopped cleanly and not written to
        assert server.stop() == 0
        server.restart()
        with Asker(server.bootstrap) as asker:
            assert start_offsets(asker, topic, [0]) == {0: expected}
            assert start_offsets(asker, topic, [0], -1) == {0: 30}
            assert delete_records(asker, topic, {0: offset}) == {0: (offset, "NONE")}
    with Wire(server.bootstrap) as wire:
        assert wire.produce(topic, batch([b"after"])) == (0, 30)
        assert b"after" in wire.fetch(topic, 30).records


def test_segments_below_the_start_are_removed(headrace_server: StartHeadrace) -> None:
    server = headrace_server(settings={"log.segment.delete.delay.ms": "0"})
    with Asker(server.bootstrap) as asker, Wire(server.bootstrap) as wire:
        topic = create_topic(asker, settings={"segment.bytes": "200", "file.delete.delay.ms": "0"})
        for number in range(6):
            assert wire.produce(topic, batch([b"x" * 100])) == (0, number)
        assert delete_records(asker, topic, {0: 4}) == {0: (4, "NONE")}
        directory = server.data / f"{topic}-0"
        eventually(lambda: not list(directory.glob("*.deleted")), "the deleted segments to go")
    assert sorted(path.name for path in directory.glob("*.log*")) == [f"{number:020d}.log" for number in (4, 5)]
