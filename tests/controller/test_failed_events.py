"""An event whose writes fail is tried again until all that follows from it is done: nothing counts as seen before."""

from collections.abc import Callable

import pytest

from headrace.controller import candidate
from headrace.metadata import admin_nodes, znodes
from headrace.metastore.store import Create, Op, OpResult, StoreRefused
from headrace.types import BrokerId, TopicPartition
from tests.controller.paper_brokers import Cluster, create


@pytest.fixture(autouse=True)
def _retry_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate, "RETRY_S", 0.01)


def fail_writes(cluster: Cluster, is_meant: Callable[[Op], bool], times: int = 1) -> list[int]:
    """Has the metadata store refuse multis with such an operation, so many times; how many it has refused, as its
    length."""
    write, refused = cluster.store.multi, list[int]()

    async def refuse(ops: list[Op]) -> list[OpResult]:
        if len(refused) < times and any(map(is_meant, ops)):
            refused.append(1)
            raise StoreRefused("not now")
        return await write(ops)

    cluster.store.multi = refuse  # type: ignore[method-assign,assignment]
    return refused


async def test_a_broker_that_goes_while_the_tree_refuses_writes_is_succeeded_all_the_same(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (3, 2, 1)})
    await create(cluster, "u", {0: (3, 1)})
    refused = fail_writes(cluster, lambda op: op.path == znodes.partition_state("t", 0), times=2)
    cluster.forget()
    await cluster.go(3)

    async def has_moved() -> bool:
        return (await cluster.state("t")).leader == 2 and (await cluster.state("u")).leader == 1

    await cluster.until(has_moved)
    assert len(refused) == 2
    assert cluster.led(1) == ["t-0 2@1 [2, 1] [3, 2, 1]", "u-0 1@1 [1] [3, 1]"]


async def test_what_an_election_that_fails_has_written_is_told_with_what_the_next_one_writes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.controller.controller_epoch.OPS_PER_MULTI_MAX", 1)
    await create(cluster, "t", {0: (3, 2, 1)})
    await create(cluster, "u", {0: (3, 1)})
    fail_writes(cluster, lambda op: op.path == znodes.partition_state("u", 0))
    cluster.forget()
    await cluster.go(3)

    async def has_moved() -> bool:
        return (await cluster.state("u")).leader == 1

    await cluster.until(has_moved)
    assert sorted(cluster.led(1)) == ["t-0 2@1 [2, 1] [3, 2, 1]", "u-0 1@1 [1] [3, 1]"]


async def test_a_broker_that_comes_while_the_tree_refuses_writes_is_told_everything(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (3, 2)})
    await cluster.go(3)
    await create(cluster, "alone", {0: (2,)})
    await cluster.go(2)
    cluster.forget()
    fail_writes(cluster, lambda op: op.path.endswith("/state"))
    await cluster.come(2)

    async def leads() -> bool:
        return (await cluster.state("t")).leader == 2 and bool(cluster.led(2))

    await cluster.until(leads)
    assert [each.split(" [")[0] for each in cluster.led(2)] == ["t-0 2@3", "alone-0 2@2"]


async def test_a_topic_that_a_tool_made_while_the_tree_refuses_writes_gets_its_leader(cluster: Cluster) -> None:
    await create(cluster, "model", {0: (2, 3)})
    data = (await cluster.store.get(znodes.topic("model"))).data
    fail_writes(cluster, lambda op: op.path == znodes.partition_state("made", 0))
    await cluster.store.create(znodes.topic("made"), data)

    async def is_led() -> bool:
        return await cluster.store.exists(znodes.partition_state("made", 0)) is not None

    await cluster.until(is_led)
    assert "made-0 2@0 [2, 3] [2, 3]" in cluster.led(2)


async def test_partitions_that_a_tool_added_while_the_tree_refuses_writes_get_their_leaders(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (2, 3)})
    await create(cluster, "model", {0: (2, 3), 1: (3, 2)})
    grown = znodes.decode_topic("t", (await cluster.store.get(znodes.topic("model"))).data)
    fail_writes(cluster, lambda op: op.path == znodes.partition_state("t", 1))
    before = znodes.decode_topic("t", (await cluster.store.get(znodes.topic("t"))).data)
    await cluster.store.set(znodes.topic("t"), znodes.encode_topic(before._replace(partitions=grown.partitions)))

    async def is_led() -> bool:
        return await cluster.store.exists(znodes.partition_state("t", 1)) is not None

    await cluster.until(is_led)
    assert "t-1 3@0 [3, 2] [3, 2]" in cluster.led(2)


@pytest.mark.parametrize("refused", ["the reassignment", "its end"])
async def test_what_a_tool_wants_reassigned_while_the_tree_refuses_writes_is_reassigned(
    cluster: Cluster, refused: str
) -> None:
    await create(cluster, "t", {0: (2, 3)})
    path = znodes.topic("t") if refused == "the reassignment" else admin_nodes.REASSIGN_PARTITIONS
    refusals = fail_writes(cluster, lambda op: op.path == path and not isinstance(op, Create))
    target = {TopicPartition("t", 0): (BrokerId(3), BrokerId(2))}
    await cluster.store.create(admin_nodes.REASSIGN_PARTITIONS, admin_nodes.encode_reassignment(target))

    async def is_done() -> bool:
        topic = znodes.decode_topic("t", (await cluster.store.get(znodes.topic("t"))).data)
        is_there = await cluster.store.exists(admin_nodes.REASSIGN_PARTITIONS) is not None
        return topic.partitions[0].replicas == (3, 2) and not is_there

    await cluster.until(is_done)
    assert refusals
