"""`headrace log import` as people type it: files of every Kafka into topics of a running broker."""

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.app import run
from headrace.client.producer.producer import Producer, ProducerSettings
from headrace.log.files import LocalFiles
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from tests.cli.conftest import Run, run_headrace
from tests.client.brokers import topic_name
from tests.harness import HeadraceServer
from tests.log.log_writer_07 import LogWriter07
from tests.peers import kafka
from tests.records.conversion_samples import NOW_MS, Piece, random_pieces

FILES = LocalFiles()

Read = list[dict[str, Any]]


@pytest.fixture
def headrace(
    cli_server: HeadraceServer, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Run:
    """`headrace(*arguments)` in this process, which is quicker."""
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", cli_server.bootstrap)

    def run_here(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        capsysbinary.readouterr()
        code = run(arguments)
        out, error = capsysbinary.readouterr()
        return subprocess.CompletedProcess(arguments, code, out, error)

    return run_here


def result(headrace: Run, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    done = headrace("log", "import", *map(str, arguments), "--json")
    assert done.returncode == code, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def refused(headrace: Run, *arguments: str | Path, code: int = 2) -> str:
    done = headrace("log", "import", *map(str, arguments))
    assert done.returncode == code, done.stdout.decode() + done.stderr.decode()
    return done.stderr.decode()


def read(headrace: Run, topic: str) -> dict[int, Read]:
    """Each partition's records, in order."""
    done = headrace("consume", topic, "--exit", "--json")
    assert done.returncode == 0, done.stderr.decode()
    partitions: dict[int, Read] = {}
    for line in done.stdout.splitlines():
        record = json.loads(line)
        partitions.setdefault(record["partition"], []).append(record)
    return partitions


def values(headrace: Run, topic: str) -> dict[int, list[str]]:
    return {partition: [record["value"] for record in rows] for partition, rows in read(headrace, topic).items()}


def texts(count: int, word: str = "row") -> list[str]:
    return [f"{word} {i}" for i in range(count)]


def records(count: int, first: int = 0) -> tuple[Record, ...]:
    return tuple(
        Record(first + i, NOW_MS + i, None if i % 3 == 0 else b"k%d" % i, b"row %d" % (first + i)) for i in range(count)
    )


def segment(directory: Path, *pieces: Piece) -> Path:
    directory.mkdir(parents=True)
    (directory / f"{pieces[0].records[0].offset:020d}.log").write_bytes(b"".join(piece.data for piece in pieces))
    return directory


def test_a_directory_of_kafka_0_7(headrace: Run, tmp_path: Path) -> None:
    topic = topic_name("clicks")
    for partition in range(3):
        writer = LogWriter07(FILES, tmp_path / f"{topic}-{partition}", segment_bytes=500)
        for start in range(0, 100, 10):
            rows = [text.encode() for text in texts(100, f"p{partition}")[start : start + 10]]
            writer.append(rows, magic=0 if start == 0 else 1, codec=Codec.GZIP if start % 20 and start else Codec.NONE)
    found = result(headrace, tmp_path, "--all")
    assert found["topics_made"] == [topic] and found["damages"] == []
    assert [(each["to"], each["records"], each["formats"]) for each in found["partitions"]] == [
        (f"{topic}-{partition}", 100, ["0.7"]) for partition in range(3)
    ]
    came = read(headrace, topic)
    assert {p: [row["value"] for row in rows] for p, rows in came.items()} == {p: texts(100, f"p{p}") for p in range(3)}
    assert {(row["key"], row["timestamp_ms"]) for rows in came.values() for row in rows} == {(None, -1)}


def test_one_partition_under_another_name_keeps_its_number(headrace: Run, tmp_path: Path) -> None:
    writer = LogWriter07(FILES, tmp_path / "my_topic_1")
    writer.append([b"value"])
    topic = topic_name("renamed")
    assert result(headrace, tmp_path / "my_topic_1", "--topic", topic)["partitions"][0]["to"] == f"{topic}-1"
    assert values(headrace, topic) == {1: ["value"]}


def test_every_later_format_with_keys_times_and_headers(headrace: Run, tmp_path: Path) -> None:
    rng = random.Random(11)
    parts = [random_pieces(rng, 40), random_pieces(rng, 40, magics=(2,))]
    topic = topic_name("mixed")
    for number, pieces in enumerate(parts):
        segment(tmp_path / f"{topic}-{number}", *pieces)
    done = headrace("log", "import", str(tmp_path), "--topic", topic)
    assert done.returncode == 0, done.stderr.decode()
    assert "Offsets are new" in done.stdout.decode()
    came = read(headrace, topic)
    for number, pieces in enumerate(parts):
        expected = [row for piece in pieces for row in piece.seen_as(piece.magic)]
        rows = came[number]
        assert [row["offset"] for row in rows] == list(range(len(expected)))
        assert [row["timestamp_ms"] for row in rows] == [row.timestamp_ms for row in expected]
        assert [row["headers"] for row in rows] == [
            [[name, None if value is None else value.decode()] for name, value in row.headers] for row in expected
        ]
        assert [row["key"] is None for row in rows] == [row.key is None for row in expected]
        assert [row["value"] for row in rows if row["value"]] and len(rows) == len(expected)


def test_what_an_import_wrote_before_is_not_written_twice(headrace: Run, tmp_path: Path) -> None:
    topic = topic_name("resumed")
    one, two = Piece(1, Codec.GZIP, records(30)), Piece(2, Codec.NONE, records(50, 30))
    result(headrace, segment(tmp_path / "half" / f"{topic}-0", one))
    whole = segment(tmp_path / "whole" / f"{topic}-0", one, two)
    assert "is not empty" in refused(headrace, whole)
    found = result(headrace, whole, "--resume")["partitions"][0]
    assert (found["resumed_at"], found["records"], found["first_offset"]) == (30, 50, 30)
    again = result(headrace, whole, "--resume")["partitions"][0]
    assert (again["resumed_at"], again["records"]) == (80, 0)
    assert values(headrace, topic) == {0: texts(80)}


def test_resuming_inside_a_batch(headrace: Run, tmp_path: Path) -> None:
    topic = topic_name("inside")
    headers = (("h", b"x"), ("i", None))
    rows = tuple(row._replace(headers=headers[: row.offset % 3]) for row in records(40))
    result(headrace, segment(tmp_path / "a" / f"{topic}-0", Piece(2, Codec.NONE, rows[:17])))
    result(headrace, segment(tmp_path / "b" / f"{topic}-0", Piece(2, Codec.LZ4, rows)), "--resume")
    came = read(headrace, topic)[0]
    assert [row["value"] for row in came] == texts(40)
    assert [len(row["headers"]) for row in came] == [i % 3 for i in range(40)]
    assert [row["key"] for row in came] == [None if i % 3 == 0 else f"k{i}" for i in range(40)]


def test_something_else_in_the_partition_is_not_gone_on_with(
    headrace: Run, tmp_path: Path, cli_server: HeadraceServer
) -> None:
    topic = topic_name("other")
    headrace("topic", "create", topic, "-p", "1")
    with Producer(cli_server.bootstrap) as producer:
        producer.send(topic, b"mine")
    source = segment(tmp_path / f"{topic}-0", Piece(2, Codec.NONE, records(5)))
    assert "differs from the source" in refused(headrace, source, "--resume", code=1)
    result(headrace, source, "--append")
    assert values(headrace, topic) == {0: ["mine", *texts(5)]}
    assert "the source only 5" in refused(headrace, source, "--resume", code=1)


def test_a_dry_run_reads_everything_and_writes_nothing(headrace: Run, tmp_path: Path) -> None:
    topic = topic_name("dry")
    source = segment(tmp_path / f"{topic}-2", Piece(0, Codec.SNAPPY, records(12)))
    found = result(headrace, source, "--dry-run")
    assert found["partitions"][0]["records"] == 12 and found["topics_made"] == [topic]
    assert topic not in headrace("topic", "list").stdout.decode()


@pytest.mark.slow
def test_as_a_process_it_prints_a_table(cli_server: HeadraceServer, tmp_path: Path) -> None:
    topic = topic_name("table")
    source = segment(tmp_path / f"{topic}-0", Piece(1, Codec.NONE, records(12)))
    command = ("log", "import", str(source), "--bootstrap-server", cli_server.bootstrap)
    assert "would import 12 records" in run_headrace(*command, "--dry-run").stdout.decode()
    done = run_headrace(*command)
    assert (
        done.returncode == 0 and f"{topic}-0" in done.stdout.decode() and "imported 12 records" in done.stdout.decode()
    )


def test_damage_is_told_and_what_is_good_is_imported(headrace: Run, tmp_path: Path) -> None:
    topic = topic_name("damaged")
    pieces = [Piece(2, Codec.NONE, records(5, first)) for first in (0, 5, 10)]
    directory = segment(tmp_path / f"{topic}-0", *pieces)
    file = directory / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[len(pieces[0].data) + 80] ^= 1
    file.write_bytes(data)
    found = result(headrace, directory, code=1)
    assert len(found["damages"]) == 1 and found["damages"][0]["from"] == len(pieces[0].data)
    assert values(headrace, topic) == {0: [*texts(5), *texts(15)[10:]]}


def test_a_new_topic_keeps_old_records_and_an_old_one_says_that_it_will_not(headrace: Run, tmp_path: Path) -> None:
    topic, old = topic_name("kept"), topic_name("short")
    rows = tuple(row._replace(timestamp_ms=1_300_000_000_000) for row in records(5))
    source = segment(tmp_path / "x-0", Piece(2, Codec.NONE, rows))
    assert result(headrace, source, "--topic", topic)["warnings"] == []
    assert "-1" in headrace("config", "get", "topic", topic, "retention.ms").stdout.decode()
    headrace("topic", "create", old, "-p", "1", "-c", "retention.ms=1000")
    assert "will be deleted" in result(headrace, source, "--topic", old)["warnings"][0]


def test_new_times_are_told(headrace: Run, tmp_path: Path) -> None:
    topic = topic_name("stamped")
    headrace("topic", "create", topic, "-p", "1", "-c", "message.timestamp.type=LogAppendTime")
    source = segment(tmp_path / "x-0", Piece(2, Codec.NONE, records(2)))
    assert "timestamps are new" in result(headrace, source, "--topic", topic)["warnings"][0]


def test_a_record_too_large_for_the_topic_stops_where_it_can_be_gone_on_from(headrace: Run, tmp_path: Path) -> None:
    topic = topic_name("too-large")
    large = Record(5, NOW_MS, b"k", b"x" * 1_200_000)
    pieces = [Piece(2, Codec.NONE, rows) for rows in (records(5), (large,), records(5, 6))]
    source = segment(tmp_path / f"{topic}-0", *pieces)
    said = refused(headrace, source, code=1)
    assert "offset 5" in said and "max.message.bytes=1200" in said and "--resume" in said
    headrace("config", "set", "topic", topic, "max.message.bytes=2000000")
    result(headrace, source, "--resume")
    came = values(headrace, topic)[0]
    assert [len(value) for value in came] == [5] * 5 + [1_200_000] + [5] * 4 + [6]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--all", "--topic", "x"], "--all"),
        (["--resume", "--append"], "exclude each other"),
        (["--from", "nothing"], "the topics there are a, b"),
        ([], "--all, or --from a, b"),
        (["--from", "a", "--partition", "5"], "no partition 5"),
        (["--compression", "rar", "--all"], "rar"),
    ],
)
def test_what_makes_no_sense_is_refused(headrace: Run, tmp_path: Path, arguments: list[str], said: str) -> None:
    for name in ("a-0", "b-0"):
        segment(tmp_path / name, Piece(2, Codec.NONE, records(1)))
    assert said in refused(headrace, tmp_path, *arguments)


def test_a_directory_that_holds_no_log_is_refused(headrace: Run, tmp_path: Path) -> None:
    assert "no partition (a directory such as topic-0" in refused(headrace, tmp_path, code=1)
    assert "No such file" in refused(headrace, tmp_path / "nothing", code=1)


def test_a_topic_with_too_few_partitions_is_not_written_to(headrace: Run, tmp_path: Path) -> None:
    topic = topic_name("few")
    headrace("topic", "create", topic, "-p", "1")
    source = segment(tmp_path / f"{topic}-3", Piece(2, Codec.NONE, records(1)))
    assert f"headrace topic alter {topic} -p 4" in refused(headrace, source)


@pytest.mark.slow
def test_megabytes_arrive_whole_and_in_order(headrace: Run, tmp_path: Path) -> None:
    topic = topic_name("large")
    filler = random.Random(1).randbytes(500).hex().encode()
    directory = tmp_path / f"{topic}-0"
    directory.mkdir()
    with (directory / f"{0:020d}.log").open("wb") as file:
        for start in range(0, 20_000, 100):
            rows = [Record(start + i, NOW_MS, None, b"%d %s" % (start + i, filler)) for i in range(100)]
            file.write(encode_batch(rows, base_offset=start))
    found = result(headrace, directory, "--compression", "lz4")
    assert found["partitions"][0]["records"] == 20_000
    done = headrace("consume", topic, "--exit")
    assert [int(line.partition(b" ")[0]) for line in done.stdout.splitlines()] == list(range(20_000))


@pytest.mark.slow
def test_a_data_directory_of_ours(headrace: Run, tmp_path: Path) -> None:
    names = [topic_name("ours"), topic_name("ours")]
    other = HeadraceServer(tmp_path / "data", {"group.initial.rebalance.delay.ms": "0"})
    other.start()
    try:
        for name in names:
            command = ("topic", "create", name, "-p", "2", "-b", other.bootstrap)
            assert headrace(*command).returncode == 0
            with Producer(other.bootstrap, ProducerSettings(compression="zstd")) as producer:
                for i in range(100):
                    producer.send(name, b"row %d" % i, None, i % 2, NOW_MS + i, [("h", b"x")])
    finally:
        other.stop()
    found = result(headrace, tmp_path / "data", "--all")
    assert found["topics_made"] == sorted(names) and found["damages"] == []
    for name in names:
        assert values(headrace, name) == {p: [f"row {i}" for i in range(p, 100, 2)] for p in (0, 1)}


@pytest.fixture(scope="module")
def kafka_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory of Apache Kafka, stopped: keys, headers, all codecs, a committed and an aborted transaction."""
    from confluent_kafka import Producer as Transactional

    home = tmp_path_factory.mktemp("apache-kafka")
    with kafka.run_kafka(home) as bootstrap:
        for codec in Codec:
            with Producer(bootstrap, ProducerSettings(compression=codec.name.lower())) as producer:
                for i in range(100):
                    producer.send(
                        "from-kafka", b"%s %d" % (codec.name.encode(), i), b"key %d" % i, 0, NOW_MS + i, [("h", b"x")]
                    )
        sender = Transactional({"bootstrap.servers": bootstrap, "transactional.id": "import"})
        sender.init_transactions()
        for value, ends in (("kept", sender.commit_transaction), ("dropped", sender.abort_transaction)):
            sender.begin_transaction()
            sender.produce("from-kafka", value=value, key="t", partition=0)
            sender.flush()
            ends()
    yield home / "log"
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.skipif(kafka.missing_tools() is not None, reason=str(kafka.missing_tools()))
def test_a_directory_that_apache_kafka_wrote(headrace: Run, kafka_directory: Path) -> None:
    found = result(headrace, kafka_directory, "--all")
    assert found["topics_made"] == ["from-kafka"] and found["damages"] == []
    assert found["partitions"][0]["left_out"] == 1
    rows = read(headrace, "from-kafka")[0]
    written = [f"{codec.name} {i}" for codec in Codec for i in range(100)]
    assert [row["value"] for row in rows] == [*written, "kept"]
    assert [(row["key"], row["timestamp_ms"], row["headers"]) for row in rows[:-1]] == [
        (f"key {i}", NOW_MS + i, [["h", "x"]]) for _ in Codec for i in range(100)
    ]


def test_an_import_that_was_stopped_goes_on(headrace: Run, tmp_path: Path, cli_server: HeadraceServer) -> None:
    """What a broken-off import leaves is a prefix, whatever it was doing: written here by a producer that stops."""
    topic = topic_name("stopped")
    rows = records(3000)
    headrace("topic", "create", topic, "-p", "1")
    with Producer(cli_server.bootstrap) as producer:
        for row in rows[:1234]:
            producer.send(topic, row.value, row.key, 0, row.timestamp_ms)
    found = result(headrace, segment(tmp_path / f"{topic}-0", Piece(2, Codec.NONE, rows)), "--resume")
    assert (found["partitions"][0]["resumed_at"], found["partitions"][0]["records"]) == (1234, 1766)
    assert values(headrace, topic) == {0: texts(3000)}
