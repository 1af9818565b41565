"""`headrace load` against a real broker: killed at each of the three points, every record is in the table once."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from headrace.client.core.failures import BrokerUnreachable
from headrace.client.operations.admin import Admin
from headrace.client.producer.producer import Producer, ProducerSettings
from headrace.demo.killed_load import CrashPoint
from headrace.lake.decoding import RawDecoder
from headrace.lake.delta.delta_table import LoadTable, WrittenFile, collect_files
from headrace.lake.delta.location import Location
from headrace.lake.iceberg import IcebergFace
from headrace.lake.partitioning import partitioned
from headrace.spark.load.follow import follow
from headrace.spark.load.json_values import CORRUPT_COLUMN, TOMBSTONE_COLUMN
from headrace.spark.load.load import LoadJob, LoadResult, LoadStep, plan_ranges, run_load
from headrace.spark.load.load_command import main
from headrace.spark.load.shown import size_text, tasks_of
from tests import rotation
from tests.eventually import WITHIN_SECONDS
from tests.lake.lakes import run_once
from tests.spark.conftest import fill_readings

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def topic(broker: str, request: pytest.FixtureRequest) -> str:
    """A topic of this test's own with 30 and 10 records."""
    name = f"load-{abs(hash(request.node.name))}"
    fill_readings(broker, name, {0: 30, 1: 10})
    return name


def arguments(broker: str, topic: str, table: Path, *more: str) -> list[str]:
    return [topic, "--bootstrap", broker, "--table", str(table), "--json", *more]


def load_in_a_process(
    broker: str, topic: str, table: Path, crash: CrashPoint | None = None, *more: str
) -> subprocess.CompletedProcess[str]:
    scratch = str(table.parent)  # what a killed JVM leaves behind goes with the test
    environment = {**os.environ, "TMPDIR": scratch, "SPARK_LOCAL_DIRS": scratch}
    entry = ["headrace.demo.killed_load", crash] if crash else ["headrace.spark.load.load_command"]
    command = [sys.executable, "-m", *entry, *arguments(broker, topic, table, *more)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=500)


def times_seen(table: Path) -> Counter[tuple[int, int]]:
    """How often each (partition, offset) is in the table."""
    seen: Counter[tuple[int, int]] = Counter()
    snapshot = LoadTable.open(table)
    for file in snapshot.files if snapshot else ():
        rows = pq.ParquetFile(file).read(columns=["partition", "offset"]).to_pydict()
        seen.update(zip(rows["partition"], rows["offset"], strict=True))
    return seen


def once(rows: dict[int, int]) -> Counter[tuple[int, int]]:
    return Counter({(partition, offset): 1 for partition, count in rows.items() for offset in range(count)})


def produce(broker: str, topic: str, partition: int, values: list[bytes]) -> None:
    with Producer(broker) as producer:
        for value in values:
            producer.send(topic, value, partition=partition)


def job(broker: str, topic: str, table: Path, **more: Any) -> LoadJob:
    return LoadJob(table, {"kafka.bootstrap.servers": broker, "subscribe": topic}, **more)


@pytest.mark.parametrize(
    "crash",
    [
        pytest.param(crash, marks=rotation.unless_today(number, len(CrashPoint)))  # the demo has all of them
        for number, crash in enumerate(CrashPoint)
    ],
)
def test_a_driver_killed_at_any_point_leaves_every_record_once(
    spark: SparkSession, broker: str, topic: str, table: Path, crash: CrashPoint
) -> None:
    run_load(job(broker, topic, table))
    produce(broker, topic, 1, [b"late"] * 500)
    killed = load_in_a_process(broker, topic, table, crash)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert times_seen(table) == once({0: 30, 1: 510 if crash is CrashPoint.AFTER_COMMIT else 10})
    again = run_load(job(broker, topic, table))
    assert (again.table_version is None) == (crash is CrashPoint.AFTER_COMMIT)
    assert times_seen(table) == once({0: 30, 1: 510})


def test_a_second_run_with_nothing_new_commits_nothing(
    spark: SparkSession, broker: str, topic: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(broker, topic, table)) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 40
    version = DeltaTable(str(table)).version()
    assert main(arguments(broker, topic, table)) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["committed"], answer["table_version"]) == (False, None)
    assert DeltaTable(str(table)).version() == version


def test_a_dry_run_writes_nothing(broker: str, topic: str, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(broker, topic, table, "--dry-run")) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["offsets"] == {topic: {"0": [0, 30], "1": [0, 10]}}
    with Admin(broker) as admin:
        sizes = [
            size
            for one in admin.describe_log_dirs()
            for each, size in one.partition_bytes.items()
            if each.topic == topic
        ]
    assert told["bytes"] == sum(sizes) > 0
    assert main([each for each in arguments(broker, topic, table, "--dry-run") if each != "--json"]) == 0
    assert f"would load up to 40 records, about {size_text(told['bytes'])}" in capsys.readouterr().out
    assert not table.exists()


def test_goes_on_where_the_table_ends(spark: SparkSession, broker: str, topic: str, table: Path) -> None:
    run_load(job(broker, topic, table))
    produce(broker, topic, 0, [b"x"] * 5)
    result = run_load(job(broker, topic, table))
    assert [tuple(one) for one in result.ranges] == [(topic, 0, 30, 35)]
    assert times_seen(table) == once({0: 35, 1: 10})


def test_skipping_the_progress_check_doubles_the_rows(
    spark: SparkSession, broker: str, topic: str, table: Path
) -> None:
    """The protocol broken on purpose: ranges planned on an old snapshot, committed on the newest."""
    from headrace.spark.load import load

    chosen = job(broker, topic, table)
    stale = plan_ranges(chosen, LoadTable.open(table))
    run_load(chosen)
    newest = LoadTable.open(table)
    assert newest is not None
    directory = table / "load-again"
    load.read_ranges(spark, chosen, stale).write.parquet(str(directory))
    newest.commit(chosen.name, stale, collect_files(table, directory))
    assert set(times_seen(table).values()) == {2}


def test_a_driver_that_lost_the_race_starts_over(
    spark: SparkSession, broker: str, topic: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver commits while ours has its files written: ours is refused, plans again and finds nothing new."""
    from headrace.spark.load import load

    chosen = job(broker, topic, table)
    others: list[subprocess.CompletedProcess[str]] = []

    def collect_while_another_driver_loads(table: Path, directory: Path, column: str | None) -> list[WrittenFile]:
        files = collect_files(table, directory, column)
        if not others:
            others.append(load_in_a_process(broker, topic, table))
        return files

    monkeypatch.setattr(load, "collect_files", collect_while_another_driver_loads)
    assert run_load(chosen).table_version is None
    assert [other.returncode for other in others] == [0]
    assert times_seen(table) == once({0: 30, 1: 10})


def test_json_values_become_typed_columns_and_others_are_kept(
    spark: SparkSession, broker: str, topic: str, table: Path
) -> None:
    schema = "origin STRING, delay DOUBLE"
    run_load(job(broker, topic, table, value_json=schema))
    produce(broker, topic, 0, [b'{"origin":"EWR","delay":2.5}', b'{"origin":null}', b"not JSON", b'{"origin":"\xff"}'])
    run_load(job(broker, topic, table, value_json=schema))
    frame = spark.read.parquet(*DeltaTable(str(table)).file_uris())
    names = ["origin", "delay", CORRUPT_COLUMN, TOMBSTONE_COLUMN]
    assert frame.columns == ["topic", "partition", "offset", "timestamp", "key", *names]
    new = frame.where("partition = 0 AND offset >= 30").orderBy("offset").select(*names)
    assert [tuple(row) for row in new.collect()] == [
        ("EWR", 2.5, None, False),
        (None, None, None, False),
        (None, None, b"not JSON", False),
        (None, None, b'{"origin":"\xff"}', False),
    ]
    assert frame.where(TOMBSTONE_COLUMN).count() == 8, "every fifth value is null"


def test_a_table_with_bytes_that_are_no_text_can_be_read_and_compacted(
    spark: SparkSession, broker: str, topic: str, table: Path
) -> None:
    for value in (b"\xff", b'{"origin":"\xc3\x28"}', b'{"origin":"EWR"}\xed\xa0\x80'):
        produce(broker, topic, 0, [value])
        run_load(job(broker, topic, table, value_json="origin STRING"))
    DeltaTable(str(table)).optimize.compact()
    found = QueryBuilder().register("loaded", DeltaTable(str(table)))
    rows = pa.table(found.execute(f'SELECT {CORRUPT_COLUMN} AS raw FROM loaded WHERE "offset" >= 30 ORDER BY "offset"'))
    assert rows["raw"].to_pylist() == [b"\xff", b'{"origin":"\xc3\x28"}', b'{"origin":"EWR"}\xed\xa0\x80']


def test_headers_are_loaded_on_demand(spark: SparkSession, broker: str, topic: str, table: Path) -> None:
    assert main(arguments(broker, topic, table, "--headers", "--value-json", "a INT")) == 0
    frame = spark.read.parquet(*DeltaTable(str(table)).file_uris()).where("partition = 0 AND offset < 2")
    rows = {row.offset: row.headers for row in frame.collect()}
    assert rows[0] is None
    assert [tuple(header) for header in rows[1]] == [("n", b"1"), ("odd", None)]


def test_aborted_and_open_transactions_are_not_loaded(
    spark: SparkSession, broker: str, topic: str, table: Path
) -> None:
    with Producer(broker, ProducerSettings(transactional_id=f"{topic}-one")) as ended:
        ended.init_transactions()
        for is_commit, count in ((False, 5), (True, 3)):
            ended.begin()
            for _ in range(count):
                ended.send(topic, b"in a transaction", partition=1)
            ended.flush()
            ended.commit() if is_commit else ended.abort()
    with Producer(broker, ProducerSettings(transactional_id=f"{topic}-two")) as still_open:
        still_open.init_transactions()
        still_open.begin()
        still_open.send(topic, b"open", partition=1).result()
        run_load(job(broker, topic, table))
        loaded = once({0: 30, 1: 10}) + Counter({(1, offset): 1 for offset in (16, 17, 18)})
        assert times_seen(table) == loaded
        still_open.commit()
    run_load(job(broker, topic, table))
    assert times_seen(table) == loaded + Counter({(1, 20): 1})


def test_what_a_restore_undid_is_loaded_again(spark: SparkSession, broker: str, topic: str, table: Path) -> None:
    run_load(job(broker, topic, table))
    produce(broker, topic, 0, [b"x"] * 5)
    run_load(job(broker, topic, table))
    DeltaTable(str(table)).restore(1)
    assert times_seen(table) == once({0: 30, 1: 10})
    run_load(job(broker, topic, table))
    assert times_seen(table) == once({0: 35, 1: 10})


def test_another_jobs_commit_in_between_costs_no_second_load(
    spark: SparkSession, broker: str, topic: str, table: Path
) -> None:
    run_load(job(broker, topic, table))
    produce(broker, topic, 0, [b"x"] * 5)
    steps: list[LoadStep] = []

    def on_step(step: LoadStep, _directory: Path, _spark: SparkSession) -> None:
        steps.append(step)
        if step is LoadStep.WRITTEN:
            run_load(job(broker, topic, table, name="another"))

    assert run_load(job(broker, topic, table), on_step).rows == 5
    assert steps == [LoadStep.PLANNED, LoadStep.WRITTEN, LoadStep.COMMITTED]
    assert times_seen(table) == once({0: 35, 1: 10}) + once({0: 35, 1: 10})


def test_a_table_that_a_load_does_not_understand_is_one_clear_line(
    spark: SparkSession, broker: str, topic: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(broker, topic, table)) == 0
    DeltaTable(str(table)).alter.add_constraint({"few": '"offset" < 40'})
    produce(broker, topic, 0, [b"x"] * 50)
    capsys.readouterr()
    assert main(arguments(broker, topic, table)) == 1
    error = capsys.readouterr().err
    assert "CHECK constraint few" in error and error.count("\n") == 1
    assert DeltaTable(str(table)).version() == 2


def test_another_shape_than_the_tables_is_refused(
    spark: SparkSession, broker: str, topic: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(broker, topic, table)) == 0
    produce(broker, topic, 0, [b"{}"])
    assert main(arguments(broker, topic, table, "--value-json", "a INT")) == 1
    assert "other columns than this load" in capsys.readouterr().err
    assert times_seen(table) == once({0: 30, 1: 10})


@pytest.mark.parametrize("schema", ["INT", "", "nonsense here!", "offset INT", "Key STRING", "tombstone INT"])
def test_a_schema_that_cannot_be_used_is_refused(
    spark: SparkSession, broker: str, topic: str, table: Path, capsys: pytest.CaptureFixture[str], schema: str
) -> None:
    assert main(arguments(broker, topic, table, "--value-json", schema)) == 2
    error = capsys.readouterr().err
    assert f"value-json = {schema!r}" in error and error.count("\n") == 1
    assert not table.exists()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--pattern", "x.*"], "give either TOPIC arguments or --pattern"),
        (["--job", "a/b"], "letters, digits"),
        (["--table", "s3://bucket/table"], "only a path on a local"),
        (["--table", "100%"], "without a percent sign"),
        (["--kafka", "oops"], "write KEY=VALUE"),
        (["--kafka", "security.protocol=TLS"], "PLAINTEXT, SSL, SASL_PLAINTEXT"),
        (["--from-time", "yesterday"], "milliseconds since 1970"),
        (["--follow", "--dry-run"], "give one of them"),
        (["--follow", "--pause", "-1"], "seconds, from 0"),
        (["--follow", "--compact-at", "-1"], "or 0 for never"),
    ],
)
def test_a_wrong_command_line_is_one_clear_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], says: str
) -> None:
    code: str | int | None
    try:
        code = main(arguments("127.0.0.1:1", "t", tmp_path / "table", *more))
    except SystemExit as left:
        code = left.code
    assert code == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


def test_a_broker_that_is_not_there_is_one_clear_line_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments("127.0.0.1:1", "t", tmp_path / "table")) == 1
    error = capsys.readouterr().err
    assert "127.0.0.1:1" in error and error.count("\n") == 1


def test_a_directory_that_cannot_be_made_is_one_clear_line_and_exit_code_1(
    spark: SparkSession, broker: str, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert main(arguments(broker, topic, tmp_path / "file" / "letters", "--value-json", "a INT")) == 1
    error = capsys.readouterr().err
    assert str(tmp_path / "file") in error and error.count("\n") == 1


def test_a_replay_from_a_point_in_time_fills_a_second_table(
    spark: SparkSession, broker: str, topic: str, table: Path
) -> None:
    """Record n of each partition has the time 1000 * n ms."""
    run_load(job(broker, topic, table))
    replayed = table.with_name("replayed")
    again = ["--job", "again", "--from-time", "1970-01-01T00:00:05Z"]
    assert main(arguments(broker, topic, replayed, *again)) == 0
    assert times_seen(replayed) == once({0: 30, 1: 10}) - once({0: 5, 1: 5})
    produce(broker, topic, 1, [b"late"])
    assert main(arguments(broker, topic, replayed, *again)) == 0
    assert times_seen(replayed) == once({0: 30, 1: 11}) - once({0: 5, 1: 5})
    assert times_seen(table) == once({0: 30, 1: 10})


def test_a_job_of_another_name_replays_into_the_same_table_too(
    spark: SparkSession, broker: str, topic: str, table: Path
) -> None:
    run_load(job(broker, topic, table))
    run_load(job(broker, topic, table, name="again"))
    assert set(times_seen(table).values()) == {2}


def test_follows_a_topic_load_by_load_until_it_is_told_to_end(
    spark: SparkSession, broker: str, topic: str, table: Path
) -> None:
    end = threading.Event()
    loads: list[int] = []
    troubles: list[Exception] = []

    def on_load(result: LoadResult) -> None:
        loads.append(result.rows)
        if len(loads) < 3:
            produce(broker, topic, 1, [b"more"] * len(loads))
        else:
            end.set()

    follow(job(broker, topic, table), 0.05, end, on_load, troubles.append)
    assert (loads, troubles) == ([40, 1, 2], [])
    assert times_seen(table) == once({0: 30, 1: 13})


def test_following_compacts_small_files(spark: SparkSession, broker: str, topic: str, table: Path) -> None:
    end = threading.Event()
    files: list[int] = []

    def on_load(_: LoadResult) -> None:
        files.append(len(DeltaTable(str(table)).file_uris()))
        if len(files) < 5:
            produce(broker, topic, len(files) % 2, [b"more"])
        else:
            end.set()

    follow(job(broker, topic, table), 0.01, end, on_load, lambda trouble: None, compact_at=3)
    assert files == [1, 2, 3, 2, 3], "one file for each load of two partitions, and one file of three"
    assert times_seen(table) == once({0: 32, 1: 12})


def test_columns_are_added_on_demand(
    spark: SparkSession, broker: str, topic: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(broker, topic, table, "--value-json", "a INT")) == 0
    produce(broker, topic, 0, [b'{"a":1,"b":"x"}'])
    wider = arguments(broker, topic, table, "--value-json", "b STRING, a INT")
    assert main(wider) == 1
    assert "--add-columns adds" in capsys.readouterr().err
    assert main([*wider, "--add-columns"]) == 0
    rows = pa.table(QueryBuilder().register("t", DeltaTable(str(table))).execute("SELECT a, b FROM t WHERE a = 1"))
    assert rows.to_pylist() == [{"a": 1, "b": "x"}]
    assert times_seen(table) == once({0: 31, 1: 10})
    assert main([*arguments(broker, topic, table, "--value-json", "a DOUBLE"), "--add-columns"]) == 0, "nothing is new"
    produce(broker, topic, 0, [b'{"a":1}'])
    assert main([*arguments(broker, topic, table, "--value-json", "a DOUBLE"), "--add-columns"]) == 1


def test_a_table_may_be_given_as_a_uri(
    spark: SparkSession, broker: str, topic: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(broker, topic, table, "--table", table.as_uri())) == 0
    assert times_seen(table) == once({0: 30, 1: 10})


def test_following_goes_on_after_trouble_but_not_when_it_never_began(
    spark: SparkSession, broker: str, topic: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.spark.load import follow as module

    end = threading.Event()
    troubles: list[Exception] = []

    def run_or_fail(chosen: LoadJob) -> LoadResult:
        if table.exists() and not troubles:
            raise BrokerUnreachable("gone for a moment")
        return run_load(chosen)

    def on_load(_: LoadResult) -> None:
        if troubles:
            end.set()
        else:
            produce(broker, topic, 0, [b"x"])

    monkeypatch.setattr(module, "run_load", run_or_fail)
    follow(job(broker, topic, table), 0.01, end, on_load, troubles.append)
    assert [str(trouble) for trouble in troubles] == [str(BrokerUnreachable("gone for a moment"))]
    assert times_seen(table) == once({0: 31, 1: 10})
    monkeypatch.undo()
    with pytest.raises(BrokerUnreachable):
        follow(job("127.0.0.1:1", topic, table), 0.01, threading.Event(), on_load, troubles.append)


def test_sigterm_ends_following_between_two_loads(broker: str, topic: str, table: Path) -> None:
    command = [sys.executable, "-m", "headrace.spark.load.load_command", *arguments(broker, topic, table, "--follow")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["rows"] == 40
        produce(broker, topic, 0, [b"x"] * 5)
        assert json.loads(following.stdout.readline())["rows"] == 5
        following.terminate()
        assert following.wait(WITHIN_SECONDS) == 0
    assert times_seen(table) == once({0: 35, 1: 10})


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(how, marks=rotation.unless_today(number, 3))
        for number, how in enumerate(("hour", "bucket:3", "month"))
    ],
)
def test_a_table_is_divided_as_by_the_lake_and_either_continues_it(
    spark: SparkSession, broker: str, topic: str, table: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def write_lake(path: Path) -> None:
        run_once(broker, name, path, partition_by=how, make_decoder=lambda _: partitioned(RawDecoder(), how))

    name, times = f"{topic}-{how[:4]}", [0, 1764288000000, 1764291599999, 1764374399999, 1764374400000]
    with Producer(broker) as producer:
        for n, at in enumerate(times):
            producer.send(name, b"%d" % n, None if n == 2 else b"k%d" % n, 0, timestamp_ms=at)
    by_spark, by_lake = table / "spark", table / "lake"
    assert main(arguments(broker, name, by_spark, "--partition-by", how)) == 0
    write_lake(by_lake)
    assert partitions_in(by_spark) == partitions_in(by_lake)
    with Producer(broker) as producer:
        producer.send(name, b"late", b"k1", 0, timestamp_ms=times[-1])
    write_lake(by_spark)
    assert main(arguments(broker, name, by_lake)) == 0
    assert partitions_in(by_spark) == partitions_in(by_lake)
    assert times_seen(by_spark) == times_seen(by_lake) == once({0: 6})
    capsys.readouterr()
    assert main(arguments(broker, name, by_spark, "--partition-by", "day")) == 1
    assert f"is not divided by day, but by {how}" in capsys.readouterr().err


def partitions_in(table: Path) -> dict[str | None, int]:
    """The rows of each partition, as Delta's log has them; each file must agree."""
    found: Counter[str | None] = Counter()
    snapshot = LoadTable.open(table)
    assert snapshot is not None
    for one in snapshot.live_files:
        ((column, value),) = one.values.items()
        rows = pq.ParquetFile(table / one.path).read(columns=[column]).column(0)
        assert {None if each is None else str(each) for each in rows.to_pylist()} == {value}
        found[value] += len(rows)
    return dict(found)


def test_rows_that_do_not_fit_go_to_a_table_of_dead_letters_once(
    spark: SparkSession, broker: str, topic: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letters = table.parent / "letters"
    more = ("--value-json", "n LONG, s STRING", "--dead-letters", str(letters), "--partition-by", "field:s")
    name = f"{topic}-dead"
    produce(broker, name, 0, [b'{"n": 1, "s": "a"}', b"no JSON", b'{"n": "x", "s": "b"}', b'{"n": 2, "s": "b"}'])
    killed = load_in_a_process(broker, name, table, CrashPoint.BEFORE_COMMIT, *more)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (times_seen(table), times_seen(letters)) == (Counter(), Counter({(0, 1): 1, (0, 2): 1}))
    produce(broker, name, 0, [b"again no JSON"])
    assert main(arguments(broker, name, table, *more)) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["dead_letters"], told["rescued"]) == (2, 1, 0)
    assert partitions_in(table) == {"a": 1, "b": 1}
    assert times_seen(letters) == Counter({(0, offset): 1 for offset in (1, 2, 4)})
    rows = spark.read.parquet(*map(str, LoadTable.open(letters).files)).orderBy("offset").collect()  # type: ignore[union-attr]
    assert [(row["n"], row["s"], bytes(row[CORRUPT_COLUMN])) for row in rows] == [
        (None, None, b"no JSON"),
        (None, "b", b'{"n": "x", "s": "b"}'),
        (None, None, b"again no JSON"),
    ]


def test_small_files_are_made_one_on_demand_and_what_was_rescued_is_counted(
    spark: SparkSession, broker: str, topic: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = 0
    for turn in range(2):
        produce(broker, topic, 0, [b'{"n": 1}', b"no JSON"])
        main(arguments(broker, topic, table, "--value-json", "n LONG"))
        told = json.loads(capsys.readouterr().out)
        assert told["rescued"] == (33 if turn == 0 else 1), "null is no loss"
        size += told["bytes"]
        assert size == sum(path.stat().st_size for path in table.rglob("*.parquet") if "_delta_log" not in path.parts)
    assert main(arguments(broker, topic, table, "--value-json", "n LONG", "--optimize")) == 0
    snapshot = LoadTable.open(table)
    assert snapshot is not None
    assert (snapshot.file_count, snapshot.rows) == (1, 44)
    assert main(arguments(broker, topic, table, "--value-json", "n LONG", "--format", "iceberg")) == 0
    metadata = IcebergFace(Location.of(table)).metadata
    assert metadata is not None
    assert StaticTable.from_metadata(metadata).scan(selected_fields=("offset",)).to_arrow().num_rows == 44


def test_the_progress_is_that_of_running_stages(spark: SparkSession) -> None:
    seen: list[tuple[int, int]] = []
    end = threading.Event()

    def watch() -> None:
        while not end.wait(0.02):
            seen.append(tasks_of(spark.sparkContext))

    thread = threading.Thread(target=watch)
    thread.start()
    spark.sparkContext.parallelize(range(4), 4).foreach(lambda _: time.sleep(0.2))
    end.set()
    thread.join()
    assert max(total for _, total in seen) == 4
    assert all(0 <= done <= total for done, total in seen)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (123_456_789, "123 MB"), (4.2e12, "4.2 TB")]
)
def test_sizes_are_shown_for_people(size: int, text: str) -> None:
    assert size_text(size) == text
