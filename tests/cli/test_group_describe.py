"""`headrace group list`, `describe` and `delete`: members, offsets, and lag in records and in seconds."""

import json
import time

import pytest
from confluent_kafka import Producer

from headrace.client.core.cluster import Cluster
from headrace.client.operations.lag import first_record_ms
from headrace.protocol import messages as m
from headrace.types import Offset, TopicPartition
from tests.asker import Asker
from tests.broker.test_group_apis import commit, join, sync
from tests.cli.conftest import Run
from tests.cli.test_commands import topic  # noqa: F401
from tests.client.brokers import topic_name
from tests.coordinators.groups.streams.samples import requested, subtopology
from tests.eventually import eventually
from tests.harness import HeadraceServer
from tests.wire import Wire, batch

pytestmark = pytest.mark.slow  # processes of its own


HOUR_MS = 3_600_000


def committed(server: HeadraceServer, group: str, topic: str, partition: int, offset: int) -> None:  # noqa: F811
    request = commit(group, topic, -1, "", partition)
    request.topics[0].partitions[0].committed_offset = offset
    with Asker(server.bootstrap) as asker:
        assert asker.ask(request, 8).topics[0].partitions[0].error_code == 0


def ready_for_groups(server: HeadraceServer, headrace: Run) -> None:
    assert headrace("group", "describe", "nobody").returncode == 1


def test_lag_is_told_in_records_and_in_seconds(cli_server: HeadraceServer, headrace: Run, topic: str) -> None:  # noqa: F811
    ready_for_groups(cli_server, headrace)
    now_ms = int(time.time() * 1000)
    with Wire(cli_server.bootstrap) as wire:
        for age_ms in (2 * HOUR_MS, HOUR_MS):
            wire.produce(topic, batch([b"a", b"b"], timestamp_ms=now_ms - age_ms))
    group = topic_name("lag")
    expected = {0: (4, 7200), 1: (3, 7200), 2: (2, 3600), 4: (0, 0), 9: (0, 0)}
    for offset, (records, seconds) in expected.items():
        committed(cli_server, group, topic, 0, offset)
        described = json.loads(headrace("group", "describe", group, "--json").stdout)
        [row] = described["offsets"]
        assert (row["offset"], row["end_offset"], row["lag"]) == (offset, 4, records)
        assert row["lag_seconds"] == pytest.approx(seconds, abs=30)
    text = headrace("group", "describe", group).stdout.decode()
    assert "LAG SECONDS" in text
    assert "Empty" in text
    committed(cli_server, group, topic, 2, 0)
    rows = json.loads(headrace("group", "describe", group, "--json").stdout)["offsets"]
    assert [(row["partition"], row["lag"], row["lag_seconds"]) for row in rows] == [(0, 0, 0.0), (2, 0, 0.0)]


def test_lag_of_committed_records_ends_at_the_first_open_transaction(
    cli_server: HeadraceServer,
    headrace: Run,
    topic: str,  # noqa: F811
) -> None:
    ready_for_groups(cli_server, headrace)
    producer = Producer({"bootstrap.servers": cli_server.bootstrap, "transactional.id": topic_name("open")})
    producer.init_transactions(20)
    with Wire(cli_server.bootstrap) as wire:
        wire.produce(topic, batch([b"before"]))
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        producer.flush(20)
        wire.produce(topic, batch([b"after"]))
    group = topic_name("lag")
    committed(cli_server, group, topic, 0, 0)
    for options, expected in ([], (3, 3)), (["--read-committed"], (1, 1)):
        [row] = json.loads(headrace("group", "describe", group, "--json", *options).stdout)["offsets"]
        assert (row["end_offset"], row["lag"]) == expected
    producer.abort_transaction(20)


def test_members_are_told_with_what_they_read(cli_server: HeadraceServer, headrace: Run, topic: str) -> None:  # noqa: F811
    ready_for_groups(cli_server, headrace)
    group, name = topic_name("members"), topic.encode()
    with Asker(cli_server.bootstrap) as asker:
        member_id = asker.ask(join(group), 3).member_id
        agreed = sync(group, 1, member_id, 3)
        agreed.assignments[0].assignment = (
            b"\0\0\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\0\0\0\1" + b"\0\0\0\1" + b"\xff\xff\xff\xff"
        )
        assert asker.ask(agreed, 3).error_code == 0
        described = json.loads(headrace("group", "describe", group, "--json").stdout)
        assert (described["state"], described["assignor"]) == ("Stable", "range")
        assert described["members"][0]["partitions"] == [f"{topic}-1"]
        [row] = described["offsets"]
        assert (row["partition"], row["offset"], row["lag"], row["lag_seconds"], row["member"]) == (
            1, None, None, None, member_id
        )  # fmt: skip
        refused = headrace("group", "delete", group)
        assert (refused.returncode, b"NON_EMPTY_GROUP" in refused.stderr) == (1, True)


def test_a_group_is_listed_and_deleted_with_its_offsets(cli_server: HeadraceServer, headrace: Run, topic: str) -> None:  # noqa: F811
    ready_for_groups(cli_server, headrace)
    group = topic_name("listed")
    committed(cli_server, group, topic, 0, 0)
    listed = json.loads(headrace("group", "list", "--json").stdout)
    assert {"group": group, "state": "Empty", "type": "", "kind": "Classic"} in listed
    assert headrace("group", "delete", group).returncode == 0
    assert headrace("group", "describe", group).returncode == 1
    assert group.encode() not in headrace("group", "list").stdout


def test_the_time_of_the_first_record_that_is_there_counts(cli_server: HeadraceServer, topic: str) -> None:  # noqa: F811
    with Wire(cli_server.bootstrap) as wire:
        wire.produce(topic, batch([b"a", b"b"], timestamp_ms=1000))
        wire.produce(topic, batch([b"c"], timestamp_ms=5000))
    partition = TopicPartition(topic, 0)
    with Cluster(cli_server.bootstrap) as cluster:
        found = [first_record_ms(cluster, partition, Offset(start), Offset(3)) for start in range(4)]
        assert found == [1000, 1000, 5000, None]
        assert first_record_ms(cluster, partition, Offset(2), Offset(2)) is None


def test_a_share_group_is_described_with_where_its_members_begin(
    cli_server: HeadraceServer,
    headrace: Run,
    topic: str,  # noqa: F811
) -> None:
    ready_for_groups(cli_server, headrace)
    with Wire(cli_server.bootstrap) as wire:
        wire.produce(topic, batch([b"a", b"b", b"c"]))
    group, member = topic_name("queue"), "member-1"
    beat = m.ShareGroupHeartbeatRequest(group_id=group, member_id=member, subscribed_topic_names=[topic])
    with Asker(cli_server.bootstrap) as asker:

        def is_assigned() -> bool:
            answer = asker.ask(beat, 1)
            assert answer.error_code == 0
            beat.member_epoch = answer.member_epoch
            return answer.assignment is not None and bool(answer.assignment.topic_partitions)

        eventually(is_assigned, "the member has partitions")
        altered = m.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition(start_offset=1)
        topics = [
            m.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[altered])
        ]
        described = json.loads(headrace("group", "describe", group, "--json").stdout)
        assert (described["kind"], described["state"], described["assignor"]) == ("Share", "Stable", "simple")
        assert [each["member"] for each in described["members"]] == [member]
        assert f"{topic}-0" in described["members"][0]["partitions"]
        assert {row["member"] for row in described["offsets"]} == {member}
        beat.member_epoch = -1
        assert asker.ask(beat, 1).error_code == 0
        answer = asker.ask(m.AlterShareGroupOffsetsRequest(group_id=group, topics=topics), 0)
        assert answer.responses[0].partitions[0].error_code == 0
    described = json.loads(headrace("group", "describe", group, "--json").stdout)
    row = next(row for row in described["offsets"] if row["partition"] == 0)
    assert (described["state"], row["offset"], row["end_offset"], row["lag"]) == ("Empty", 1, 3, 2)
    text = headrace("group", "describe", group).stdout.decode()
    assert f"group {group}  Share  Empty  simple  0 members" in text


def test_a_streams_group_is_described_with_the_partitions_of_its_tasks(
    cli_server: HeadraceServer,
    headrace: Run,
    topic: str,  # noqa: F811
) -> None:
    ready_for_groups(cli_server, headrace)
    group, member = topic_name("app"), "thread-1"
    beat = m.StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        topology=requested(subtopology("0", [topic])),
        process_id="process",
        rebalance_timeout_ms=60_000,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )
    with Asker(cli_server.bootstrap) as asker:

        def has_tasks() -> bool:
            answer = asker.ask(beat, 0)
            assert answer.error_code == 0
            beat.member_epoch, beat.topology = answer.member_epoch, None
            return bool(answer.active_tasks)

        eventually(has_tasks, "the member has tasks")
    described = json.loads(headrace("group", "describe", group, "--json").stdout)
    assert (described["kind"], [each["member"] for each in described["members"]]) == ("Streams", [member])
    assert f"{topic}-0" in described["members"][0]["partitions"]
    assert f"group {group}  Streams" in headrace("group", "describe", group).stdout.decode()
