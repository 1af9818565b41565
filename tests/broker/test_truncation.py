"""Which records go and which stay when leaders change: the stories of KIP-101 and KIP-279, and others like them.

The first two are why a follower does not truncate to its own high watermark; the third is why the answer to "where does
epoch E end?" names an epoch too. `test_comparison` has the stories of messages without epochs.
"""

from functools import partial
from pathlib import Path

from tests.broker.replica_nodes import Nodes, turns, with_format
from tests.eventually import eventually_async
from tests.simulation.virtual_time import in_virtual_time


@in_virtual_time
async def test_what_is_committed_survives_a_follower_that_restarts_and_then_leads(tmp_path: Path) -> None:
    """KIP-101, scenario 1: the follower has the record, but has not heard yet that it is committed."""
    async with Nodes(tmp_path, 2, replica_fetch_wait_max_ms="600000") as nodes:
        await nodes.lead("t", leader=2, replicas=(1, 2))
        nodes[2].append("t", "m1")
        await eventually_async(lambda: nodes[2].high_watermark("t") == 1)
        nodes[2].append("t", "m2")
        await eventually_async(lambda: nodes[2].high_watermark("t") == 2)
        assert nodes[1].values("t") == ["m1", "m2"]
        assert nodes[1].high_watermark("t") < 2
        nodes.crash(1)
        await nodes.start(1)
        nodes.crash(2)
        await nodes.lead("t", leader=1, isr=(1,))
        assert nodes[1].values("t") == ["m1", "m2"]
        await nodes.start(2)
        await eventually_async(lambda: nodes[1].partition("t").state.isr == {1, 2})
        assert nodes[2].values("t") == ["m1", "m2"]
        await eventually_async(lambda: nodes[1].high_watermark("t") == 2)


@in_virtual_time
async def test_logs_that_parted_while_both_were_down_are_one_again(tmp_path: Path) -> None:
    """KIP-101, scenario 2: one lost what was not on its disk, and led first; then the other came back with it."""
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        nodes[1].append("t", "m1")
        await eventually_async(lambda: nodes[1].high_watermark("t") == nodes[2].high_watermark("t") == 1)
        nodes.cuts = {(1, 2), (2, 1)}
        nodes[1].append("t", "m2")
        nodes.crash(1)
        await nodes.lead("t", leader=2, isr=(2,))
        nodes[2].append("t", "m3")
        nodes.cuts = set()
        await nodes.start(1)
        await eventually_async(lambda: nodes[2].partition("t").state.isr == {1, 2})
        assert nodes[1].values("t") == nodes[2].values("t") == ["m1", "m3"]
        assert nodes[1].partition("t").log.leader_epochs.entries == [(0, 0), (1, 1)]


@in_virtual_time
async def test_a_follower_with_epochs_that_its_leader_never_had_goes_back_to_the_last_they_share(
    tmp_path: Path,
) -> None:
    """KIP-279: leaders changed so fast that each wrote something that the others do not have."""
    async with Nodes(tmp_path, 3) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2, 3))
        nodes[1].append("t", "m1", "m2")
        await eventually_async(lambda: nodes[2].values("t") == nodes[3].values("t") == ["m1", "m2"])
        nodes.cuts = {(one, other) for one in (1, 2, 3) for other in (1, 2, 3)}
        await nodes.lead("t", leader=1, isr=(1,), to=(1,))
        nodes[1].append("t", "a3", "a4", "a5")
        await nodes.lead("t", leader=2, isr=(2,), to=(2,))
        nodes[2].append("t", "b3")
        await nodes.lead("t", leader=1, isr=(1,), to=(1,))
        nodes[1].append("t", "a6")
        await nodes.lead("t", leader=2, isr=(2,), to=(2,))
        nodes[2].append("t", "b4", "b5", "b6", "b7")
        nodes.cuts = set()
        await nodes.lead("t", leader=2, isr=(2,))
        everything = ["m1", "m2", "b3", "b4", "b5", "b6", "b7"]
        await eventually_async(lambda: nodes[1].values("t") == nodes[3].values("t") == everything)
        entries = [nodes[each].partition("t").log.leader_epochs.entries for each in (1, 2, 3)]
        assert entries[0] == entries[1] == entries[2]


@in_virtual_time
async def test_a_leader_of_an_epoch_without_records_is_truncated_and_truncates_as_one_with(tmp_path: Path) -> None:
    """Nobody notes an epoch in which nothing was written; it changes no answer."""
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        nodes[1].append("t", "m1", "m2")
        await eventually_async(lambda: nodes[2].high_watermark("t") == 2)
        nodes.cuts = {(1, 2), (2, 1)}
        nodes[1].append("t", "lost")
        await nodes.lead("t", leader=2, isr=(2,), to=(2,))  # writes nothing
        await nodes.lead("t", leader=2, isr=(2,), to=(2,))  # neither here
        nodes.cuts = set()
        await nodes.lead("t", leader=2, isr=(2,))
        await eventually_async(lambda: nodes[2].partition("t").state.isr == {1, 2})
        assert nodes[1].values("t") == nodes[2].values("t") == ["m1", "m2"]
        await nodes.lead("t", leader=1, isr=(1, 2))
        nodes[1].append("t", "m3")
        await eventually_async(lambda: nodes[2].values("t") == ["m1", "m2", "m3"])
        assert nodes[2].partition("t").log.leader_epochs.entries == [(0, 0), (4, 2)]


@in_virtual_time
async def test_an_old_leader_that_wrote_in_secret_loses_just_that(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 3) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2, 3))
        nodes[1].append("t", "m1")
        await eventually_async(lambda: nodes[1].high_watermark("t") == 1)
        nodes.cuts = {(1, 2), (1, 3), (2, 1), (3, 1)}
        await nodes.lead("t", leader=2, isr=(2, 3), to=(2, 3))
        nodes[2].append("t", "m2")
        nodes[1].append("t", "secret", acks=1)
        await eventually_async(lambda: nodes[2].high_watermark("t") == 2)
        assert nodes[1].high_watermark("t") == 1
        nodes.cuts = set()
        await nodes.lead("t", leader=2, isr=(2, 3))
        await eventually_async(lambda: nodes[2].partition("t").state.isr == {1, 2, 3})
        assert nodes[1].values("t") == ["m1", "m2"]


@in_virtual_time
async def test_high_watermarks_do_not_go_back_whoever_leads(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 3) as nodes:
        seen = dict.fromkeys(nodes.numbers, 0)

        def look() -> None:
            for number, node in nodes.up.items():
                assert node.high_watermark("t") >= seen[number], f"of node {number}"
                seen[number] = node.high_watermark("t")

        def is_committed(leader: int, ends: int) -> bool:
            look()
            return nodes[leader].high_watermark("t") == ends

        def is_everywhere(leader: int, ends: int) -> bool:
            look()
            return all(len(node.values("t")) == ends for node in nodes.up.values())

        await nodes.lead("t", leader=1, replicas=(1, 2, 3))
        for turn in range(12):
            leader = turn % 3 + 1
            await nodes.lead("t", leader=leader)
            look()
            nodes[leader].append("t", f"v{turn}a", f"v{turn}b")
            ends = 2 * turn + 2
            await eventually_async(partial(is_committed if turn % 2 else is_everywhere, leader, ends))
        assert nodes[1].values("t") == nodes[2].values("t") == nodes[3].values("t")
        assert len(nodes[1].values("t")) == 24


@in_virtual_time
async def test_batches_are_compared_by_epochs_while_no_older_message_has_followed_them(tmp_path: Path) -> None:
    """What is committed above the follower's high watermark stays, though the topic's format is an older one by now."""
    async with Nodes(tmp_path, 2, replica_fetch_wait_max_ms="600000") as nodes:
        await nodes.lead("t", leader=2, replicas=(1, 2))
        nodes[2].append("t", "m1")
        await eventually_async(lambda: nodes[2].high_watermark("t") == 1)
        assert nodes[1].high_watermark("t") == 0
        for number in (1, 2):
            with_format(nodes[number], "t", "0.10.2")
        nodes.cuts = {(1, 2), (2, 1)}
        await nodes.lead("t", leader=2, isr=(1, 2))
        await turns()
        assert nodes[1].values("t") == ["m1"]
        nodes.cuts = set()
        nodes[2].append("t", "m2")
        await eventually_async(lambda: nodes[1].values("t") == ["m1", "m2"])
