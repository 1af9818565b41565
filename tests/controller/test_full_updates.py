"""A broker that may have missed something is told everything, as all that there is; the others what changed."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from headrace.controller.controller_epoch import TOPICS_PER_SLICE, ControllerEpoch
from headrace.controller.decisions.control_requests import ControllerIdentity, update_metadata
from headrace.controller.decisions.topics import RequestedTopic
from headrace.metadata import znodes
from headrace.metadata.model import FULL_UPDATE
from headrace.protocol import messages as m
from headrace.types import BrokerId
from tests.controller.paper_brokers import Cluster, create, registration


def told(cluster: Cluster, broker: int) -> list[tuple[bool, list[tuple[str, int]]]]:
    """Of each UpdateMetadata of a broker: whether it is all there is, and its topics with how many partitions."""
    return [
        (each.type == FULL_UPDATE, [(topic.topic_name, len(topic.partition_states)) for topic in each.topic_states])
        for each in cluster.told.get(broker, ())
        if isinstance(each, m.UpdateMetadataRequest)
    ]


async def test_only_a_broker_that_comes_is_told_everything(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (1, 2), 1: (2, 1)})
    await cluster.go(3)
    await create(cluster, "u", {0: (1, 2)})
    cluster.forget()
    await cluster.come(3)
    assert told(cluster, 3) == [(True, [("t", 2), ("u", 1)])]
    assert told(cluster, 1) == [(False, [])] == told(cluster, 2)


async def test_a_topic_without_a_first_leader_is_named_so_that_nobody_takes_it_for_deleted(cluster: Cluster) -> None:
    await create(cluster, "model", {0: (2, 3)})
    data = (await cluster.store.get(znodes.topic("model"))).data
    await cluster.go(2)
    await cluster.go(3)
    await cluster.store.create(znodes.topic("leaderless"), data)

    async def is_known() -> bool:
        active = cluster.controller._candidate.active
        return active is not None and "leaderless" in active.controller_epoch.state.topics

    await cluster.until(is_known)
    cluster.forget()
    await cluster.store.delete(znodes.broker(1))
    await cluster.come(1)
    assert (True, [("model", 1), ("leaderless", 0)]) in [
        (full, sorted(each, reverse=True)) for full, each in told(cluster, 1)
    ]


async def test_a_new_controller_tells_many_topics_at_once_though_it_puts_them_together_in_turns(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{number:02}" for number in range(3 * TOPICS_PER_SLICE)]
    await cluster.controller.create_topics([RequestedTopic(name, 4, 3) for name in names])
    turn = 0
    sent_in: Counter[int] = Counter()
    send = ControllerEpoch._send_topic

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def noted(self: ControllerEpoch, *arguments: Any, **others: Any) -> None:
        sent_in[turn] += 1
        assert sent_in[turn] <= TOPICS_PER_SLICE
        send(self, *arguments, **others)

    async def is_elected() -> bool:
        return cluster.controller.epoch == 2 and cluster.controller.is_active

    monkeypatch.setattr(ControllerEpoch, "_send_topic", noted)
    counting = asyncio.create_task(count())
    cluster.forget()
    await cluster.store.delete(znodes.CONTROLLER)
    await cluster.until(is_elected)
    counting.cancel()
    assert len(sent_in) >= 3
    for broker in (1, 2, 3):
        assert told(cluster, broker)[-1] == (True, [(name, 4) for name in names])
        led = [each for each in cluster.told[broker] if isinstance(each, m.LeaderAndIsrRequest)]
        assert [sum(len(topic.partition_states) for topic in each.topic_states) for each in led] == [4 * len(names)]


async def test_nobody_is_told_that_these_are_all_topics_while_one_cannot_be_read(cluster: Cluster) -> None:
    await create(cluster, "t", {0: (1, 2)})
    await create(cluster, "broken", {0: (1, 2)})
    await cluster.store.set(znodes.topic("broken"), b"?")
    await cluster.store.delete(znodes.CONTROLLER)

    async def is_elected() -> bool:
        return cluster.controller.epoch == 2 and cluster.controller.is_active

    cluster.forget()
    await cluster.until(is_elected)
    assert told(cluster, 2)
    assert not any(is_full for is_full, _ in told(cluster, 2))


@pytest.mark.parametrize("version", range(5, 9))  # those that headrace and Apache Kafka since 2.2 serve
def test_a_broker_of_an_older_version_is_told_the_same_without_the_word_that_it_is_all(version: int) -> None:
    request = update_metadata(
        ControllerIdentity(BrokerId(1), 1), registration(2), {}, {"t": b"i" * 16}, (), is_full=True
    )
    decoded, _ = m.UpdateMetadataRequest.decode(version, request.encode(version), 0)
    assert decoded.type == (FULL_UPDATE if version >= 8 else 0)
