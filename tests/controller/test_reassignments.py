"""Partitions that move to other brokers, step by step, as clients and Kafka's ZooKeeper-mode tool ask for it."""

import pytest

from headrace.controller.controller import Controller
from headrace.controller.decisions.topics import TopicDefaults
from headrace.errors import ErrorCode
from headrace.metadata import admin_nodes, znodes
from headrace.metadata.model import Replicas
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition
from tests.controller.paper_brokers import Cluster, create
from tests.controller.test_leaders import alter

T = TopicPartition("t", 0)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


async def replicas(cluster: Cluster, topic: str = "t", number: int = 0) -> Replicas:
    """What the metadata store says."""
    return znodes.decode_topic(topic, (await cluster.store.get(znodes.topic(topic))).data).partitions[number]


async def move(cluster: Cluster, *target: int, cancel: bool = False) -> ErrorCode:
    """What became of a wish for `t-0`."""
    outcomes = await cluster.controller.alter_reassignments({T: None if cancel else ids(*target)})
    error = outcomes[T]
    await cluster.settle()
    return ErrorCode.NONE if error is None else error.code


async def test_a_partition_moves_when_the_new_replicas_have_caught_up(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (1, 2)})
    cluster.forget()
    assert await move(cluster, 3, 2) is ErrorCode.NONE
    assert await replicas(cluster) == Replicas(ids(3, 2, 1), ids(3), ids(1))
    assert cluster.led(1) == cluster.led(2) == cluster.led(3) == ["t-0 1@1 [1, 2] [3, 2, 1]"]
    first = cluster.told[3][0]
    assert isinstance(first, m.LeaderAndIsrRequest)
    (told,) = first.topic_states[0].partition_states
    assert (told.is_new, told.adding_replicas, told.removing_replicas) == (True, [3], [1])
    assert await cluster.controller.list_reassignments() == {T: Replicas(ids(3, 2, 1), ids(3), ids(1))}
    cluster.forget()
    await alter(cluster, 1, 1, 2, 3)
    await cluster.settle()
    assert await replicas(cluster) == Replicas(ids(3, 2))
    state = await cluster.state("t")
    assert (state.leader, state.leader_epoch, set(state.isr)) == (3, 2, {2, 3})
    assert cluster.stopped(1) == ["t-0 deleted"]
    assert cluster.stopped(2) == cluster.stopped(3) == cluster.led(1) == []
    assert cluster.led(3) == ["t-0 3@2 [2, 3] [3, 2]"]
    assert cluster.metadata(1).topic_states[0].partition_states[0].replicas == [3, 2]
    assert await cluster.controller.list_reassignments() == {}


async def test_a_new_order_of_the_same_replicas_is_done_at_once(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (1, 2)})
    assert await move(cluster, 2, 1) is ErrorCode.NONE
    assert await replicas(cluster) == Replicas(ids(2, 1))
    assert (await cluster.state("t")).leader == 1


async def test_a_reassignment_is_cancelled_also_when_a_new_replica_leads_by_then(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (1, 2)})
    await move(cluster, 3)
    await cluster.go(2)
    await alter(cluster, 1, 1)
    await cluster.come(2)
    cluster.forget()
    assert await move(cluster, cancel=True) is ErrorCode.NONE
    assert await replicas(cluster) == Replicas(ids(1, 2))
    assert cluster.stopped(3) == ["t-0 deleted"]
    assert (await cluster.state("t")).isr == (1,)
    assert await move(cluster, cancel=True) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_another_target_drops_who_was_added_for_the_first(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (1,)})
    await move(cluster, 2)
    cluster.forget()
    assert await move(cluster, 3) is ErrorCode.NONE
    assert await replicas(cluster) == Replicas(ids(3, 1), ids(3), ids(1))
    assert cluster.stopped(2) == ["t-0 deleted"]


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((-1,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_what_is_no_target(cluster: Cluster, target: tuple[int, ...], error: ErrorCode) -> None:
    await create(cluster, "t", {0: (1, 2)})
    assert await move(cluster, *target) is error
    assert await replicas(cluster) == Replicas(ids(1, 2))


async def test_the_number_of_replicas_may_be_forbidden_to_change(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (1, 2)})
    outcomes = await cluster.controller.alter_reassignments(
        {T: ids(3), TopicPartition("nope", 0): ids(1)}, keep_factor=True
    )
    assert [error.code for error in outcomes.values() if error is not None] == [
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def test_another_controller_goes_on_with_what_was_begun(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (1, 2)})
    await move(cluster, 3, 2)
    await cluster.controller.close()
    await cluster.store.delete(znodes.CONTROLLER)
    state = await cluster.state("t")
    node = await cluster.store.get(znodes.partition_state("t", 0))
    grown = znodes.encode_leadership(state._replace(isr=ids(1, 2, 3)))
    await cluster.store.set(znodes.partition_state("t", 0), grown, node.version)
    other = Controller(
        cluster.store,
        BrokerId(2),
        send=cluster.send,
        configs=cluster.configs,
        now_ms=lambda: 0,
        defaults=TopicDefaults(),
    )
    await other.start()
    try:
        assert await replicas(cluster) == Replicas(ids(3, 2))
        assert (await cluster.state("t")).leader == 3
    finally:
        await other.close()


async def test_a_tool_has_partitions_moved_by_a_node_that_goes_when_it_is_done(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (1, 2)})
    targets = {T: ids(3, 2), TopicPartition("nope", 0): ids(1)}
    await cluster.store.create(admin_nodes.REASSIGN_PARTITIONS, admin_nodes.encode_reassignment(targets))

    async def has_begun() -> bool:
        node = await cluster.store.get(admin_nodes.REASSIGN_PARTITIONS)
        return admin_nodes.decode_reassignment(node.data) == {T: ids(3, 2)}

    await cluster.until(has_begun)
    assert await replicas(cluster) == Replicas(ids(3, 2, 1), ids(3), ids(1))
    await alter(cluster, 1, 1, 2, 3)
    await cluster.settle()
    assert await replicas(cluster) == Replicas(ids(3, 2))
    assert await cluster.store.exists(admin_nodes.REASSIGN_PARTITIONS) is None
    again = admin_nodes.encode_reassignment({T: ids(2, 3)})
    await cluster.store.create(admin_nodes.REASSIGN_PARTITIONS, again)

    async def is_done() -> bool:
        return await cluster.store.exists(admin_nodes.REASSIGN_PARTITIONS) is None

    await cluster.until(is_done)
    assert await replicas(cluster) == Replicas(ids(2, 3))


async def test_a_deletion_ends_a_reassignment_and_reaches_every_replica(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (1, 2)})
    await move(cluster, 3, 2)
    await cluster.controller.delete_topics(["t"])
    assert [cluster.stopped(broker) for broker in (1, 2, 3)] == [["t-0 deleted"]] * 3
    assert await cluster.store.exists(znodes.topic("t")) is None
