"""Clients of every age on one topic: whatever one of them produces, all others fetch, each in its own format."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from headrace.errors import ErrorCode
from headrace.log.files import LocalFiles
from headrace.log.segment.batch_scan import read_headers
from headrace.protocol import messages as m
from headrace.records.any_format import iter_any_headers
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.legacy.message_set import encode_message_set
from tests.asker import Asker
from tests.conftest import StartHeadrace
from tests.harness import HeadraceServer, free_ports
from tests.records.decoding import decode_any
from tests.wire import INIT_PRODUCER_ID, Wire

NOW_MS = 1_700_000_000_000
FORMATS = {0: "0.8.2", 1: "0.10.2-IV0", 2: "3.0-IV1"}
MAGIC_OF_PRODUCE = {0: 0, 1: 0, 2: 1, 3: 2, 7: 2}
OLD_CODECS = [codec for codec in Codec if codec is not Codec.ZSTD]

_names = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    """One broker for the file."""
    running = HeadraceServer(tmp_path_factory.mktemp("old-versions") / "data").start()
    yield running
    running.stop()


@pytest.fixture
def asker(server: HeadraceServer) -> Iterator[Asker]:
    with Asker(server.bootstrap) as connection:
        yield connection


def new_topic(server: HeadraceServer, **settings: object) -> str:
    """A topic of its own."""
    name = f"old-{next(_names)}"
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic(name, configs={k.replace("_", "."): str(v) for k, v in settings.items()}) == 0
    return name


def alter(asker: Asker, topic: str, name: str, value: str) -> None:
    """Changes a setting of a live topic."""
    change = m.IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=0, value=value)
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2, resource_name=topic, configs=[change]
    )
    (answer,) = asker.ask(m.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0


def rows(count: int, name: str = "v", start_ms: int = NOW_MS) -> list[Record]:
    return [
        Record(n, start_ms + n, None if n % 3 else b"k%d" % n, None if n % 5 == 4 else f"{name}{n}".encode())
        for n in range(count)
    ]


def sent(records: list[Record], magic: int, codec: Codec = Codec.NONE) -> bytes:
    """What a producer of this format sends."""
    if magic == 2:
        return bytes(encode_batch(records, codec=codec))
    return bytes(encode_message_set(records, magic=magic, codec=codec))


def produce(asker: Asker, topic: str, records: bytes, version: int, acks: int = -1) -> tuple[str, int, int]:
    """The error, the base offset and the log append time of one partition."""
    part = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
    answer = asker.ask(m.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data]), version)
    (found,) = answer.responses[0].partition_responses
    return ErrorCode(found.error_code).name, found.base_offset, found.log_append_time_ms


def fetch(
    asker: Asker, topic: str, offset: int, version: int, max_bytes: int = 1 << 20, max_wait_ms: int = 0
) -> tuple[str, bytes]:
    """The error and the records of one partition."""
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    wanted = m.FetchRequest.FetchTopic(topic=topic, partitions=[part])
    request = m.FetchRequest(replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 30, topics=[wanted])
    (found,) = asker.ask(request, version).responses[0].partitions
    return ErrorCode(found.error_code).name, bytes(found.records or b"")


def read(asker: Asker, topic: str, version: int, count: int, max_bytes: int = 1 << 20) -> list[Record]:
    """The records from the beginning on, as a client would ask for them."""
    found: list[Record] = []
    while len(found) < count:
        offset = found[-1].offset + 1 if found else 0
        error, data = fetch(asker, topic, offset, version, max_bytes)
        assert error == "NONE"
        known = 0 if version < 2 else 1 if version < 4 else 2
        assert all(header.magic <= known for _, header in iter_any_headers(data))
        more = [record for record in decode_any(data) if record.offset >= offset]
        assert more, "no progress"
        found += more
    return found


def stored_magics(server: HeadraceServer, topic: str) -> set[int]:
    found = set()
    for path in sorted((server.data / f"{topic}-0").glob("*.log")):
        file = LocalFiles().open_readonly(path)
        found |= {header.magic for _, header in read_headers(file, 0, file.size())}
    return found


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("stored", FORMATS)
def test_what_any_version_produces_every_version_fetches(
    server: HeadraceServer, asker: Asker, stored: int, codec: Codec
) -> None:
    topic = new_topic(server, message_format_version=FORMATS[stored])
    written: list[Record] = []
    had_times: list[bool] = []
    for version, magic in MAGIC_OF_PRODUCE.items():
        batch = rows(7, f"from-{version}-")
        assert produce(asker, topic, sent(batch, magic, codec), version) == ("NONE", len(written), -1)
        written += batch
        had_times += [min(magic, stored) > 0] * len(batch)
    assert stored_magics(server, topic) == {stored}
    for version in (0, 1, 2, 3, 4, 11, 12):
        kept = [has and version > 1 for has in had_times]
        wanted = [
            row._replace(offset=n, timestamp_ms=row.timestamp_ms if has else -1)
            for n, (row, has) in enumerate(zip(written, kept, strict=True))
        ]
        assert read(asker, topic, version, len(written)) == wanted, version


def test_the_format_of_a_live_topic_changes_and_all_of_it_is_read(server: HeadraceServer, asker: Asker) -> None:
    topic = new_topic(server, message_format_version="0.9.0", segment_bytes=2000, index_interval_bytes=100)
    written: list[Record] = []
    for stored in (0, 2, 1, 0, 2):
        alter(asker, topic, "message.format.version", FORMATS[stored])
        for version, magic in MAGIC_OF_PRODUCE.items():
            codec = OLD_CODECS[len(written) % 4]
            batch = rows(9, f"{stored}-{version}-")
            assert produce(asker, topic, sent(batch, magic, codec), version)[:2] == ("NONE", len(written))
            written += batch
    assert stored_magics(server, topic) == {0, 1, 2}
    for version in (0, 1, 2, 3, 4):
        found = read(asker, topic, version, len(written), max_bytes=700)
        assert [(r.offset, r.key, r.value) for r in found] == [(n, r.key, r.value) for n, r in enumerate(written)]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_fetch_from_the_middle_of_a_batch_begins_there(server: HeadraceServer, asker: Asker, version: int) -> None:
    topic = new_topic(server)
    produce(asker, topic, sent(rows(10), 2), 3)
    found = decode_any(fetch(asker, topic, 6, version)[1])
    assert [record.offset for record in found] == [6, 7, 8, 9]
    produce(asker, topic, sent(rows(10), 2, Codec.GZIP), 3)
    found = decode_any(fetch(asker, topic, 16, version)[1])
    assert [record.offset for record in found] == list(range(10, 20)), "a wrapper comes whole"


def test_headers_and_idempotence_are_lost_on_the_way_down(server: HeadraceServer, asker: Asker) -> None:
    topic = new_topic(server)
    row = Record(0, NOW_MS, b"k", b"v", (("h", b"x"),))
    batch = encode_batch([row], producer_id=4711, producer_epoch=0, base_sequence=0)
    assert produce(asker, topic, bytes(batch), 3)[0] == "NONE"
    assert decode_any(fetch(asker, topic, 0, 3)[1]) == [row._replace(headers=())]
    assert decode_any(fetch(asker, topic, 0, 4)[1]) == [row]


@pytest.mark.parametrize("stored", [0, 1])
@pytest.mark.parametrize("version", [2, 3, 11])
def test_an_old_topic_refuses_what_it_has_no_words_for(
    server: HeadraceServer, asker: Asker, stored: int, version: int
) -> None:
    topic = new_topic(server, message_format_version=FORMATS[stored])
    kinds: dict[str, dict[str, Any]] = {
        "UNSUPPORTED_FOR_MESSAGE_FORMAT": {},
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": {"is_transactional": True},  # the request has no transactional id
    }
    for refusal, how in kinds.items():
        batch = encode_batch(rows(1), producer_id=1, producer_epoch=0, base_sequence=0, **how)
        assert produce(asker, topic, bytes(batch), version)[0] == refusal
    control = encode_batch(rows(1), producer_id=1, producer_epoch=0, base_sequence=0, is_control=True)
    assert produce(asker, topic, bytes(control), version)[0] == "UNSUPPORTED_FOR_MESSAGE_FORMAT"
    zstd = encode_batch(rows(3), codec=Codec.ZSTD)
    assert produce(asker, topic, bytes(zstd), version)[0] == "UNSUPPORTED_COMPRESSION_TYPE"
    assert produce(asker, topic, sent(rows(1), 2), version) == ("NONE", 0, -1)


def test_zstd_is_not_for_old_versions(server: HeadraceServer, asker: Asker) -> None:
    topic = new_topic(server)
    batch = sent(rows(5), 2, Codec.ZSTD)
    for version in (0, 2, 3, 6):
        assert produce(asker, topic, batch, version)[0] == "UNSUPPORTED_COMPRESSION_TYPE"
    assert produce(asker, topic, sent(rows(5), 2, Codec.GZIP), 6) == ("NONE", 0, -1)
    assert produce(asker, topic, batch, 7) == ("NONE", 5, -1)
    for version in (0, 1, 2, 3):
        assert fetch(asker, topic, 5, version) == ("UNSUPPORTED_COMPRESSION_TYPE", b"")
        assert [record.offset for record in decode_any(fetch(asker, topic, 0, version)[1])] == [0, 1, 2, 3, 4]
    assert len(decode_any(fetch(asker, topic, 0, 4)[1])) == 10


@pytest.mark.parametrize("stored", FORMATS)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_the_brokers_clock_stamps_old_messages_too(
    server: HeadraceServer, asker: Asker, stored: int, codec: Codec
) -> None:
    topic = new_topic(server, message_format_version=FORMATS[stored], message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    error, _, stamped_ms = produce(asker, topic, sent(rows(3), 1, codec), 2)
    assert error == "NONE"
    if stored == 0:
        assert stamped_ms == -1
    else:
        assert before <= stamped_ms <= time.time() * 1000
    assert [record.timestamp_ms for record in read(asker, topic, 3, 3)] == [stamped_ms] * 3


@pytest.mark.parametrize("stored", [1, 2])
def test_offsets_are_found_by_time_inside_a_wrapper(server: HeadraceServer, asker: Asker, stored: int) -> None:
    topic = new_topic(server, message_format_version=FORMATS[stored])
    for start in (0, 100):
        produce(asker, topic, sent(rows(10, start_ms=NOW_MS + start), 1, Codec.SNAPPY), 2)
    with Wire(server.bootstrap) as wire:
        assert wire.list_offset(topic, NOW_MS + 7) == (0, NOW_MS + 7, 7)
        assert wire.list_offset(topic, NOW_MS + 50) == (0, NOW_MS + 100, 10)
        assert wire.list_offset(topic, NOW_MS + 105) == (0, NOW_MS + 105, 15)
        assert wire.list_offset(topic, NOW_MS + 200) == (0, -1, -1)


def test_a_topic_without_timestamps_cannot_be_searched_by_time(server: HeadraceServer, asker: Asker) -> None:
    topic = new_topic(server, message_format_version="0.9.0")
    produce(asker, topic, sent(rows(4), 1), 2)
    with Wire(server.bootstrap) as wire:
        assert wire.list_offset(topic, NOW_MS)[0] == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        assert wire.list_offset(topic, -1) == (0, -1, 4)
        assert wire.list_offset(topic, -2) == (0, -1, 0)


@pytest.mark.slow
def test_old_messages_survive_a_crash(tmp_path: Path) -> None:
    running = HeadraceServer(tmp_path / "data").start()
    written: list[Record] = []
    with Asker(running.bootstrap) as asker:
        topic = new_topic(running, message_format_version="0.10.0")
        for codec in OLD_CODECS:
            produce(asker, topic, sent(rows(20), 1, codec), 2)
            written += rows(20)
    running.kill()
    running.start()
    with Asker(running.bootstrap) as asker:
        assert read(asker, topic, 3, 80) == [row._replace(offset=n) for n, row in enumerate(written)]
        assert produce(asker, topic, sent(rows(1), 1), 2) == ("NONE", 80, -1)
    running.stop()


@pytest.mark.parametrize("version", [0, 2])
def test_before_version_3_what_is_too_large_comes_cut_off(server: HeadraceServer, asker: Asker, version: int) -> None:
    topic = new_topic(server)
    produce(asker, topic, sent([Record(0, NOW_MS, None, b"x" * 5000)], 2), 3)
    assert len(fetch(asker, topic, 0, version, max_bytes=1000)[1]) == 1000
    assert len(decode_any(fetch(asker, topic, 0, 3, max_bytes=1000)[1])) == 1
    assert len(decode_any(fetch(asker, topic, 0, version, max_bytes=10_000)[1])) == 1


@pytest.mark.parametrize("version", [0, 3])
def test_a_batch_larger_than_the_limit_is_read_message_by_message(
    server: HeadraceServer, asker: Asker, version: int
) -> None:
    topic = new_topic(server)
    produce(asker, topic, sent(rows(500), 2), 3)
    assert [r.value for r in read(asker, topic, version, 500, max_bytes=1000)] == [r.value for r in rows(500)]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_an_old_fetch_waits_for_what_is_produced_later(server: HeadraceServer, asker: Asker, version: int) -> None:
    topic = new_topic(server)
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    wanted = m.FetchRequest.FetchTopic(topic=topic, partitions=[part])
    request = m.FetchRequest(replica_id=-1, max_wait_ms=30_000, min_bytes=1, max_bytes=1 << 20, topics=[wanted])
    asker.send(request, version)
    with Asker(server.bootstrap) as producer:
        produce(producer, topic, sent(rows(2), 2), 3)
    (found,) = asker.receive(request, version).responses[0].partitions
    assert [record.offset for record in decode_any(found.records)] == [0, 1]


def test_a_set_too_large_for_one_batch_becomes_several(server: HeadraceServer, asker: Asker) -> None:
    topic = new_topic(server, max_message_bytes=2000)
    large = [Record(n, NOW_MS + n, None, b"%d" % n * 400) for n in range(10)]
    assert produce(asker, topic, sent(large, 1), 2) == ("NONE", 0, -1)
    assert [r.value for r in read(asker, topic, 4, 10)] == [r.value for r in large]
    assert produce(asker, topic, sent(rows(1), 1), 2) == ("NONE", 10, -1)


@pytest.mark.slow
def test_the_codec_of_the_topic_wins(server: HeadraceServer, asker: Asker) -> None:
    for stored, wanted in itertools.product((0, 1, 2), ("uncompressed", "lz4")):
        topic = new_topic(server, message_format_version=FORMATS[stored], compression_type=wanted)
        for version, codec in itertools.product((1, 2, 3), (Codec.NONE, Codec.GZIP)):
            assert produce(asker, topic, sent(rows(4), MAGIC_OF_PRODUCE[version], codec), version)[0] == "NONE"
        _, data = fetch(asker, topic, 0, 4)
        codecs = {header.codec for _, header in iter_any_headers(data)}
        assert codecs == {Codec.LZ4 if wanted == "lz4" else Codec.NONE}
        assert [r.value for r in decode_any(data)] == [r.value for r in rows(4)] * 6


def test_a_client_without_a_name_that_asks_no_versions_is_served(server: HeadraceServer) -> None:
    topic = new_topic(server)
    with Wire(server.bootstrap) as wire:
        body = b"\xff\xff" + (30_000).to_bytes(4, "big") + b"\0\0\0\1" + len(topic).to_bytes(2, "big")
        records = sent(rows(1), 0)
        body += topic.encode() + b"\0\0\0\1" + bytes(4) + len(records).to_bytes(4, "big") + records
        request = b"\0\0\0\0" + b"\0\0\0\5" + b"\xff\xff" + body
        wire.socket.sendall(len(request).to_bytes(4, "big") + request)
        correlation_id, answer = wire.receive()
        assert correlation_id == 5
        assert answer.endswith(b"\0\0\0\1" + bytes(4) + b"\0\0" + bytes(8)), "nothing behind the base offset"
        assert wire.ask(INIT_PRODUCER_ID, 0, b"\xff\xff" + bytes(4))


@pytest.mark.slow
def test_version_0_commits_and_fetches_offsets_without_looking_for_a_coordinator(tmp_path: Path) -> None:
    running = HeadraceServer(tmp_path / "data", {"offsets.topic.num.partitions": "3"}).start()
    topic = new_topic(running)
    at = m.OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
    asked = m.OffsetFetchRequest(group_id="old", topics=[at])
    to = m.OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata="note"
    )
    commit = m.OffsetCommitRequest(
        group_id="old", topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[to])]
    )
    with Asker(running.bootstrap) as asker:
        for expected in ((-1, "", "UNKNOWN_TOPIC_OR_PARTITION"), (5, "note", "NONE")):
            (found,) = asker.ask(asked, 0).topics[0].partitions
            assert (found.committed_offset, found.metadata, ErrorCode(found.error_code).name) == expected
            (answer,) = asker.ask(commit, 0).topics[0].partitions
            assert answer.error_code == 0
        (found,) = asker.ask(asked, 1).topics[0].partitions
        assert (found.committed_offset, found.metadata, found.error_code) == (5, "note", 0)
    running.stop()


def test_version_0_of_metadata_knows_all_topics_by_an_empty_list(asker: Asker, server: HeadraceServer) -> None:
    topic = new_topic(server)
    answer = asker.ask(m.MetadataRequest(topics=[]), 0)
    assert topic in {each.name for each in answer.topics}
    assert asker.ask(m.MetadataRequest(topics=[]), 1).topics == []
    asked = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=f"made-by-asking-{topic}")])
    (made,) = asker.ask(asked, 0).topics
    assert (made.error_code, len(made.partitions)) == (0, 1)


def test_version_0_of_list_offsets_knows_segments(asker: Asker, server: HeadraceServer) -> None:
    topic = new_topic(server, segment_bytes=130)
    for _ in range(3):
        produce(asker, topic, sent(rows(3), 1), 2)

    def offsets(timestamp: int, count: int = 10) -> list[int]:
        at = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=count)
        asked = m.ListOffsetsRequest(
            replica_id=-1, topics=[m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[at])]
        )
        (found,) = asker.ask(asked, 0).topics[0].partitions
        assert found.error_code == 0
        return list(found.old_style_offsets)

    assert offsets(-1) == [9, 6, 3, 0]
    assert offsets(-1, 1) == [9]
    assert offsets(-2) == [0]
    assert offsets(NOW_MS) == [], "no segment was written to by then"


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_acks_is_served(server: HeadraceServer, asker: Asker, version: int, acks: int) -> None:
    topic = new_topic(server)
    part = m.ProduceRequest.PartitionProduceData(index=0, records=sent(rows(2), MAGIC_OF_PRODUCE[version]))
    data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
    request = m.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])
    asker.send(request, version)
    if acks:
        assert asker.receive(request, version).responses[0].partition_responses[0].error_code == 0
    assert len(read(asker, topic, version, 2)) == 2


def test_what_is_converted_is_counted(headrace_server: StartHeadrace) -> None:
    (port,) = free_ports(1)
    running = headrace_server(settings={"headrace.metrics.listen": f"127.0.0.1:{port}"})
    topic = new_topic(running)
    with Asker(running.bootstrap) as asker:
        produce(asker, topic, sent(rows(7), 1, Codec.GZIP), 2)
        produce(asker, topic, sent(rows(5), 2), 3)
        read(asker, topic, 0, 12)
        read(asker, topic, 4, 12)
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=15) as answer:
        page = answer.read().decode()
    for name, labels, value in (
        ("server_brokertopicmetrics_producemessageconversions_total", f'topic="{topic}"', "7.0"),
        ("server_brokertopicmetrics_fetchmessageconversions_total", f'topic="{topic}"', "12.0"),
        ("network_requestmetrics_messageconversionstimems_count", 'request="Produce"', "1.0"),
        ("network_requestmetrics_messageconversionstimems_count", 'request="Fetch"', "1.0"),
    ):
        assert f"kafka_{name}{{{labels}}} {value}\n" in page
