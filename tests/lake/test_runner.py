"""Runners that write the table of a real broker's topic."""

import json
import random
import shutil
import threading
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import confluent_kafka
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headrace.client.consumer.arrow import HEADER_FIELDS, TYPES
from headrace.client.operations.admin import Admin
from headrace.client.producer.producer import Producer
from headrace.lake.compaction import compact
from headrace.lake.core.plan import DataLoss, LogReplacedError, OvertakenError, RoundLimits
from headrace.lake.core.roll import Sizes
from headrace.lake.core.writer import Action, Commit, Write
from headrace.lake.decoding import readable
from headrace.lake.delta.location import Location
from headrace.types import TopicPartition
from tests.eventually import eventually
from tests.harness import HeadraceServer
from tests.lake.lakes import following, offsets_of, opened, produce, rows_of, run_once, runner_of, value_of
from tests.topic_reader import TopicReader


def once(*counts: int) -> Counter[tuple[object, object]]:
    """The offsets of partitions with so many records, each once."""
    return Counter((partition, offset) for partition, count in enumerate(counts) for offset in range(count))


def test_records_become_rows_with_the_columns_of_the_load_job(broker: str, topic: str, table: Path) -> None:
    produce(broker, topic, 30)
    [only] = run_once(broker, topic, table)
    assert (only.rows, only.files, only.lost) == (30, 1, 0)
    rows = rows_of(table)
    assert [(row["partition"], row["offset"]) for row in rows] == sorted(once(15, 15))
    third = rows[2]  # record 4
    assert third == {
        "key": b"k4",
        "value": b"value-4",
        "topic": topic,
        "partition": 0,
        "offset": 2,
        "timestamp": datetime(1970, 1, 1, 0, 0, 4, tzinfo=UTC),
        "timestampType": 0,
    }
    assert [row["value"] for row in rows if row["partition"] == 1] == [value_of(n) for n in range(1, 30, 2)]


def test_a_second_run_adds_only_what_is_new_and_a_third_nothing(broker: str, topic: str, table: Path) -> None:
    produce(broker, topic, 10)
    run_once(broker, topic, table)
    produce(broker, topic, 6, first=10)
    [only] = run_once(broker, topic, table)
    assert only.rows == 6
    assert run_once(broker, topic, table) == []
    assert offsets_of(table) == once(8, 8)


def test_rounds_files_and_groups_are_bounded_and_nothing_falls_between_them(
    broker: str, topic: str, table: Path
) -> None:
    with Producer(broker) as producer:
        for n in range(300):
            producer.send(topic, random.Random(n).randbytes(30_000), partition=n % 2)
            if n % 10 == 9:
                producer.flush()  # so that a batch is small, and a fetch ends between two
    tiny = Sizes(group_rows=20, group_bytes=1 << 20, file_bytes=1 << 20)
    rounds = run_once(broker, topic, table, sizes=tiny, round_bytes=3 << 20, limits=RoundLimits(round_records=200))
    assert len(rounds) >= 3, "a round ends where its bytes end, after one fetch at least"
    assert max(one.size for one in rounds) < 8 << 20
    assert max(one.files for one in rounds) >= 2
    assert offsets_of(table) == once(150, 150)
    footers = [pq.read_metadata(file) for file in opened(table).files]
    assert sum(footer.num_row_groups for footer in footers) > len(footers)


def test_files_say_what_offsets_and_times_they_have(broker: str, topic: str, table: Path) -> None:
    produce(broker, topic, 30)
    run_once(broker, topic, table)
    [action] = pa.table(DeltaTable(str(table)).get_add_actions(flatten=True)).to_pylist()
    assert (action["min.offset"], action["max.offset"], action["num_records"]) == (0, 14, 30)
    assert action["max.timestamp"] == datetime(1970, 1, 1, 0, 0, 29, tzinfo=UTC)
    assert not [name for name in action if name in ("min.value", "max.value")]


def test_two_runners_on_the_same_partitions_write_each_record_once(broker: str, topic: str, table: Path) -> None:
    with following(broker, topic, table) as one, following(broker, topic, table) as two:
        for first in range(0, 200, 20):
            produce(broker, topic, 20, first=first)
        eventually(lambda: sum(each.rows for each in one.rounds + two.rounds) >= 200, "all rows")
    assert offsets_of(table) == once(100, 100)
    assert one.troubles == two.troubles == []


def test_a_runner_writes_what_another_left_when_both_had_the_same_rows(broker: str, topic: str, table: Path) -> None:
    """The race, step by step: another writer commits the same offsets after this one has written its files."""
    produce(broker, topic, 10)
    raced: list[Action] = []

    def race(action: Action) -> None:
        if isinstance(action, Commit) and not raced:
            raced.append(action)
            run_once(broker, topic, table)
            produce(broker, topic, 4, first=10)

    [only] = run_once(broker, topic, table, on_action=race)
    assert only.rows == 4
    assert offsets_of(table) == once(7, 7)
    assert len(list(table.glob("*.parquet"))) == 2, "the files of the refused commit are removed"


def test_a_runner_keeps_its_rows_when_somebody_optimizes_the_table_meanwhile(
    broker: str, topic: str, table: Path
) -> None:
    for first in (0, 10):
        produce(broker, topic, 10, first=first)
        run_once(broker, topic, table)
    produce(broker, topic, 10, first=20)
    actions: list[Action] = []

    def optimize(action: Action) -> None:
        actions.append(action)
        if isinstance(action, Commit) and sum(isinstance(each, Commit) for each in actions) == 1:
            compact(opened(table))

    run_once(broker, topic, table, on_action=optimize)
    assert offsets_of(table) == once(15, 15)
    kinds = [type(each) for each in actions]
    assert (kinds.count(Write), kinds.count(Commit)) == (1, 2), "one round, written once, committed at the second try"


def test_aborted_records_stay_out_and_open_transactions_hold_the_table(broker: str, topic: str, table: Path) -> None:
    with Producer(broker, transactional_id=f"{topic}-a") as aborts, Producer(broker) as plain:
        aborts.init_transactions()
        aborts.begin()
        aborts.send(topic, b"aborted", partition=0)
        aborts.flush()
        plain.send(topic, b"plain", partition=0).result()
        aborts.abort()
        aborts.begin()
        aborts.send(topic, b"open", partition=1)
        aborts.flush()
        plain.send(topic, b"behind", partition=1).result()
        run_once(broker, topic, table)
        assert [row["value"] for row in rows_of(table)] == [b"plain"]
        aborts.commit()
    run_once(broker, topic, table)
    assert [row["value"] for row in rows_of(table)] == [b"plain", b"open", b"behind"]
    assert run_once(broker, topic, table) == [], "the markers at the ends count as written"


@pytest.mark.slow
def test_records_that_compaction_removed_leave_gaps_and_the_table_goes_on(broker: str, topic: str, table: Path) -> None:
    with Admin(broker) as admin:
        fast = {"cleanup.policy": "compact", "segment.bytes": "1000", "min.cleanable.dirty.ratio": "0"}
        admin.alter_configs(2, topic, fast)
    with Producer(broker) as producer:
        for n in range(40):
            producer.send(topic, bytes(100), b"k%d" % (n % 3), 0).result()  # a batch each

    def is_compacted() -> bool:
        with TopicReader(broker, topic, 2, "read_committed") as reader:
            return len(reader.read()) < 30

    eventually(is_compacted, "the log to be compacted")
    run_once(broker, topic, table)
    written = offsets_of(table)
    assert len(written) < 30
    assert (0, 39) in written
    assert set(written.values()) == {1}
    assert opened(table).next_offset("load", TopicPartition(topic, 0)) == 40
    assert run_once(broker, topic, table) == []


def test_retention_that_overtakes_the_table_stops_or_is_recorded(broker: str, topic: str, table: Path) -> None:
    p0 = TopicPartition(topic, 0)
    produce(broker, topic, 20)
    run_once(broker, topic, table)
    produce(broker, topic, 20, first=20)
    with Admin(broker) as admin:
        admin.delete_records({p0: 15})
    with pytest.raises(OvertakenError, match="-0 begins at offset 15, but the table has only what is before 10"):
        run_once(broker, topic, table)
    assert offsets_of(table) == once(10, 10), "nothing is written, also not of the other partition"
    [only] = run_once(broker, topic, table, limits=RoundLimits(data_loss=DataLoss.RECORD))
    assert (only.rows, only.lost) == (15, 5)
    assert offsets_of(table) == once(20, 20) - Counter({(0, offset): 1 for offset in range(10, 15)})
    assert opened(table).lost("load", p0) == 5
    newest = DeltaTable(str(table)).history(1)[0]
    assert json.loads(newest["headrace.holes"]) == {topic: {"0": [10, 15]}}


def test_records_that_are_deleted_while_they_are_read_are_planned_again(broker: str, topic: str, table: Path) -> None:
    produce(broker, topic, 40)
    deleted: list[Action] = []

    def delete(action: Action) -> None:
        if isinstance(action, Write) and not deleted:
            deleted.append(action)
            with Admin(broker) as admin:
                admin.delete_records({TopicPartition(topic, 1): 8})

    run_once(broker, topic, table, on_action=delete)
    assert offsets_of(table) == once(20, 20) - Counter({(1, offset): 1 for offset in range(8)})


def test_a_topic_that_was_created_again_does_not_go_into_the_old_table(broker: str, topic: str, table: Path) -> None:
    produce(broker, topic, 10)
    run_once(broker, topic, table)
    with Admin(broker) as admin:
        admin.delete_topics([topic])
        admin.create_topic(topic, 2)
    produce(broker, topic, 4)
    with pytest.raises(LogReplacedError, match="was deleted and created again"):
        run_once(broker, topic, table)
    produce(broker, topic, 30)  # as many as before, and more
    with pytest.raises(LogReplacedError, match="is of another topic"):
        run_once(broker, topic, table)
    assert offsets_of(table) == once(5, 5)


def test_a_topic_that_is_created_again_while_it_is_read_does_not_get_into_the_table(
    broker: str, topic: str, table: Path
) -> None:
    produce(broker, topic, 20)
    done: list[Action] = []

    def create_again(action: Action) -> None:
        if isinstance(action, Write) and not done:
            done.append(action)
            with Admin(broker) as admin:
                admin.delete_topics([topic])
                admin.create_topic(topic, 2)
            produce(broker, topic, 30, first=100)

    with pytest.raises(LogReplacedError, match="while it was read"):
        run_once(broker, topic, table, on_action=create_again)
    assert offsets_of(table) == once()
    assert not list(table.glob("*.parquet"))


def test_times_of_no_calendar_are_rows_without_statistics(broker: str, topic: str, table: Path) -> None:
    with Admin(broker) as admin:
        admin.alter_configs(
            2, topic, {f"message.timestamp.{side}.max.ms": str((1 << 63) - 1) for side in ("before", "after")}
        )
    producer = confluent_kafka.Producer({"bootstrap.servers": broker})  # ours would refuse
    for time_ms in (1 << 50, 1000, 2000):
        producer.produce(topic, b"x", partition=0, timestamp=time_ms)
    assert producer.flush(60) == 0
    run_once(broker, topic, table)
    assert offsets_of(table) == once(3)
    [action] = pa.table(DeltaTable(str(table)).get_add_actions(flatten=True)).to_pylist()
    assert (action["max.offset"], action.get("max.timestamp")) == (2, None)


def test_a_hole_is_recorded_when_nothing_follows_it(broker: str, topic: str, table: Path) -> None:
    produce(broker, topic, 10)
    run_once(broker, topic, table)
    produce(broker, topic, 10, first=10)
    with Admin(broker) as admin:
        admin.delete_records({TopicPartition(topic, partition): 10 for partition in (0, 1)})
    [only] = run_once(broker, topic, table, limits=RoundLimits(data_loss=DataLoss.RECORD))
    assert (only.rows, only.files, only.lost) == (0, 0, 10)
    assert run_once(broker, topic, table) == []


def test_a_name_of_a_header_that_is_not_utf_8_does_not_spoil_the_table() -> None:
    raw = pa.array([b"a", b"\xff", b"c"], pa.binary())
    names = pa.Array.from_buffers(pa.string(), 3, raw.buffers())
    pairs = pa.StructArray.from_arrays([names, pa.array([b"1", None, b"3"], pa.binary())], fields=HEADER_FIELDS)
    lists = pa.ListArray.from_arrays(pa.array([0, 0, 2, 3], pa.int32()), pairs)
    batch = pa.RecordBatch.from_arrays([lists.cast(TYPES["headers"])], ["headers"])
    found = readable(batch).column("headers").to_pylist()
    assert found == [
        [],
        [{"key": "a", "value": b"1"}, {"key": "\ufffd", "value": None}],
        [{"key": "c", "value": b"3"}],
    ]


@pytest.mark.slow
def test_a_killed_and_restarted_broker_delays_the_table_and_loses_nothing(tmp_path: Path) -> None:
    server = HeadraceServer(tmp_path / "data")
    try:
        server.start()
        with Admin(server.bootstrap) as admin:
            admin.create_topic("t", 2)
        produce(server.bootstrap, "t", 20)
        with following(server.bootstrap, "t", tmp_path / "table") as running:
            eventually(lambda: sum(one.rows for one in running.rounds) == 20, "the first rows")
            server.kill()
            server.restart()
            produce(server.bootstrap, "t", 20, first=20)
            eventually(lambda: sum(one.rows for one in running.rounds) == 40, "the rows after the restart")
    finally:
        server.stop()
    assert offsets_of(tmp_path / "table") == once(20, 20)


@pytest.mark.slow
def test_a_table_that_is_away_for_a_while_is_waited_for_and_not_begun_anew(
    broker: str, topic: str, table: Path
) -> None:
    produce(broker, topic, 10)
    with following(broker, topic, table) as running:
        eventually(lambda: len(running.rounds) == 1, "the first round")
        away = table.rename(table.with_name("away"))
        produce(broker, topic, 10, first=10)
        eventually(lambda: bool(running.troubles), "the trouble to be told")

        def is_back() -> bool:
            shutil.rmtree(table, ignore_errors=True)  # files of a round; no table
            with suppress(OSError):  # another round has begun
                away.rename(table)
            return not away.exists()

        eventually(is_back, "the table to be back")
        eventually(lambda: sum(one.rows for one in running.rounds) == 20, "the other rows")
    assert offsets_of(table) == once(10, 10)


def test_a_runner_ends_when_it_is_told_and_the_next_one_goes_on(broker: str, topic: str, table: Path) -> None:
    produce(broker, topic, 10)
    with following(broker, topic, table) as running:
        eventually(lambda: bool(running.rounds), "the first round")
    produce(broker, topic, 10, first=10)
    run_once(broker, topic, table)
    assert offsets_of(table) == once(10, 10)


def test_a_table_is_written_through_the_object_store_of_the_library(broker: str, topic: str, table: Path) -> None:
    """The code of s3:// and its like, with the library's store for a directory."""
    table.mkdir()
    place = Location(table.as_uri())
    for first in (0, 10):
        produce(broker, topic, 10, first=first)
        run_once(broker, topic, place)
    assert offsets_of(table) == once(10, 10)


def test_new_partitions_are_written_from_their_beginning(broker: str, topic: str, table: Path) -> None:
    produce(broker, topic, 10)
    run_once(broker, topic, table)
    with Admin(broker) as admin:
        admin.create_partitions(topic, 3)
    produce(broker, topic, 9, first=10, partitions=3)
    run_once(broker, topic, table)
    assert offsets_of(table) == once(8, 8, 3)


def test_an_end_in_the_middle_of_a_round_commits_what_was_read(broker: str, topic: str, table: Path) -> None:
    produce(broker, topic, 20)
    end = threading.Event()
    with runner_of(
        broker, topic, table, on_action=lambda action: end.set() if isinstance(action, Write) else None
    ) as running:
        running.runner.run(end)
    assert sum(one.rows for one in running.rounds) == 10, "one partition of two"
    run_once(broker, topic, table)
    assert offsets_of(table) == once(10, 10)
