"""Apache Kafka's kafka-share-groups and DumpLogSegments over the share groups of a broker of ours."""

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.test_group_apis import a_topic
from tests.conftest import StartHeadrace
from tests.eventually import eventually
from tests.peers import kafka
from tests.peers.kafka_tools import Tools, kafka_tools
from tests.wire import Wire, batch

pytestmark = pytest.mark.slow  # processes of its own

TOOL = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "1",
}
VERSION = 1


class Scene:
    """A topic of three records, and a share group with a member."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap, self.topic = bootstrap, a_topic(bootstrap)
        with Wire(bootstrap) as wire:
            wire.produce(self.topic, batch([b"second", b"third"]))
        self.group, self.member_id = f"queue-{uuid.uuid4().hex[:8]}", str(uuid.uuid4())
        self.asker, self.epoch = Asker(bootstrap), 0
        self.has_partitions = False
        self.join()

    def join(self) -> None:
        """A member joins and gets the partition."""
        self.epoch, self.has_partitions = 0, False

        def beats() -> bool:
            self.beat(None if self.epoch else [self.topic])
            return self.has_partitions

        eventually(beats, "partitions of the member")

    def beat(self, topics: list[str] | None = None, epoch: int | None = None) -> None:
        """One heartbeat."""
        request = m.ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            subscribed_topic_names=topics,
        )
        answer = self.asker.ask(request, VERSION)
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE), answer
        if answer.error_code == ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.has_partitions = bool(answer.assignment.topic_partitions)


def said(scene: Scene, tools: Tools) -> Iterator[list[str]]:
    """What kafka-share-groups prints, command by command, as words; names of this run taken out."""

    def run(*arguments: str) -> list[str]:
        if scene.epoch > 0:
            scene.beat()
        printed = tools.run(TOOL, "--bootstrap-server", scene.bootstrap, *arguments)
        for name, plain in ((scene.member_id, "MEMBER"), (scene.group, "GROUP"), (scene.topic, "TOPIC"),
                            (scene.bootstrap, "BROKER")):  # fmt: skip
            printed = printed.replace(name, plain)
        printed = re.sub(r"\(\d+\)", "(ID)", printed)
        lines = (re.sub(r"\s+", " ", line).strip() for line in printed.splitlines())
        return sorted(line for line in lines if line and not line.startswith("at "))  # not how the JVM got there

    group = ("--group", scene.group)
    yield [line for line in run("--list", "--state") if "GROUP" in line]
    yield run("--describe", "--offsets", *group)
    yield run("--describe", "--members", "--verbose", *group)
    yield run("--describe", "--state", "--verbose", *group)
    yield run("--delete", *group)
    yield run("--delete-offsets", "--topic", scene.topic, *group)
    yield run("--reset-offsets", "--to-latest", "--topic", scene.topic, "--execute", *group)
    scene.beat(epoch=-1)
    yield run("--reset-offsets", "--to-latest", "--topic", scene.topic, "--execute", *group)
    yield run("--describe", "--offsets", "--verbose", *group)
    yield run("--delete-offsets", "--topic", "missing", *group)
    yield run("--delete-offsets", "--topic", scene.topic, "--group", "missing")
    yield run("--delete-offsets", "--topic", scene.topic, *group)
    yield run("--delete", *group)


@pytest.mark.peer
@pytest.mark.slow
def test_kafka_share_groups(headrace_server: StartHeadrace, apache_kafka: str, tmp_path: Path) -> None:
    server = headrace_server(settings=SETTINGS)
    with kafka_tools(tmp_path) as tools:
        theirs = list(said(Scene(apache_kafka), tools))
        for told, expected in zip(said(Scene(server.bootstrap), tools), theirs, strict=True):
            assert told == expected


def records_of_states(directory: Path, logs: Path) -> list[tuple[str, dict[str, object]]]:
    """Type and value of each record of `__share_group_state`, as Kafka's decoder reads them."""
    (file,) = directory.glob("*.log")
    output = kafka.run_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--share-group-state-decoder", "--files", str(file), logs=logs
    )
    return [
        (json.loads(key)["type"], json.loads(value)["data"])
        for key, value in re.findall(r"key: (\{.*\}) payload: (\{.*\})$", output, re.MULTILINE)
    ]


@pytest.mark.slow
def test_what_kafkas_share_consumer_acknowledges_is_stored(headrace_server: StartHeadrace, tmp_path: Path) -> None:
    server = headrace_server(settings=SETTINGS | {"share.coordinator.snapshot.update.records.per.snapshot": "2"})
    scene = Scene(server.bootstrap)
    scene.beat(epoch=-1)
    partition = m.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition(
        partition_index=0, start_offset=0
    )
    topic = m.AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic(
        topic_name=scene.topic, partitions=[partition]
    )
    altered = scene.asker.ask(m.AlterShareGroupOffsetsRequest(group_id=scene.group, topics=[topic]), 0)
    assert altered.responses[0].partitions[0].error_code == ErrorCode.NONE
    printed = kafka.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer", "--bootstrap-server", server.bootstrap,
        "--topic", scene.topic, "--group", scene.group, "--max-messages", "3", logs=tmp_path,
    )  # fmt: skip
    assert printed.split() == ["value", "second", "third"]
    kinds = records_of_states(server.data / "__share_group_state-0", tmp_path)
    assert [each for each, _ in kinds] == ["0", "0", "1", "1"], "two beginnings, the leader's read, and its write"
    state = kinds[-1][1]
    assert (state["snapshotEpoch"], state["startOffset"], state["deliveryCompleteCount"]) == (1, 0, 3)
    assert state["stateBatches"] == [{"firstOffset": 0, "lastOffset": 2, "deliveryState": 2, "deliveryCount": 1}]
