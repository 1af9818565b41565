"""Topics from a wish to a leader that serves, on one broker with real files; and back after a restart."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.broker.cluster.fenced_metadata import FencedMetadata
from headrace.controller import controller_epoch as epoch_module
from headrace.controller.controller import NotController
from headrace.controller.decisions.topics import RequestedTopic, TopicOutcome
from headrace.errors import ErrorCode, KafkaError, NotLeaderOrFollower, UnknownTopicOrPartition
from headrace.metadata import znodes
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition
from tests.controller.node import BROKER, Node
from tests.eventually import eventually_async


async def make(node: Node, name: str, partitions: int = 1, **configs: str) -> TopicOutcome:
    wish = RequestedTopic(name, partitions, configs={key.replace("_", "."): text for key, text in configs.items()})
    made = (await node.controller.create_topics([wish]))[name]
    assert isinstance(made, TopicOutcome), made
    return made


async def test_a_new_topic_has_leaders_metadata_and_files_when_the_answer_is_there(node: Node, tmp_path: Path) -> None:
    made = await make(node, "flights", 3)
    assert (made.num_partitions, made.replication_factor, len(made.topic_id)) == (3, 1, 16)
    for number in range(3):
        partition = node.replicas.leader("flights", number)
        assert (partition.leader_epoch, partition.high_watermark) == (0, 0)
        assert partition.log.topic_id == made.topic_id
        assert (tmp_path / f"flights-{number}").is_dir()
    topic = node.metadata.topic("flights")
    assert topic is not None and topic == node.metadata.topic_by_id(made.topic_id)
    assert [(each.leader, each.isr, each.replicas) for each in topic.partitions.values()] == [(0, (0,), (0,))] * 3
    assert node.metadata.controller_id == 0
    assert node.metadata.endpoint(BrokerId(0), "PLAINTEXT") == ("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")


async def test_the_tree_says_what_kafkas_tools_expect(node: Node) -> None:
    await make(node, "t", 2, retention_ms="-1")
    assert (await node.store.get(znodes.config("topics", "t"))).data == b'{"version":1,"config":{"retention.ms":"-1"}}'
    topic = znodes.decode_topic("t", (await node.store.get(znodes.topic("t"))).data)
    assert {number: each.replicas for number, each in topic.partitions.items()} == {0: (0,), 1: (0,)}
    state = await node.store.get("/brokers/topics/t/partitions/1/state")
    assert state.data == b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}'
    assert (await node.store.get("/controller_epoch")).data == b"1"
    assert (await node.store.get("/brokers/ids/0")).ephemeral_owner == (
        await node.store.get("/controller")
    ).ephemeral_owner


async def test_validate_only_makes_nothing(node: Node) -> None:
    made = await node.controller.create_topics([RequestedTopic("t", 4)], validate_only=True)
    assert made["t"] == TopicOutcome(bytes(16), 4, 1)
    assert node.metadata.topic("t") is None
    assert await node.store.exists(znodes.topic("t")) is None


async def test_each_wish_has_its_own_outcome(node: Node) -> None:
    wishes = [
        RequestedTopic("a.b"),
        RequestedTopic("a_b"),
        RequestedTopic("a/b"),
        RequestedTopic("r", replication_factor=2),
        RequestedTopic("ok"),
    ]
    outcomes = await node.controller.create_topics(wishes)
    codes = {name: each.code if isinstance(each, KafkaError) else None for name, each in outcomes.items()}
    assert codes == {
        "a.b": None,
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "r": ErrorCode.INVALID_REPLICATION_FACTOR,
        "ok": None,
    }
    assert set(node.metadata.topics) == {"a.b", "ok"}


async def test_a_topics_settings_reach_its_log_and_follow_changes(node: Node) -> None:
    await make(node, "t", retention_ms="5000")
    partition = node.replicas.leader("t", 0)
    assert partition.log.config.retention_ms == 5000
    await node.configs.alter("t", {"retention.ms": None, "min.insync.replicas": "2"})
    assert partition.log.config.retention_ms == 7 * 24 * 3600 * 1000
    assert partition.state.min_insync_replicas == 2
    assert node.replicas.topic_overrides("t") == {"min.insync.replicas": "2"}


async def test_a_deleted_topic_is_gone_everywhere_and_can_be_made_again_with_another_id(node: Node) -> None:
    first = await make(node, "t", 2, retention_ms="5000")
    partition = node.replicas.leader("t", 0)
    node.touched.clear()
    outcome = await node.controller.delete_topics(["t", "nope"])
    assert outcome["t"] == first
    assert isinstance(outcome["nope"], KafkaError) and outcome["nope"].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert node.metadata.topic("t") is None and node.metadata.topic_by_id(first.topic_id) is None
    assert set(node.touched) == {("t", 0), ("t", 1)} and not partition.is_leader
    with pytest.raises(UnknownTopicOrPartition):
        node.replicas.get("t", 0)
    gone = [znodes.topic("t"), znodes.config("topics", "t"), znodes.delete_topic("t")]
    assert await node.store.get_many(gone) == [None] * 3
    second = await make(node, "t")
    assert second.topic_id != first.topic_id
    assert node.replicas.leader("t", 0).log.config.retention_ms != 5000


async def test_after_a_restart_everything_is_led_again_in_a_new_epoch(tmp_path: Path) -> None:
    node = await Node.start(tmp_path)
    made = await make(node, "t", 2, min_insync_replicas="3")
    cluster_id = node.cluster_id
    await node.close()
    node = await Node.start(tmp_path)
    assert node.cluster_id == cluster_id and len(cluster_id) == 22
    partition = node.replicas.leader("t", 1)
    assert (partition.leader_epoch, partition.state.partition_epoch) == (1, 1)
    assert partition.log.topic_id == made.topic_id
    assert partition.state.min_insync_replicas == 3
    assert node.controller.epoch == 2
    await node.close()


async def test_a_partition_without_a_state_is_elected_as_a_new_one(tmp_path: Path) -> None:
    node = await Node.start(tmp_path)
    await make(node, "t", 2)
    await node.store.delete("/brokers/topics/t/partitions/1/state")
    await node.close()
    node = await Node.start(tmp_path)
    assert [node.replicas.leader("t", number).leader_epoch for number in (0, 1)] == [1, 0]
    await node.store.delete("/brokers/topics/t/partitions/1/state")
    await node.store.delete("/brokers/topics/t/partitions/1")
    await node.close()
    node = await Node.start(tmp_path)
    assert node.replicas.leader("t", 1).leader_epoch == 0
    await node.close()


async def test_a_deletion_that_was_begun_is_finished_by_the_next_controller(tmp_path: Path) -> None:
    node = await Node.start(tmp_path)
    await make(node, "t", 2)
    await node.store.create(znodes.delete_topic("t"))
    await node.store.delete("/brokers/topics/t/partitions/0/state")
    await node.close()
    node = await Node.start(tmp_path)
    assert node.metadata.topic("t") is None

    async def is_gone() -> bool:
        return await node.store.get_many([znodes.topic("t"), znodes.delete_topic("t")]) == [None, None]

    await eventually_async(is_gone, "the end of the deletion")
    assert await make(node, "t")
    await node.close()


async def test_a_controller_that_was_replaced_writes_nothing(node: Node) -> None:
    await node.store.set(znodes.CONTROLLER_EPOCH, b"9")
    with pytest.raises(NotController):
        await node.controller.create_topics([RequestedTopic("t")])
    assert await node.store.exists(znodes.topic("t")) is None
    assert not node.controller.is_active


async def test_a_controller_whose_node_is_deleted_stands_again_in_a_higher_epoch(node: Node) -> None:
    await node.store.delete(znodes.CONTROLLER)
    assert await make(node, "t")
    assert (node.controller.epoch, node.controller.is_active) == (2, True)


async def test_deletion_can_be_disabled(tmp_path: Path) -> None:
    node = await Node.start(tmp_path, delete_enabled=False)
    await make(node, "t")
    outcome = (await node.controller.delete_topics(["t"]))["t"]
    assert isinstance(outcome, KafkaError) and outcome.code is ErrorCode.TOPIC_DELETION_DISABLED
    await node.close()


async def test_a_broker_refuses_an_older_controller_and_a_request_for_its_earlier_life(node: Node) -> None:
    await make(node, "t")
    await node.store.delete(znodes.CONTROLLER)
    await make(node, "u")
    stale = node.sent[0]
    assert (await node.control.handle(stale)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    dead = m.UpdateMetadataRequest(controller_epoch=2, broker_epoch=node.control.broker_epoch - 1)
    assert (await node.control.handle(dead)).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert set(node.metadata.topics) == {"t", "u"}


async def test_a_fenced_broker_refuses_what_was_under_way_to_its_registration(node: Node) -> None:
    await make(node, "t")
    under_way = next(each for each in node.sent if isinstance(each, m.LeaderAndIsrRequest))
    under_way.topic_states[0].partition_states[0].partition_epoch += 1
    was_reached = node.control.is_reached
    node.control.refuse_fenced()
    node.replicas.step_down()
    assert (was_reached, node.control.is_reached) == (True, False)
    assert (await node.control.handle(under_way)).error_code == ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(NotLeaderOrFollower):
        node.replicas.leader("t", 0)


async def test_a_leader_that_only_metadata_tells_of_its_successor_steps_down(node: Node) -> None:
    """Its replica was moved away while it was unreachable, so neither LeaderAndIsr nor StopReplica came."""
    await make(node, "t")
    told = [each for each in node.sent if isinstance(each, m.UpdateMetadataRequest) and each.topic_states][-1]
    [state] = told.topic_states[0].partition_states = list(told.topic_states[0].partition_states)
    announced: list[object] = []
    node.replicas.on_leadership(lambda key, partition: announced.append((key, partition)))
    state.leader, state.isr, state.replicas = 7, [7], [7]
    node.metadata.apply(told)  # the same leader epoch: a LeaderAndIsr may be on its way
    assert node.replicas.leader("t", 0).is_leader
    state.leader_epoch += 1
    state.leader = -1
    node.metadata.apply(told)
    with pytest.raises(NotLeaderOrFollower):
        node.replicas.leader("t", 0)
    assert announced == [(TopicPartition("t", 0), node.replicas.get("t", 0))]


async def test_a_leader_steps_down_for_no_metadata_of_its_own_leadership(node: Node) -> None:
    await make(node, "t")
    told = [each for each in node.sent if isinstance(each, m.UpdateMetadataRequest) and each.topic_states][-1]
    told.topic_states[0].partition_states[0].leader_epoch += 1
    node.metadata.apply(told)
    assert node.replicas.leader("t", 0).is_leader


async def test_a_broker_whose_session_ended_finds_its_successors_without_a_controller(node: Node) -> None:
    """The controller may be waiting for the metadata store. A leader of the past answers with offsets of the past."""
    await make(node, "t", 2)
    node.control.refuse_fenced()  # no controller has reached the registration yet
    path = znodes.partition_state("t", 1)
    state = json.loads((await node.store.get(path)).data)
    await node.store.set(path, json.dumps(state | {"leader": 7, "isr": [7], "leader_epoch": 1}).encode())
    announce = node.replicas.announce_stepped_down
    reader = FencedMetadata(BROKER.id, node.store, node.metadata, node.control, asyncio.ensure_future, announce)
    reader.look()
    await eventually_async(lambda: not node.replicas.get("t", 1).is_leader)
    reader.close()
    assert node.replicas.leader("t", 0).is_leader
    known = node.metadata.partition("t", 1)
    assert known is not None
    assert (known.leader, known.leader_epoch) == (7, 1)


async def test_an_older_leader_epoch_is_refused_for_that_partition_alone(node: Node) -> None:
    await make(node, "t")
    told = next(each for each in node.sent if isinstance(each, m.LeaderAndIsrRequest))
    again = await node.control.handle(told)
    assert isinstance(again, m.LeaderAndIsrResponse)
    assert again.topics[0].partition_errors[0].error_code == ErrorCode.NONE
    [state] = told.topic_states[0].partition_states = list(told.topic_states[0].partition_states)
    state.leader_epoch = -1
    old = await node.control.handle(told)
    assert isinstance(old, m.LeaderAndIsrResponse)
    assert old.topics[0].partition_errors[0].error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert node.replicas.leader("t", 0).leader_epoch == 0


async def test_many_partitions_are_written_in_several_multis(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch_module, "OPS_PER_MULTI_MAX", 5)
    assert (await make(node, "wide", 12)).num_partitions == 12
    assert all(node.replicas.leader("wide", number).is_leader for number in range(12))
    await node.controller.delete_topics(["wide"])
    assert await node.store.children(znodes.TOPICS) == []


CHILD = """
import asyncio, sys
from pathlib import Path
from headrace.controller.decisions.topics import RequestedTopic
from tests.controller.node import BROKER, Node
from tests.eventually import eventually_async

async def main():
    node = await Node.start(Path(sys.argv[1]))
    print("ready", flush=True)
    for number in range(1000):
        name = f"{sys.argv[2]}-{number}"
        await node.controller.create_topics([RequestedTopic(name, 2)])
        if number % 3 == 2:
            await node.controller.delete_topics([name])
        print(number, flush=True)

asyncio.run(main())
"""


def create_until_killed(directory: Path, prefix: str) -> int:
    """Makes topics, deletes every third, in a process that is killed; how many were answered."""
    arguments = [sys.executable, "-c", CHILD, str(directory), prefix]
    child = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    for _ in range(4):
        child.stdout.readline()
    child.send_signal(signal.SIGKILL)
    left = child.stdout.read().split()
    child.wait()
    return 4 + len(left)


@pytest.mark.slow
async def test_topics_that_were_answered_survive_kill_9_and_deleted_ones_stay_deleted(tmp_path: Path) -> None:
    for prefix in ("a", "b", "c"):
        answered = create_until_killed(tmp_path, prefix)
        node = await Node.start(tmp_path)
        for number in range(answered):
            topic = node.metadata.topic(f"{prefix}-{number}")
            if number % 3 == 2:
                assert topic is None
            else:
                assert topic is not None
                assert [node.replicas.leader(topic.name, each).log.topic_id for each in (0, 1)] == [topic.id] * 2
        assert await node.store.children(znodes.DELETE_TOPICS) == []
        assert {str(partition.key) for partition in node.replicas} == {
            f"{topic.name}-{number}" for topic in node.metadata.topics.values() for number in topic.partitions
        }
        await node.close()
