"""A follower of a topic that is deleted and made anew, under another id, before its next fetch tells the leader."""

import asyncio
from pathlib import Path

import pytest

from headrace.protocol import messages as m
from tests.broker.replica_nodes import Nodes
from tests.simulation.virtual_time import in_virtual_time

NEW_ID = b"another id".ljust(16, b"\2")
SECONDS, FETCHES_MAX = 30, 700
"""A fetch that finds nothing waits 50 ms (`replica_nodes`)."""


@pytest.mark.timeout(60)  # a fetcher that asks without a pause holds the clock
@pytest.mark.parametrize("lends", [True, False], ids=["the shortest way", "the general way"])
def test_the_session_forgets_the_old_topic_and_fetches_the_new_one(lends: bool, tmp_path: Path) -> None:
    @in_virtual_time
    async def run() -> None:
        async with Nodes(tmp_path, 2) as nodes:
            follower = nodes[2]
            follower.peers.lends = lends
            for topic in "ab":  # the session goes on with b
                await nodes.lead(topic, leader=1, replicas=(1, 2), isr=(1, 2))
            await asyncio.sleep(2)
            nodes[1].append("a", "old")
            await asyncio.sleep(2)
            assert follower.values("a") == ["old"]

            released = nodes.hold(m.FetchRequest)
            await asyncio.sleep(2)
            await nodes.delete("a", new_id=NEW_ID)
            await nodes.lead("a", leader=1, replicas=(1, 2), isr=(1, 2))
            nodes.holding.clear()
            released.set()
            fetches = len(asked(nodes))
            nodes[1].append("a", "new")
            await asyncio.sleep(SECONDS)

            assert follower.values("a") == ["new"]
            assert len(asked(nodes)) - fetches <= FETCHES_MAX
            nodes[1].append("a", "newer")
            nodes[1].append("b", "other")
            await asyncio.sleep(2)
            assert follower.values("a") == ["new", "newer"]
            assert follower.values("b") == ["other"]

    run()


def asked(nodes: Nodes) -> list[m.FetchRequest]:
    """The follower's fetches."""
    return [each for each in nodes[2].peers.asked if isinstance(each, m.FetchRequest)]
