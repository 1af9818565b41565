"""What Kafka's ZooKeeper-mode tools write into the metadata store, and what the controller makes of it."""

import pytest

from headrace.controller.decisions.topics import RequestedTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata import admin_nodes, znodes
from headrace.metadata.model import NO_UUID, Replicas, Topic
from headrace.types import BrokerId
from tests.controller.paper_brokers import Cluster, create
from tests.controller.test_leaders import alter

GARBAGE = (b"", b"[]", b"{", b'{"partitions":7}', b'{"partitions":[{"topic":1,"partition":0}]}', b"\xff")


def assigned(*replicas: tuple[int, ...]) -> dict[int, Replicas]:
    return {number: Replicas(tuple(BrokerId(each) for each in brokers)) for number, brokers in enumerate(replicas)}


async def test_a_topic_that_a_tool_assigned_gets_an_id_leaders_and_is_told(cluster: Cluster) -> None:
    tool = b'{"version":1,"partitions":{"0":[2,3],"1":[3,1]}}'
    await cluster.store.create(znodes.topic("t"), tool)

    async def is_led() -> bool:
        return await cluster.store.exists(znodes.partition_state("t", 1)) is not None

    await cluster.until(is_led)
    topic = znodes.decode_topic("t", (await cluster.store.get(znodes.topic("t"))).data)
    assert topic.id != NO_UUID and topic.partitions == assigned((2, 3), (3, 1))
    assert cluster.led(3) == ["t-0 2@0 [2, 3] [2, 3]", "t-1 3@0 [3, 1] [3, 1]"]
    assert cluster.metadata(1).topic_states[0].topic_id == topic.id
    again = (await cluster.controller.create_topics([_wish("t")]))["t"]
    assert isinstance(again, KafkaError) and again.code is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_partitions_that_a_tool_added_get_leaders_and_the_others_stay_as_they_are(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3)})
    cluster.forget()
    known = znodes.decode_topic("t", (await cluster.store.get(znodes.topic("t"))).data)
    grown = Topic("t", known.id, assigned((1, 2), (3, 1)))  # nobody reassigns this way: of t-0 it says something new
    await cluster.settle()

    async def is_watched() -> bool:
        await cluster.store.set(znodes.topic("t"), znodes.encode_topic(grown))
        return await cluster.store.exists(znodes.partition_state("t", 1)) is not None

    await cluster.until(is_watched)
    assert cluster.led(1) == ["t-1 3@0 [3, 1] [3, 1]"]
    assert cluster.led(2) == []


async def test_a_marked_topic_is_deleted_and_the_mark_on_none_is_taken_away(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3)})
    await cluster.store.create(znodes.delete_topic("t"))
    await cluster.store.create(znodes.delete_topic("nope"))

    async def are_gone() -> bool:
        return await cluster.store.children(znodes.DELETE_TOPICS) == []

    await cluster.until(are_gone)
    assert await cluster.store.exists(znodes.topic("t")) is None
    assert cluster.stopped(2) == ["t-0 deleted"]


async def test_preferred_leaders_are_elected_and_the_node_goes(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3)})
    await cluster.go(2)
    await cluster.come(2)
    await alter(cluster, 3, 3, 2)
    wanted = b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"nope","partition":3}]}'
    await cluster.store.create(admin_nodes.PREFERRED_ELECTION, wanted)

    async def is_done() -> bool:
        return await cluster.store.exists(admin_nodes.PREFERRED_ELECTION) is None

    await cluster.until(is_done)
    assert (await cluster.state("t")).leader == 2


@pytest.mark.parametrize("node", [admin_nodes.PREFERRED_ELECTION, admin_nodes.REASSIGN_PARTITIONS])
@pytest.mark.parametrize("data", GARBAGE)
async def test_garbage_is_taken_away(cluster: Cluster, node: str, data: bytes) -> None:
    await cluster.store.create(node, data)

    async def is_gone() -> bool:
        return await cluster.store.exists(node) is None

    await cluster.until(is_gone)
    await create(cluster, "t", {0: (2, 3)})


@pytest.mark.parametrize("parent", [admin_nodes.ISR_CHANGES, admin_nodes.LOG_DIR_EVENTS])
async def test_notifications_of_garbage_are_taken_away(cluster: Cluster, parent: str) -> None:
    for data in GARBAGE:
        await cluster.store.create(f"{parent}/n", data, sequential=True)

    async def are_gone() -> bool:
        return await cluster.store.children(parent) == []

    await cluster.until(are_gone)
    await create(cluster, "t", {0: (2, 3)})


async def test_a_topic_of_garbage_harms_no_other_not_even_at_the_next_election(cluster: Cluster) -> None:
    for number, data in enumerate((*GARBAGE, b'{"version":1,"partitions":{}}', b'{"version":1,"partitions":{"0":[]}}')):
        await cluster.store.create(znodes.topic(f"g{number}"), data)
    await create(cluster, "t", {0: (2, 3)})
    await cluster.store.delete(znodes.CONTROLLER)

    async def is_elected_again() -> bool:
        return cluster.controller.is_active and cluster.controller.epoch == 2

    await cluster.until(is_elected_again)
    await create(cluster, "u", {0: (2, 3)})


async def test_a_registration_of_nobody_keeps_no_controller_from_taking_over(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("garbage", "-1", "٣"):
        await cluster.store.create(f"{znodes.BROKER_IDS}/{name}", b"{}")
    await cluster.store.delete(znodes.CONTROLLER)

    async def is_elected_again() -> bool:
        return cluster.controller.is_active and cluster.controller.epoch == 2

    await cluster.until(is_elected_again)
    await create(cluster, "t", {0: (2, 3)})
    assert "/brokers/ids/garbage is no broker's registration" in caplog.text


async def test_a_topic_that_was_taken_out_of_the_tree_is_forgotten(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3)})
    await create(cluster, "u", {0: (2, 3)})
    for below in (
        znodes.partition_state("t", 0),
        znodes.partition("t", 0),
        znodes.partitions("t"),
        znodes.config("topics", "t"),
        znodes.topic("t"),
    ):
        await cluster.store.delete(below)

    async def can_be_made() -> bool:
        return not isinstance((await cluster.controller.create_topics([_wish("t")]))["t"], KafkaError)

    await cluster.until(can_be_made)


def _wish(name: str) -> RequestedTopic:
    return RequestedTopic(name, 1, 1)
