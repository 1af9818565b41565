"""Requests for thousands of topics do not keep the controller from what cannot wait."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from headrace.controller.decisions.add_partitions import NewPartitions
from headrace.controller.decisions.topics import RequestedTopic, TopicOutcome
from headrace.controller.managers.topic_manager import TopicManager
from headrace.metadata import znodes
from headrace.types import BrokerId, TopicPartition
from tests.controller.paper_brokers import Cluster, create
from tests.eventually import eventually_async

NAMES = [f"n{number}" for number in range(200)]


async def topic_count(cluster: Cluster) -> int:
    return len(await cluster.store.children(znodes.TOPICS))


async def make_topics(cluster: Cluster) -> None:
    """t, led by broker 3, and many on broker 1."""
    await create(cluster, "t", {0: (3, 2)})
    wishes = [RequestedTopic(name, assignments={0: (BrokerId(1),)}) for name in NAMES]
    assert all(isinstance(each, TopicOutcome) for each in (await cluster.controller.create_topics(wishes)).values())


async def fail_over_during(cluster: Cluster, request: Awaitable[object]) -> None:
    """Begins the request, and returns once the controller has handled the death of broker 3."""
    running = asyncio.ensure_future(request)
    await asyncio.sleep(0)
    await cluster.store.delete(znodes.broker(3))

    async def is_led_by_another() -> bool:
        return (await cluster.state("t")).leader == 2

    await eventually_async(is_led_by_another, "broker 2 leads")
    assert not running.done()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_a_dead_leader_is_replaced_while_thousands_of_topics_are_created(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (3, 2)})
    await fail_over_during(
        cluster, cluster.controller.create_topics([RequestedTopic(f"n{each}") for each in range(2_000)])
    )
    assert await topic_count(cluster) < 1_000


async def test_a_dead_leader_is_replaced_while_many_topics_get_partitions(cluster: Cluster) -> None:
    await make_topics(cluster)
    await fail_over_during(cluster, cluster.controller.create_partitions([NewPartitions(each, 2) for each in NAMES]))
    assert await cluster.store.exists(znodes.partition(NAMES[-1], 1)) is None


async def test_a_dead_leader_is_replaced_while_many_topics_are_deleted(cluster: Cluster) -> None:
    await make_topics(cluster)
    deleting = asyncio.ensure_future(cluster.controller.delete_topics(NAMES))
    marked = znodes.delete_topic(NAMES[0])
    await eventually_async(lambda: cluster.store.exists(marked), "the first topic is marked", every_s=0.001)
    await fail_over_during(cluster, deleting)
    assert await cluster.store.exists(znodes.delete_topic(NAMES[-1])) is None
    assert await cluster.store.exists(znodes.topic(NAMES[-1])) is not None


async def test_a_dead_leader_is_replaced_while_the_nodes_of_many_topics_are_deleted(cluster: Cluster) -> None:
    """A broker that was not reachable deletes its replicas of all topics at once."""
    await make_topics(cluster)
    cluster.unreachable.add(1)
    deleting = asyncio.ensure_future(cluster.controller.delete_topics(NAMES))
    marked = znodes.delete_topic(NAMES[-1])
    await eventually_async(lambda: cluster.store.exists(marked), "all topics are marked")
    cluster.unreachable.clear()

    async def is_first_gone() -> bool:
        return await cluster.store.exists(znodes.topic(NAMES[0])) is None

    await eventually_async(is_first_gone, "the first topic is gone", every_s=0.001)
    await fail_over_during(cluster, deleting)
    assert await cluster.store.exists(znodes.topic(NAMES[-1])) is not None


async def test_a_dead_leader_is_replaced_while_many_topics_are_reassigned(cluster: Cluster) -> None:
    await make_topics(cluster)
    targets = {TopicPartition(name, 0): (BrokerId(2),) for name in NAMES}
    await fail_over_during(cluster, cluster.controller.alter_reassignments(targets))


class Listed(list[str]):
    """Names as a store lists them, in which nothing may be looked up: each look-up reads them all."""

    def __contains__(self, name: object) -> bool:
        raise AssertionError(f"{name!r} is looked up in a list")


async def test_the_names_of_all_topics_are_not_scanned_for_each_topic() -> None:
    async def get_many(paths: list[str], _watch: object) -> list[None]:
        return [None for _ in paths]

    forgotten: list[str] = []
    state = SimpleNamespace(topics=dict.fromkeys(NAMES), forget=forgotten.append)
    epoch: Any = SimpleNamespace(state=state, store=SimpleNamespace(get_many=get_many))
    unused: Any = None
    await TopicManager(epoch, unused, unused, unused).names_changed(Listed(NAMES[1:]))
    assert forgotten == NAMES[:1]
