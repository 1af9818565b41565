"""`headrace lake`: definitions of tables, and processes that write them together."""

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import main
from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import Admin
from headrace.client.operations.group_admin import GroupAdmin
from headrace.client.producer.producer import Producer
from headrace.testing import Broker
from headrace.types import TopicPartition
from tests.eventually import eventually
from tests.harness import HeadraceServer, child_environment, stop_process
from tests.lake.lakes import offsets_of, produce, rows_of, run_once


class Lake:
    """`headrace lake` in this process."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._bootstrap = bootstrap
        self._capsys = capsys

    def __call__(self, *arguments: str, expect: int = 0) -> Any:
        """The JSON that it prints; with another exit code than 0, what it complains."""
        code = main(["lake", *arguments, "--bootstrap", self._bootstrap, "--json"])
        printed = self._capsys.readouterr()
        assert code == expect, printed.err
        if code:
            return printed.err
        lines = printed.out.splitlines()
        return json.loads(printed.out) if len(lines) == 1 or lines[0] in "[{" else list(map(json.loads, lines))


@pytest.fixture
def lake(broker: str, capsys: pytest.CaptureFixture[str]) -> Lake:
    return Lake(broker, capsys)


def test_a_table_is_added_written_described_and_removed(lake: Lake, broker: str, topic: str, table: Path) -> None:
    assert lake("add", topic, "--table", str(table), "--data-loss", "record")["table"] == str(table)
    assert {"topic": topic, "table": str(table)}.items() <= next(
        one for one in lake("list") if one["topic"] == topic
    ).items()
    produce(broker, topic, 10)
    assert lake("describe", topic)["exists"] is False
    written = lake("run", topic, "--once")
    assert (written["rows"], written["offsets"]) == (10, {"0": [0, 5], "1": [0, 5]})
    produce(broker, topic, 3, first=10)
    found = lake("describe", topic)
    assert (found["rows"], found["files"], found["data_loss"]) == (10, 1, "record")
    assert found["partitions"] == [
        {"partition": 0, "next": 5, "end": 7, "lag": 2, "lost": 0},
        {"partition": 1, "next": 5, "end": 6, "lag": 1, "lost": 0},
    ]
    lake("remove", topic)
    assert "has no lake table" in lake("run", topic, "--once", expect=1)
    assert offsets_of(table) == Counter({(partition, offset): 1 for partition in (0, 1) for offset in range(5)})
    lake("add", topic, "--table", str(table))
    assert lake("run", topic, "--once")["rows"] == 3, "the table knows where it ends"


def test_a_definition_is_a_setting_of_the_topic_and_goes_with_it(
    lake: Lake, broker: str, topic: str, table: Path
) -> None:
    lake("add", topic, "--table", str(table))
    with Admin(broker) as admin:
        assert json.loads({each.name: each.value for each in admin.describe_configs(2, topic)}["headrace.lake"] or "")[
            "table"
        ] == str(table)
        admin.delete_topics([topic])
        admin.create_topic(topic, 1)
    assert "has no lake table" in lake("describe", topic, expect=1)


def test_a_dry_run_defines_nothing(lake: Lake, topic: str, table: Path) -> None:
    lake("add", topic, "--table", str(table), "--dry-run")
    lake("describe", topic, expect=1)
    lake("add", topic, "--table", str(table))
    lake("remove", topic, "--dry-run")
    lake("describe", topic)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--format", "iceberg", "--catalog", "postgresql://u:p@a/b"), "without a password"),
        (("--catalog", "http://a:1"), "the catalog of --format iceberg"),
        (("--format", "orc"), "--format orc: expected delta or iceberg"),
        (("--data-loss", "ignore"), "expected stop or record"),
        (("--schema", "registry"), "go together"),
        (("--registry", "http://a:1"), "go together"),
        (("--schema", "registry", "--registry", "http://u:p@a:1"), "would read the password"),
        (("--schema", __file__), "expected JSON"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(
    lake: Lake, topic: str, table: Path, arguments: tuple[str, ...], says: str
) -> None:
    assert says in lake("add", topic, "--table", str(table), *arguments, expect=2)


def test_values_become_columns_by_a_schema_file_or_by_themselves(
    lake: Lake, broker: str, topic: str, table: Path
) -> None:
    schema = table.with_suffix(".json")
    schema.write_text('{"price": "double"}')
    lake("add", topic, "--table", str(table), "--schema", str(schema))
    with Producer(broker) as producer:
        for value in (b'{"price":1,"item":"a"}', b'{"price":"dear"}'):
            producer.send(topic, value, partition=0)
    assert lake("run", topic, "--once")["rescued"] == 1
    assert [row["price"] for row in rows_of(table)] == [1.0, None]
    lake("remove", topic)
    lake("add", topic, "--table", str(table.with_name("found")), "--schema", "infer")
    assert lake("run", topic, "--once")["rescued"] == 1
    assert [(row["price"], row["item"]) for row in rows_of(table.with_name("found"))] == [(1, "a"), (None, None)]
    schema.write_text('{"price": "map"}')
    assert "is not one of Spark's" in lake(
        "add", topic, "--table", str(table.with_name("new")), "--schema", str(schema), expect=2
    )
    assert "has no column corrupt_value" in _raw_then_json(lake, broker, topic, table)


def _raw_then_json(lake: Lake, broker: str, topic: str, table: Path) -> str:
    """What is said to a table of raw records that is to have columns."""
    raw = str(table.with_name("raw"))
    run_once(broker, topic, Path(raw))
    return str(lake("add", topic, "--table", raw, "--schema", "infer", expect=2))


def test_another_table_of_a_topic_needs_the_first_one_removed(lake: Lake, topic: str, table: Path) -> None:
    lake("add", topic, "--table", str(table))
    lake("add", topic, "--table", str(table))  # the same again
    assert "remove it first" in lake("add", topic, "--table", str(table / "other"), expect=1)


def test_brokers_refuse_a_setting_that_is_no_definition(broker: str, topic: str) -> None:
    with Admin(broker) as admin, pytest.raises(Exception, match="a definition has the version 1"):
        admin.alter_configs(2, topic, {"headrace.lake": '{"table":"x"}'})


def test_small_files_are_compacted_and_no_row_is_lost(lake: Lake, broker: str, topic: str, table: Path) -> None:
    lake("add", topic, "--table", str(table))
    for first in range(0, 50, 10):
        produce(broker, topic, 10, first=first)
        lake("run", topic, "--once", "--compact-at", "4")
    assert lake("describe", topic)["files"] == 2, "the fourth small file made one of all, and one came after it"
    assert offsets_of(table) == Counter({(partition, offset): 1 for partition in (0, 1) for offset in range(25)})


@contextmanager
def running(broker: str, topic: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`headrace lake run` as a process, whose rounds are lines of `log`."""
    command = [sys.executable, "-m", "headrace", "lake", "run", topic, "--linger", "50ms", "-b", broker, "--json"]
    with log.open("wb") as out, subprocess.Popen(command, env=child_environment(), stdout=out) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                stop_process(process)


def partitions_in(log: Path) -> set[str]:
    """The partitions that a process has written, and how many rounds it had."""
    rounds = [json.loads(line) for line in log.read_text().splitlines()]
    return {partition for one in rounds for partition in one["offsets"]}


@pytest.mark.slow
def test_processes_share_partitions_and_one_that_is_killed_leaves_its_own_to_the_other(
    lake: Lake, broker: str, topic: str, table: Path, tmp_path: Path
) -> None:
    lake("add", topic, "--table", str(table))
    logs = [tmp_path / "one", tmp_path / "two"]
    with running(broker, topic, logs[0]) as one, running(broker, topic, logs[1]) as two:
        count = 0

        def more_until_each_has_written() -> bool:
            nonlocal count
            produce(broker, topic, 10, first=count)
            count += 10
            return all(map(partitions_in, logs))

        eventually(more_until_each_has_written, "rounds of both processes")
        one.send_signal(signal.SIGKILL)
        one.wait()
        produce(broker, topic, 10, first=count)
        count += 10
        eventually(lambda: len(offsets_of(table)) == count, "the rows of all partitions", state=logs[1].read_text)
        two.terminate()
        assert two.wait() == 0
    assert set(offsets_of(table).values()) == {1}
    with Cluster(broker) as cluster:
        told = GroupAdmin(cluster).offsets(f"headrace-lake-{topic}")
    assert told == {TopicPartition(topic, partition): count // 2 for partition in (0, 1)}


@pytest.mark.slow
def test_a_run_of_an_idle_topic_outlives_a_restart_of_its_broker(tmp_path: Path) -> None:
    server = HeadraceServer(tmp_path / "data")
    try:
        bootstrap = server.start().bootstrap
        with Admin(bootstrap) as admin:
            admin.create_topic("t", 2)
        assert main(["lake", "add", "t", "--table", str(tmp_path / "table"), "-b", bootstrap]) == 0
        with running(bootstrap, "t", tmp_path / "log") as process:
            eventually(lambda: (tmp_path / "table").exists(), "the table")
            with Cluster(bootstrap) as cluster:
                members = GroupAdmin(cluster)
                eventually(lambda: [one.group_id for one in members.list_groups()] == ["headrace-lake-t"], "the member")
            server.kill()
            server.restart()
            produce(bootstrap, "t", 10)
            eventually(lambda: (tmp_path / "log").read_text().count('"rows"') > 0, "a round")
            assert process.poll() is None
    finally:
        server.stop()
    assert set(offsets_of(tmp_path / "table").values()) == {1}


def test_all_tables_are_run_and_one_that_fails_does_not_hold_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker() as broker:
        for topic in ("good", "spoilt", "without"):
            with Admin(broker.bootstrap) as admin:
                admin.create_topic(topic, 2)
            produce(broker.bootstrap, topic, 10)
        for topic in ("good", "spoilt"):
            assert main(["lake", "add", topic, "--table", str(tmp_path / topic), "-b", broker.bootstrap]) == 0
        (tmp_path / "spoilt").mkdir()
        (tmp_path / "spoilt" / "other").write_text("somebody's")
        assert main(["lake", "run", "--all", "--once", "-b", broker.bootstrap]) == 1
    assert "lake spoilt: " in capsys.readouterr().err
    assert sum(offsets_of(tmp_path / "good").values()) == 10
    assert sorted(path.name for path in (tmp_path / "spoilt").iterdir()) == ["other"]
