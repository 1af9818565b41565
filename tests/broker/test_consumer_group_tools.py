"""Apache Kafka's kafka-groups and kafka-consumer-groups say the same of a group of KIP-848 here and there."""

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

GROUPS = "org.apache.kafka.tools.GroupsCommand"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
LEAVING = -1
RESETS = (
    *(("--to-earliest",), ("--to-latest",), ("--to-current",), ("--to-offset", "2"), ("--to-offset", "9")),
    *(
        ("--shift-by", "-1"),
        ("--shift-by", "9"),
        ("--to-datetime", "2020-01-01T00:00:00.000"),
        ("--by-duration", "PT0S"),
    ),
)


class Scene:
    """A topic of three records, and a group with a member that has read one of them."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap, self.topic = bootstrap, a_topic(bootstrap)
        with Wire(bootstrap) as wire:
            wire.produce(self.topic, batch([b"second", b"third"]))
        self.group, self.member_id = f"group-{uuid.uuid4().hex[:8]}", str(uuid.uuid4())
        self.asker, self.epoch = Asker(bootstrap), 0
        self.owns_partitions = False
        eventually(self._joins, "partitions of the member")
        self._commit(1)

    def beat(self, epoch: int | None = None) -> None:
        """One heartbeat; the first one joins."""
        fields: dict[str, object] = {}
        if self.epoch == 0:
            fields = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [self.topic], "topic_partitions": []}
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            **fields,  # type: ignore[arg-type]
        )
        answer = self.asker.ask(request, 1)
        if answer.error_code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            return
        assert answer.error_code == ErrorCode.NONE, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owns_partitions = bool(answer.assignment.topic_partitions)

    def _joins(self) -> bool:
        request = m.FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
        if self.asker.ask(request, 4).coordinators[0].error_code == ErrorCode.NONE:
            self.beat()
        return self.owns_partitions

    def _commit(self, offset: int) -> None:
        Topic = m.OffsetCommitRequest.OffsetCommitRequestTopic
        Partition = m.OffsetCommitRequest.OffsetCommitRequestPartition
        partition = Partition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = m.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            topics=[Topic(name=self.topic, partitions=[partition])],
        )
        assert self.asker.ask(request, 9).topics[0].partitions[0].error_code == ErrorCode.NONE


def said(scene: Scene, tools: Tools, directory: Path) -> Iterator[tuple[str, list[str]]]:
    """Each command, and the lines that it prints, as words; names of this run taken out."""
    names = {scene.member_id: "MEMBER", scene.group: "GROUP", scene.topic: "TOPIC", scene.bootstrap: "BROKER"}

    def run(tool: str, *arguments: str) -> tuple[str, list[str]]:
        if scene.epoch > 0:
            scene.beat()
        printed = tools.run(tool, "--bootstrap-server", scene.bootstrap, *arguments)
        command = " ".join(arguments)
        for name, plain in names.items():
            printed, command = printed.replace(name, plain), command.replace(name, plain)
        printed = re.sub(r"\(\d+\)|-Dkafka\S*", "(ID)", printed)
        lines = (re.sub(r"\s+", " ", line).strip() for line in printed.splitlines())
        lines = (line for line in lines if line and not line.startswith("at "))
        if "--list" in arguments:  # other tests use the same peer
            lines = (line for line in lines if "GROUP" in line)
        return command, sorted(lines)

    def groups(*arguments: str) -> tuple[str, list[str]]:
        return run(GROUPS, *arguments)

    def consumer_groups(*arguments: str) -> tuple[str, list[str]]:
        return run(CONSUMER_GROUPS, *arguments)

    group, topic = ("--group", scene.group), ("--topic", scene.topic)
    yield groups("--list")
    for kind in (
        ("--consumer",),
        ("--group-type", "consumer"),
        ("--group-type", "classic"),
        ("--protocol", "consumer"),
    ):
        yield groups("--list", *kind)
    for what in ((), ("--state",), ("--type",), ("--state", "Stable", "--type", "consumer"), ("--state", "Empty")):
        yield consumer_groups("--list", *what)
    for what in (("--offsets",), ("--members",), ("--members", "--verbose"), ("--state",), ("--state", "--verbose")):
        yield consumer_groups("--describe", *what, *group)
    yield consumer_groups("--describe", "--offsets", "--verbose", *group)
    yield consumer_groups("--describe", "--members", "--group", "no-such-group")
    yield consumer_groups("--delete", *group)
    yield consumer_groups("--delete-offsets", *topic, *group)
    yield consumer_groups("--reset-offsets", "--to-latest", *topic, "--execute", *group)
    scene.beat(LEAVING)
    yield consumer_groups("--describe", "--state", *group)
    for where in RESETS:
        yield consumer_groups("--reset-offsets", *where, *topic, "--dry-run", *group)
        yield consumer_groups("--reset-offsets", *where, "--topic", f"{scene.topic}:0", "--execute", *group)
        yield consumer_groups("--describe", "--offsets", *group)
    yield consumer_groups("--reset-offsets", "--to-earliest", "--all-topics", "--execute", *group)
    plan = directory / f"{scene.group}.csv"
    plan.write_text(f'"{scene.topic}",0,1\n')
    names[str(plan)] = "FILE"
    yield consumer_groups("--reset-offsets", "--from-file", str(plan), "--execute", *group)
    yield consumer_groups("--reset-offsets", "--to-current", "--all-topics", "--export", "--dry-run", *group)
    yield consumer_groups("--describe", "--offsets", *group)
    yield consumer_groups("--delete-offsets", *topic, *group)
    yield consumer_groups("--describe", "--offsets", *group)
    yield consumer_groups("--delete", *group)
    yield consumer_groups("--delete", *group)
    yield consumer_groups("--list")


@pytest.mark.peer
@pytest.mark.slow
def test_kafkas_tools_say_the_same(headrace_server: StartHeadrace, apache_kafka: str, tmp_path: Path) -> None:
    server = headrace_server(settings=kafka.SHARED_SETTINGS)
    with kafka_tools(tmp_path) as tools:
        theirs = list(said(Scene(apache_kafka), tools, tmp_path))
        ours = list(said(Scene(server.bootstrap), tools, tmp_path))
    assert [each for each, expected in zip(ours, theirs, strict=True) if each != expected] == [
        expected for each, expected in zip(ours, theirs, strict=True) if each != expected
    ]
    assert all(lines for command, lines in theirs if "--describe" in command), theirs
