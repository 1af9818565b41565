"""Other people's tools administer groups: Java's kafka-consumer-groups, confluent-kafka, kafka-python, aiokafka."""

import re
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition as KafkaPythonPartition

from headrace.errors import ErrorCode
from tests.asker import Asker
from tests.broker.admin_requests import create_topic
from tests.broker.test_group_apis import SETTINGS, a_topic, commit, heartbeat, join, leave, sync
from tests.conftest import StartHeadrace
from tests.harness import unused
from tests.peers.kafka_tools import Tools, kafka_tools
from tests.wire import Wire, batch

pytestmark = pytest.mark.slow  # processes of its own

SESSION_MS = 60_000
DAY_MS = 86_400_000
JAVA_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


class Scene:
    """A topic of three records, a group with a member that has read one of them, and a group without members."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap, self.topic = bootstrap, a_topic(bootstrap)
        with Wire(bootstrap) as wire:
            wire.produce(self.topic, batch([b"second", b"third"]))
        self.group, self.simple = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("group", "simple"))
        self.asker = Asker(bootstrap)
        self.member_id = self._join()
        for group, generation, member_id in ((self.group, 1, self.member_id), (self.simple, -1, "")):
            answer = self.asker.ask(commit(group, self.topic, generation, member_id), 8)
            assert answer.topics[0].partitions[0].error_code == 0

    def _join(self) -> str:
        name = struct.pack(">h", len(self.topic)) + self.topic.encode()
        request = join(self.group)
        request.session_timeout_ms = SESSION_MS
        request.protocols[0].metadata = b"\0\0\0\0\0\1" + name + b"\xff\xff\xff\xff"
        member_id: str = self.asker.ask(request, 3).member_id
        agreed = sync(self.group, 1, member_id, 3)
        agreed.assignments[0].assignment = b"\0\0\0\0\0\1" + name + struct.pack(">iii", 1, 0, -1)
        assert self.asker.ask(agreed, 3).error_code == 0
        assert self.asker.ask(heartbeat(self.group, 1, member_id), 3).error_code == 0
        return member_id

    def leave(self) -> None:
        """The member goes; its group is empty."""
        assert self.asker.ask(leave(self.group, self.member_id, 3), 3).error_code == 0


@pytest.fixture
def scene(headrace_server: StartHeadrace) -> Scene:
    return Scene(headrace_server(settings=SETTINGS).bootstrap)


def test_confluent_kafka(scene: Scene) -> None:
    admin = AdminClient({"bootstrap.servers": scene.bootstrap})
    assert {each.group_id for each in admin.list_consumer_groups().result().valid} == {scene.group, scene.simple}
    only = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result().valid
    assert [each.group_id for each in only] == [scene.group]
    described = admin.describe_consumer_groups([scene.group])[scene.group].result()
    assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
    assert [each.member_id for each in described.members] == [scene.member_id]
    partitions = described.members[0].assignment.topic_partitions
    assert [(each.topic, each.partition) for each in partitions] == [(scene.topic, 0)]
    asked = [ConsumerGroupTopicPartitions(scene.group)]
    offsets = admin.list_consumer_group_offsets(asked)[scene.group].result().topic_partitions
    assert [(each.topic, each.partition, each.offset) for each in offsets] == [(scene.topic, 0, 1)]
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP|not empty"):
        admin.delete_consumer_groups([scene.group])[scene.group].result()
    scene.leave()
    moved = ConsumerGroupTopicPartitions(scene.group, [TopicPartition(scene.topic, 0, 2)])
    admin.alter_consumer_group_offsets([moved])[scene.group].result()
    offsets = admin.list_consumer_group_offsets(asked)[scene.group].result().topic_partitions
    assert [each.offset for each in offsets] == [2]
    for future in admin.delete_consumer_groups([scene.group, scene.simple]).values():
        future.result()
    assert admin.list_consumer_groups().result().valid == []


def test_kafka_python(scene: Scene) -> None:
    admin = KafkaAdminClient(bootstrap_servers=scene.bootstrap)
    partition = KafkaPythonPartition(scene.topic, 0)
    try:
        listed = {each["group_id"]: each["group_state"] for each in admin.list_groups()}
        assert listed == {scene.group: "Stable", scene.simple: "Empty"}
        described = admin.describe_groups([scene.group])[scene.group]
        assert described["members"][0]["member_id"] == scene.member_id
        refused = admin.delete_group_offsets(scene.group, [partition])
        assert [each.errno for each in refused.values()] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
        assert [each.errno for each in admin.delete_group_offsets(scene.simple, [partition]).values()] == [0]
        assert admin.delete_groups([scene.group])[scene.group] == "NonEmptyGroupError"
        assert admin.delete_groups([scene.simple])[scene.simple] == "OK"
        assert admin.delete_groups([scene.simple])[scene.simple] == "GroupIdNotFoundError"
    finally:
        admin.close()


async def test_aiokafka(scene: Scene) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=scene.bootstrap)
    await admin.start()
    try:
        assert {each[0] for each in await admin.list_consumer_groups()} == {scene.group, scene.simple}
        described = (await admin.describe_consumer_groups([scene.group]))[0].groups[0]
        assert described[1:3] == (scene.group, "Stable")
        assert described[5][0][0] == scene.member_id
        offsets = await admin.list_consumer_group_offsets(scene.group)
        assert {each.offset for each in offsets.values()} == {1}
    finally:
        await admin.close()


def java_tool(scene: Scene, tools: Tools) -> Iterator[list[str]]:
    """What kafka-consumer-groups prints, command by command, as words; names of this run taken out."""

    def run(*arguments: str) -> list[str]:
        printed = tools.check(JAVA_TOOL, "--bootstrap-server", scene.bootstrap, *arguments)
        for name, plain in ((scene.member_id, "MEMBER"), (scene.group, "GROUP"), (scene.simple, "SIMPLE"),
                            (scene.topic, "TOPIC"), (scene.bootstrap, "BROKER")):  # fmt: skip
            printed = printed.replace(name, plain)
        lines = (re.sub(r"\s+", " ", line).strip() for line in printed.splitlines())
        return sorted(line for line in lines if line)

    both = ("--group", scene.group, "--group", scene.simple)
    yield [line for line in run("--list", "--state") if "GROUP" in line or "SIMPLE" in line]
    yield run("--describe", "--group", scene.group)
    yield run("--describe", "--members", "--verbose", "--group", scene.group)
    yield [re.sub(r"\(\d+\)", "(ID)", line) for line in run("--describe", "--state", *both)]
    yield run("--describe", "--group", "no-such-group")
    yield run("--delete", *both)
    yield run("--delete-offsets", "--topic", scene.topic, "--group", scene.group)
    scene.leave()
    yield run("--reset-offsets", "--to-latest", "--topic", scene.topic, "--execute", "--group", scene.group)
    yield run("--delete-offsets", "--topic", scene.topic, "--group", scene.group)
    yield run("--delete", "--group", scene.group)


def test_kafka_consumer_groups(headrace_server: StartHeadrace, apache_kafka: str, tmp_path: Path) -> None:
    server = headrace_server(settings=SETTINGS)
    with kafka_tools(tmp_path) as tools:
        theirs = list(java_tool(Scene(apache_kafka), tools))
        for told, expected in zip(java_tool(Scene(server.bootstrap), tools), theirs, strict=True):
            assert told == expected


def resets(tools: Tools, bootstrap: str, directory: Path) -> Iterator[list[str]]:
    """What kafka-consumer-groups prints for each way to reset offsets, as rows of words."""
    topic, group = unused("reset"), unused("group")
    now_ms = time.time_ns() // 1_000_000
    with Asker(bootstrap) as asker, Wire(bootstrap) as wire:
        create_topic(asker, 2, topic)
        for age in (5, 4, 3, 2, 1):
            assert not wire.produce(topic, batch([b"v", b"w"], timestamp_ms=now_ms - age * DAY_MS)).error_code

    def run(*arguments: str) -> list[str]:
        command = ("--bootstrap-server", bootstrap, "--reset-offsets", "--group", group, *arguments)
        printed = tools.run(JAVA_TOOL, *command).replace(topic, "TOPIC").replace(group, "GROUP")
        lines = (re.sub(r"\s+", " ", line).strip() for line in printed.splitlines())
        return sorted(line for line in lines if line and not line.startswith("WARN"))

    both, first = ("--topic", topic), ("--topic", f"{topic}:0")
    yield run(*first, "--to-offset", "4", "--execute")
    moment = time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime((now_ms - 3 * DAY_MS - 60_000) / 1000))
    for way in (
        (*both, "--to-earliest"), (*both, "--to-latest"), (*both, "--to-current"), (*first, "--shift-by", "-3"),
        (*first, "--shift-by", "100"), (*both, "--shift-by", "1"), (*both, "--to-offset", "99"),
        (*both, "--to-datetime", moment), (*both, "--by-duration", "P2DT1H"), ("--all-topics", "--to-earliest"),
    ):  # fmt: skip
        yield run(*way, "--dry-run")
    exported = run(*both, "--to-offset", "3", "--dry-run", "--export")
    yield exported
    stored = directory / "offsets.csv"
    stored.write_text("\n".join(line.replace("TOPIC", topic) for line in exported if "TOPIC" in line) + "\n")
    yield run("--from-file", str(stored), "--execute")
    yield run("--all-topics", "--to-current", "--dry-run")
    yield from several_groups(run, topic, group, directory)


def several_groups(run: Callable[..., list[str]], topic: str, group: str, directory: Path) -> Iterator[list[str]]:
    """Two groups in one command, and in one file, whose rows begin with the group."""
    other = unused("reset")
    both = ("--group", other)

    def plain(lines: list[str]) -> list[str]:
        return sorted(line.replace(other, "OTHER") for line in lines)

    yield plain(run(*both, "--topic", f"{topic}:0,1", "--to-earliest", "--execute"))
    yield plain(run(*both, "--topic", topic, "--shift-by", "1", "--dry-run"))
    exported = run(*both, "--all-topics", "--to-offset", "2", "--dry-run", "--export")
    yield plain(exported)
    stored = directory / "groups.csv"
    rows = [line.replace("GROUP", group).replace("TOPIC", topic) for line in exported if "TOPIC" in line]
    stored.write_text("\n".join(rows) + "\n")
    yield plain(run(*both, "--from-file", str(stored), "--execute"))
    yield plain(run(*both, "--all-topics", "--to-current", "--dry-run"))


def test_offsets_are_reset_in_every_way(headrace_server: StartHeadrace, apache_kafka: str, tmp_path: Path) -> None:
    server = headrace_server(settings=SETTINGS)
    with kafka_tools(tmp_path) as tools:
        theirs = list(resets(tools, apache_kafka, tmp_path))
        ours = list(resets(tools, server.bootstrap, tmp_path))
    assert ours == theirs
    assert ours[0] == ["GROUP TOPIC 0 4", "GROUP TOPIC PARTITION NEW-OFFSET"]
