"""`headrace group reset` and `forget`: every way that kafka-consumer-groups knows."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.test_group_apis import commit
from tests.cli.conftest import Run
from tests.client.brokers import topic_name
from tests.eventually import eventually
from tests.harness import HeadraceServer
from tests.wire import Wire, batch

pytestmark = pytest.mark.slow  # processes of its own

DAY_MS = 86_400_000
RECORDS = 10


@pytest.fixture
def topic(cli_server: HeadraceServer) -> str:
    """Two partitions of ten records, of ten days ago up to yesterday."""
    name, now_ms = topic_name("reset"), time.time_ns() // 1_000_000
    with Wire(cli_server.bootstrap) as wire:
        wire.create_topic(name, 2)
        for age in range(RECORDS, 0, -1):
            for partition in (0, 1):
                data = batch([b"v"], timestamp_ms=now_ms - age * DAY_MS)
                eventually(lambda: wire.produce(name, data, partition=partition).error_code == 0, "a leader")  # noqa: B023
    return name


def commit_at(server: HeadraceServer, group: str, topic: str, offset: int) -> None:
    request = commit(group, topic, -1, "", 0)
    request.topics[0].partitions[0].committed_offset = offset
    with Asker(server.bootstrap) as asker:
        asker.ask(m.FindCoordinatorRequest(key=group), 3)  # creates __consumer_offsets: a commit does not
        eventually(lambda: not asker.ask(request, 8).topics[0].partitions[0].error_code, "the coordinator")


def shown(run: Any) -> list[int]:
    assert run.returncode == 0, run.stderr
    return [row["offset"] for row in json.loads(run.stdout)]


def test_offsets_go_where_each_way_says(cli_server: HeadraceServer, headrace: Run, topic: str, tmp_path: Path) -> None:
    group = topic_name("resets")
    commit_at(cli_server, group, topic, 3)
    only, both = ("--topic", f"{topic}:0"), ("--topic", topic)
    at = f"@{time.time_ns() // 1_000_000 - 7 * DAY_MS - 1000}"
    for arguments, expected in (
        ((*both, "--to", "current"), [3, RECORDS]),
        ((*only, "--shift-by", "4"), [7]),
        ((*only, "--shift-by", "-100"), [0]),
        ((*only, "--shift-by", "100"), [RECORDS]),
        ((*both, "--to", "beginning"), [0, 0]),
        ((*both, "--to", "end"), [RECORDS, RECORDS]),
        ((*only, "--to", "4"), [4]),
        ((*only, "--to", "999"), [RECORDS]),
        ((*only, "--to", at), [3]),
        ((*only, "--by-duration", "P2DT1H"), [8]),
        (("--all-topics", "--to", "-2"), [RECORDS - 2]),
    ):
        assert shown(headrace("group", "reset", group, *arguments, "--dry-run", "--json")) == expected, arguments
    assert shown(headrace("group", "reset", group, "--all-topics", "--to", "current", "--dry-run", "--json")) == [3]
    assert shown(headrace("group", "reset", group, *both, "--to", "6", "--json")) == [6, 6]
    exported = tmp_path / "offsets.csv"
    exported.write_bytes(headrace("group", "reset", group, "--all-topics", "--to", "current", "--export").stdout)
    assert exported.read_text() == f"{topic},0,6\n{topic},1,6\n"
    shown(headrace("group", "reset", group, *both, "--to", "end", "--json"))
    assert shown(headrace("group", "reset", group, "--from-file", str(exported), "--json")) == [6, 6]
    assert shown(headrace("group", "forget", group, *only, "--json")) == [6]
    rows = json.loads(headrace("group", "describe", group, "--json").stdout)["offsets"]
    assert [(row["partition"], row["offset"]) for row in rows] == [(1, 6)]


def test_what_cannot_be_reset_is_refused(cli_server: HeadraceServer, headrace: Run, topic: str, tmp_path: Path) -> None:
    group = topic_name("refused")
    commit_at(cli_server, group, topic, 3)
    wrong = tmp_path / "wrong.csv"
    wrong.write_text(f"{topic},0\n")
    for arguments, reason in (
        ((group, "--topic", topic), "--to, --shift-by"),
        ((group, "--to", "end"), "--topic or --all-topics"),
        (("--topic", topic, "--to", "end"), "--all-groups"),
        ((group, "--topic", f"{topic}:7", "--to", "end"), "partitions 0 to 1"),
        ((group, "--topic", topic, "--by-duration", "P"), "ISO 8601"),
        ((group, "--topic", topic, "--shift-by", "1"), "has no committed offset"),
        ((group, "--from-file", str(wrong)), "line 1"),
    ):
        refused = headrace("group", "reset", *arguments)
        assert refused.returncode != 0, arguments
        assert reason in refused.stderr.decode(), arguments


def test_a_group_with_members_keeps_its_offsets(cli_server: HeadraceServer, headrace: Run, topic: str) -> None:
    group = topic_name("busy")
    consumer = Consumer({"bootstrap.servers": cli_server.bootstrap, "group.id": group})
    consumer.subscribe([topic])
    try:
        eventually(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "the assignment")
        refused = headrace("group", "reset", group, "--topic", topic, "--to", "end")
        assert (refused.returncode, "is Stable: stop its members" in refused.stderr.decode()) == (1, True)
        listed = json.loads(headrace("group", "list", "--json").stdout)
        assert [each["kind"] for each in listed if each["group"] == group] == ["Classic"]
    finally:
        consumer.close()


def test_a_consumer_group_of_kip_848_is_described(cli_server: HeadraceServer, headrace: Run, topic: str) -> None:
    group = topic_name("modern")
    consumer = Consumer({"bootstrap.servers": cli_server.bootstrap, "group.id": group, "group.protocol": "consumer"})
    consumer.subscribe([topic])
    try:
        eventually(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "the assignment")
        described = json.loads(headrace("group", "describe", group, "--json").stdout)
        assert (described["kind"], described["assignor"]) == ("Consumer", "uniform")
        assert [member["partitions"] for member in described["members"]] == [[f"{topic}-0", f"{topic}-1"]]
    finally:
        consumer.close()


def test_settings_of_brokers_loggers_and_subscriptions(headrace: Run, cli_server: HeadraceServer) -> None:
    assert headrace("config", "set", "broker", "default", "log.retention.bytes=99").returncode == 0
    assert json.loads(headrace("config", "get", "broker", "default", "--json").stdout) == {"log.retention.bytes": "99"}
    own = json.loads(headrace("config", "get", "broker", "0", "log.retention.bytes", "--json").stdout)
    assert own == {"log.retention.bytes": "99"}
    assert headrace("config", "unset", "broker", "default", "log.retention.bytes").returncode == 0
    assert headrace("config", "set", "logger", "0", "headrace.network=DEBUG").returncode == 0
    levels = json.loads(headrace("config", "get", "logger", "0", "headrace.network.server", "--json").stdout)
    assert levels == {"headrace.network.server": "DEBUG"}
    assert headrace("config", "unset", "logger", "0", "headrace.network").returncode == 0
    name = topic_name("subscription")
    assert headrace("config", "set", "client-metrics", name, "metrics=*", "interval.ms=5000").returncode == 0
    listed = headrace("config", "list", "client-metrics", "--json")
    assert (listed.stderr, name in json.loads(listed.stdout or "[]")) == (b"", True)
    shown = json.loads(headrace("config", "get", "client-metrics", name, "--json").stdout)
    assert shown == {"metrics": "*", "interval.ms": "5000"}
    refused = headrace("config", "set", "broker", "0", "broker.rack=a")
    assert (refused.returncode, "when the broker starts" in refused.stderr.decode()) == (1, True)
