"""Followers of messages without leader epochs: they keep what they share with their leader, and nothing else.

Apache Kafka's followers truncate such logs to the high watermark. It lags, so that committed messages are lost if the
leader fails before they are fetched again (KIP-101). A follower here compares the logs above its high watermark.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from headrace.protocol import messages as m
from tests.broker.replica_nodes import Node, Nodes, turns, with_format
from tests.eventually import WITHIN_SECONDS, eventually_async
from tests.simulation.virtual_time import in_virtual_time

OLD_FORMATS = pytest.mark.parametrize("version", ["0.9.0", "0.10.2"])
FIVE = ["m1", "m2", "m3", "m4", "m5"]


def fetch_offsets(node: Node) -> list[int]:
    """The offsets from which a node fetched, in order."""
    return [
        partition.fetch_offset
        for request in node.peers.asked
        if isinstance(request, m.FetchRequest)
        for topic in request.topics
        for partition in topic.partitions
    ]


async def until(condition: Callable[[], bool]) -> None:
    """Looks after each turn of the event loop, to stop in the middle of something."""
    async with asyncio.timeout(WITHIN_SECONDS):
        while not condition():  # noqa: ASYNC110 (no event marks the turns)
            await asyncio.sleep(0)


async def replicate(nodes: Nodes, values: Sequence[str], leader: int = 2) -> None:
    """The leader and all others have these values, and the leader knows that they are committed."""
    await nodes.lead("t", leader=leader, replicas=tuple(nodes.numbers))
    nodes[leader].append("t", *values)
    await eventually_async(lambda: nodes[leader].high_watermark("t") == len(values))


async def part(nodes: Nodes, *uncommitted: str) -> None:
    """Both have m1; then they hear nothing of each other, the old leader takes what is never committed, and 2 leads."""
    await nodes.lead("t", leader=1, replicas=(1, 2))
    nodes[1].append("t", "m1")
    await eventually_async(lambda: nodes[1].high_watermark("t") == nodes[2].high_watermark("t") == 1)
    nodes.cuts = {(1, 2), (2, 1)}
    nodes[1].append("t", *uncommitted)
    await nodes.lead("t", leader=2, isr=(2,), to=(2,))


async def meet_again(nodes: Nodes) -> None:
    """The old leader follows the new one, and is in sync."""
    nodes.cuts = set()
    await nodes.lead("t", leader=2, isr=(2,))
    await eventually_async(lambda: nodes[2].partition("t").state.isr == {1, 2})


@OLD_FORMATS
@in_virtual_time
async def test_a_follower_that_restarts_keeps_what_is_committed_above_its_high_watermark(
    tmp_path: Path, version: str
) -> None:
    """KIP-101, scenario 1: whenever the leader dies, the follower has all that is committed."""
    async with Nodes(tmp_path, 2, log_message_format_version=version) as nodes:
        await replicate(nodes, FIVE)
        nodes.crash(1)
        node = await nodes.start(1)
        assert node.high_watermark("t") == 0  # nothing wrote a checkpoint
        await eventually_async(lambda: node.high_watermark("t") == 5)
        assert node.partition("t").log.truncations == 0
        nodes.crash(2)
        await nodes.lead("t", leader=1, isr=(1,))
        assert nodes[1].values("t") == FIVE


@in_virtual_time
async def test_a_follower_reports_no_more_than_it_has_compared(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2, log_message_format_version="0.10.2", replica_fetch_max_bytes="1") as nodes:
        await replicate(nodes, FIVE)
        nodes.crash(1)
        node = await nodes.start(1)
        await eventually_async(lambda: node.high_watermark("t") == 5)
        assert fetch_offsets(node)[:6] == [0, 1, 2, 3, 4, 5]
        assert nodes[2].high_watermark("t") == 5


@in_virtual_time
async def test_a_new_leader_waits_for_a_comparison_before_it_commits(tmp_path: Path) -> None:
    """The old leader is in the ISR, with a message that the new one never had; it must not count as the new one's."""
    async with Nodes(tmp_path, 2, log_message_format_version="0.10.2") as nodes:
        await replicate(nodes, ["m1"], leader=1)
        nodes.cuts = {(1, 2), (2, 1)}
        nodes[1].append("t", "not committed", "nor this")
        await nodes.lead("t", leader=2, isr=(1, 2))
        nodes[2].append("t", "m2", "m3")
        nodes.cuts = set()
        await eventually_async(lambda: nodes[2].high_watermark("t") == 3)
        assert nodes[1].values("t") == nodes[2].values("t") == ["m1", "m2", "m3"]


@in_virtual_time
async def test_a_follower_that_is_elected_in_the_middle_of_a_comparison_keeps_all_its_messages(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2, log_message_format_version="0.10.2", replica_fetch_max_bytes="1") as nodes:
        await replicate(nodes, FIVE)
        nodes.crash(1)
        node = await nodes.start(1)
        await until(lambda: len(fetch_offsets(node)) >= 3)
        nodes.crash(2)
        assert node.high_watermark("t") < 5
        await nodes.lead("t", leader=1, isr=(1,))
        assert nodes[1].values("t") == FIVE
        await eventually_async(lambda: nodes[1].high_watermark("t") == 5)


@in_virtual_time
async def test_a_comparison_begins_again_where_the_high_watermark_is_when_another_leads(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 3, log_message_format_version="0.10.2", replica_fetch_max_bytes="1") as nodes:
        await replicate(nodes, FIVE)
        nodes.crash(1)
        node = await nodes.start(1)
        await until(lambda: len(fetch_offsets(node)) >= 3)
        nodes.crash(2)
        await turns(20)  # an answer may be on its way
        reached = node.high_watermark("t")
        assert 0 < reached < 5
        node.peers.asked.clear()
        await nodes.lead("t", leader=3, isr=(1, 3))
        nodes[3].append("t", "m6")
        await eventually_async(lambda: nodes[3].high_watermark("t") == 6)
        assert fetch_offsets(node)[0] == reached
        assert node.values("t") == [*FIVE, "m6"]
        assert node.partition("t").log.truncations == 0


@OLD_FORMATS
@in_virtual_time
async def test_a_follower_truncates_at_the_first_message_that_is_not_the_leaders(
    tmp_path: Path, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Nodes(tmp_path, 2, log_message_format_version=version) as nodes:
        await replicate(nodes, FIVE)
        nodes.cuts = {(1, 2), (2, 1)}
        nodes[2].append("t", "m6", "m7")
        await nodes.lead("t", leader=1, isr=(1,), to=(1,))
        nodes[1].append("t", "not committed", "nor this", "nor this")
        nodes.crash(1)
        nodes.cuts = set()
        await nodes.lead("t", leader=2, isr=(2,))
        with caplog.at_level(logging.WARNING):
            node = await nodes.start(1)
            await eventually_async(lambda: nodes[2].partition("t").state.isr == {1, 2})
        assert node.values("t") == [*FIVE, "m6", "m7"]
        assert [line for line in caplog.messages if "diverges" in line] == [
            "t-0: the log diverges from the leader's log and is truncated to offset 7",  # the leader's log ends there
            "t-0: the log diverges from the leader's log and is truncated to offset 5",
        ]


@in_virtual_time
async def test_a_follower_truncates_where_its_idle_leaders_log_ends(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2, log_message_format_version="0.10.2") as nodes:
        await replicate(nodes, ["m1", "m2"])
        nodes.cuts = {(1, 2), (2, 1)}
        await nodes.lead("t", leader=1, isr=(1,), to=(1,))
        nodes[1].append("t", "not committed")
        nodes.crash(1)
        nodes.cuts = set()
        await nodes.lead("t", leader=2, isr=(2,))
        node = await nodes.start(1)
        await eventually_async(lambda: node.values("t") == ["m1", "m2"] and node.high_watermark("t") == 2)


@in_virtual_time
async def test_a_follower_truncates_to_the_log_of_a_leader_that_was_elected_uncleanly(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2, log_message_format_version="0.10.2") as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        nodes[1].append("t", "m1")
        await eventually_async(lambda: nodes[2].values("t") == ["m1"])
        nodes.cuts = {(1, 2), (2, 1)}
        await nodes.lead("t", leader=1, isr=(1,), to=(1,))
        nodes[1].append("t", "lost", "this too")
        assert nodes[1].high_watermark("t") == 3
        await nodes.lead("t", leader=2, isr=(2,))
        nodes.cuts = set()
        await eventually_async(lambda: nodes[1].values("t") == ["m1"])
        nodes[2].append("t", "m2")
        await eventually_async(lambda: nodes[1].values("t") == ["m1", "m2"])


@in_virtual_time
async def test_a_long_tail_is_compared_in_pieces_between_which_other_work_goes_on(tmp_path: Path) -> None:
    values = [f"{number:04}" + 10_000 * "x" for number in range(100)]
    settings = {"log_segment_bytes": "150000", "replica_fetch_response_max_bytes": "400000"}
    async with Nodes(tmp_path, 2, log_message_format_version="0.10.2", **settings) as nodes:
        await replicate(nodes, values)
        nodes.crash(1)
        node = await nodes.start(1)
        marks = set()

        def is_through() -> bool:
            marks.add(node.high_watermark("t"))
            return node.high_watermark("t") == 100

        await until(is_through)
        assert len(marks) >= 3
        assert node.values("t") == values
        assert node.partition("t").log.truncations == 0


@in_virtual_time
async def test_a_follower_of_a_leader_that_serves_an_older_fetch_compares_too(tmp_path: Path) -> None:
    """Such a leader is asked for the end of an epoch, and knows none."""
    async with Nodes(tmp_path, 2) as nodes:
        for node in nodes.up.values():
            node.peers.newest["FetchRequest"] = 11
        await part(nodes, "lost")
        with_format(nodes[2], "t", "0.10.2")
        nodes[2].append("t", "m2", "m3")
        await meet_again(nodes)
        assert nodes[1].values("t") == nodes[2].values("t") == ["m1", "m2", "m3"]


@OLD_FORMATS
@in_virtual_time
async def test_messages_that_another_leader_does_not_have_go(tmp_path: Path, version: str) -> None:
    async with Nodes(tmp_path, 2, log_message_format_version=version) as nodes:
        await part(nodes, "not committed", "nor this", "nor this")
        nodes[2].append("t", "m2", "m3")
        await meet_again(nodes)
        assert nodes[1].values("t") == nodes[2].values("t") == ["m1", "m2", "m3"]


@in_virtual_time
async def test_a_follower_with_epochs_of_a_leader_without_compares(tmp_path: Path) -> None:
    """The format went down while the two did not hear of each other."""
    async with Nodes(tmp_path, 2) as nodes:
        await part(nodes, "lost")
        with_format(nodes[2], "t", "0.10.2")
        nodes[2].append("t", "m2", "m3")
        await meet_again(nodes)
        assert nodes[1].values("t") == nodes[2].values("t") == ["m1", "m2", "m3"]


@in_virtual_time
async def test_a_follower_without_epochs_of_a_leader_with_compares(tmp_path: Path) -> None:
    """The format went up while the two did not hear of each other."""
    async with Nodes(tmp_path, 2, log_message_format_version="0.10.2") as nodes:
        await part(nodes, "lost")
        with_format(nodes[2], "t", "3.0")
        nodes[2].append("t", "m2", "m3")
        log = nodes[2].partition("t").log
        assert log.leader_epochs.entries == [(1, 1)]
        await meet_again(nodes)
        assert nodes[1].values("t") == nodes[2].values("t") == ["m1", "m2", "m3"]
        assert nodes[1].partition("t").log.leader_epochs.entries == [(1, 1)]


@in_virtual_time
async def test_a_follower_whose_epoch_is_older_than_the_messages_without_one_compares(
    tmp_path: Path,
) -> None:
    """The format went down and up again: the leader's first known epoch says nothing of what is before it."""
    async with Nodes(tmp_path, 2) as nodes:
        await part(nodes, "lost")
        with_format(nodes[2], "t", "0.10.2")
        nodes[2].append("t", "m2", "m3")
        with_format(nodes[2], "t", "3.0")
        nodes[2].append("t", "m4")
        log = nodes[2].partition("t").log
        assert log.leader_epochs.entries == [(1, 3)]
        await meet_again(nodes)
        assert nodes[1].values("t") == nodes[2].values("t") == ["m1", "m2", "m3", "m4"]


@in_virtual_time
async def test_what_a_truncation_by_epochs_leaves_of_messages_without_epochs_is_compared(tmp_path: Path) -> None:
    """Both wrote messages without epochs first, and batches after these."""
    async with Nodes(tmp_path, 2, log_message_format_version="0.10.2") as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        nodes[1].append("t", "m1")
        await eventually_async(lambda: nodes[1].high_watermark("t") == nodes[2].high_watermark("t") == 1)
        nodes.cuts = {(1, 2), (2, 1)}
        nodes[1].append("t", "lost")
        with_format(nodes[1], "t", "3.0")
        nodes[1].append("t", "lost too")
        await nodes.lead("t", leader=2, isr=(2,), to=(2,))
        nodes[2].append("t", "m2")
        with_format(nodes[2], "t", "3.0")
        nodes[2].append("t", "m3")
        await meet_again(nodes)
        assert nodes[1].values("t") == nodes[2].values("t") == ["m1", "m2", "m3"]
