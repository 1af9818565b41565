"""Offset commits that wait for followers: the shortest way answers, stores and shows what the general way does, whoever
leads, lags or is cut off."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace.broker.coordinator_host.plain_groups import PlainGroups
from headrace.errors import ErrorCode
from headrace.in_slices import finished
from headrace.log.partition_log import PartitionLog
from headrace.metadata.entity_configs import TOPICS
from headrace.network.peers.peers import PeerUnreachable
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.topics import OFFSETS_TOPIC
from tests.broker.replica_nodes import Node, Nodes, topic_id, turns
from tests.rotation import drawn
from tests.simulation import frames
from tests.simulation.virtual_time import in_virtual_time

READ_TOPICS = ("t", "u")
GROUPS = ("g", "h")
EVENTS = 40
SETTINGS = {"offsets_commit_timeout_ms": "300", "replica_lag_time_max_ms": "1000"}

Offsets = Sequence[tuple[str, int]]
"""Topics, and the offsets that are committed."""


def commit(group: str, offsets: Offsets, text: str = "") -> m.OffsetCommitRequest:
    """A simple consumer's."""
    commits = m.OffsetCommitRequest
    return commits(
        group_id=group,
        topics=[
            commits.OffsetCommitRequestTopic(
                name=topic,
                topic_id=topic_id(topic),
                partitions=[
                    commits.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=text
                    )
                ],
            )
            for topic, offset in offsets
        ],
    )


def fetch(group: str) -> m.OffsetFetchRequest:
    """Of all offsets."""
    return m.OffsetFetchRequest(groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)])


def script(chance: Random) -> list[tuple[Any, ...]]:
    """What happens, in order: commits and fetches, cut and healed ways, leaders that change, ISRs that shrink, minima,
    a deleted topic, and rests, of which some are longer than a commit waits."""
    events: list[tuple[Any, ...]] = [("commit", "g", (("t", EVENTS),))]
    kinds = ("commit", "fetch", "cut", "heal", "lead", "lag", "minimum", "delete", "rest")
    for number in range(EVENTS):
        what = chance.choices(kinds, weights=(14, 5, 2, 4, 2, 1, 1, 0.3, 4))[0]
        if what == "commit":
            topics = chance.sample(READ_TOPICS, chance.choice((1, 1, 2)))
            events.append((what, chance.choice(GROUPS), tuple((each, number) for each in topics)))
        elif what == "fetch":
            events.append((what, chance.choice(GROUPS)))
        elif what == "cut":
            events.append((what, chance.choice((2, 3))))
        elif what == "lead":
            events.append((what, chance.choice((1, 1, 1, 2))))
        elif what == "minimum":
            events.append((what, chance.choice((1, 2, 3))))
        elif what == "rest":
            events.append((what, chance.choice((5, 5, 200))))
        else:
            events.append((what,))
    return events


async def led(nodes: Nodes, *, to: Sequence[int] | None = None, replicas: Sequence[int] = (1, 2, 3)) -> Node:
    """Topics that groups read, and the coordinator, which has a first record in its log and serves."""
    for topic in READ_TOPICS:
        await nodes.lead(topic, leader=1, replicas=(1,))
    await nodes.lead(OFFSETS_TOPIC, leader=1, replicas=replicas)
    await turns(5)
    for group in GROUPS:
        answer = await nodes[1].ask(commit(group, [("t", 0)]), m.OffsetCommitResponse, 8)
        assert answer.topics[0].partitions[0].error_code == 0
    if to is not None:
        for number in {1, *replicas} - set(to):
            nodes.cuts |= {(1, number), (number, 1)}
    return nodes[1]


def stored(node: Node) -> bytes:
    """All that the log of the coordinator's partition has."""
    log: PartitionLog = node.partition(OFFSETS_TOPIC).log
    return bytes(log.read_bytes(log.read(0, 1 << 20, end_offset=log.log_end_offset, at_least_one=True)))


def groups_of(node: Node) -> PlainGroups:
    found: PlainGroups = node.dispatcher.shortcut.groups  # type: ignore[union-attr]
    return found


def waiting(node: Node) -> list[Any]:
    """The commits in the purgatory."""
    found: Any = node.purgatory.operations()
    return [each for each in found if getattr(each, "api_key", None) is ApiKey.OFFSET_COMMIT]


def known(node: Node) -> list[Any]:
    """What the coordinator knows of the groups' offsets. The short way knows earlier where a pending one is stored."""
    found = []
    for name in GROUPS:
        group = node.groups.coordinator.find(name)
        if group is not None:
            pending = {
                key: [each._replace(record_offset=-1) for each in offsets]
                for key, offsets in group.offsets.pending.items()
            }
            found.append((name, dict(group.offsets.committed), pending, dict(group.offsets.late)))
    return found


async def played(directory: Path, events: Sequence[tuple[Any, ...]], version: int) -> tuple[list[Any], int]:
    """Plays a script; returns what node 1 answered, knows and has stored, and how many commits waited the short way."""
    asked: list[asyncio.Future[Any]] = []
    async with Nodes(directory, 3, **SETTINGS) as nodes:
        await led(nodes)
        seen: list[Any] = []
        for event in events:
            match event:
                case ("commit", group, offsets):
                    asking = nodes[1].ask(commit(group, offsets), m.OffsetCommitResponse, version)
                    asked.append(asyncio.ensure_future(asking))
                case ("fetch", group):
                    asked.append(asyncio.ensure_future(nodes[1].ask(fetch(group), m.OffsetFetchResponse, 8)))
                case ("cut", number):
                    nodes.cuts |= {(1, number), (number, 1)}
                case ("heal",):
                    nodes.cuts = set()
                case ("lead", number):
                    await nodes.lead(OFFSETS_TOPIC, leader=number)
                case ("minimum", replicas):
                    await minimum(nodes, replicas)
                case ("lag",):
                    nodes.now_ms += 1500
                    finished(nodes[1].replication.isr_changes.shrink())
                case ("delete",):
                    if "u" in nodes.states:
                        await nodes.delete("u")
                case ("rest", count):
                    await turns(count)
            await turns(5)
            seen.append(known(nodes[1]))
        nodes.cuts = set()
        answers = await asyncio.gather(*asked)
        await turns(50)
        waited = groups_of(nodes[1]).waited
        queues = [each.commits for each in nodes[1].replicas.partitions.values() if each.commits is not None]
        assert queues or not waited
        assert not any(each._waiting for each in queues), "a queue is left that somebody waits in"
        return [answers, seen, known(nodes[1]), stored(nodes[1])], waited


async def minimum(nodes: Nodes, replicas: int) -> None:
    await nodes.entities.rewrite(TOPICS, OFFSETS_TOPIC, lambda before: {**before, "min.insync.replicas": str(replicas)})


@pytest.mark.parametrize("number", range(4))
def test_both_ways_do_alike_whoever_leads_lags_or_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    chance = Random(drawn("commits that wait for replicas", number))
    events, version = script(chance), chance.choice((2, 6, 8, 9, 10))
    found: list[tuple[list[Any], int]] = []

    def play(directory: Path) -> None:
        @in_virtual_time
        async def test() -> None:
            found.append(await played(directory, events, version))

        test()

    play(tmp_path / "short")
    monkeypatch.setattr(frames, "_OF_GROUPS", ())
    play(tmp_path / "long")
    assert found[0][1] and not found[1][1], "the short way was not gone"
    for short, general in zip(found[0][0], found[1][0], strict=True):
        assert short == general, events


def code_of(answer: m.OffsetCommitResponse) -> ErrorCode:
    (code,) = {ErrorCode(each.error_code) for topic in answer.topics for each in topic.partitions}
    return code


async def offset_of(node: Node, group: str = "g") -> int:
    answer = await node.ask(fetch(group), m.OffsetFetchResponse, 8)
    found = {topic.name: topic.partitions[0].committed_offset for topic in answer.groups[0].topics}
    return found["t"]


@in_virtual_time
async def test_a_commit_is_answered_and_seen_when_followers_have_it(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        node = await led(nodes, to=(1,), replicas=(1, 2))
        leader = node.partition(OFFSETS_TOPIC)
        first = leader.log.log_end_offset
        asked = [
            asyncio.ensure_future(node.ask(commit("g", [("t", 5 + number)]), m.OffsetCommitResponse, 8))
            for number in range(3)
        ]
        await turns(5)
        assert groups_of(node).waited == 3
        assert [each.requests for each in waiting(node)] == [3], "one operation for all of a partition"
        assert await offset_of(node) == 0, "a pending offset is seen"
        for number in range(3):
            leader.state.follower_fetched(nodes[2].id, first + number + 1, nodes.now_ms)
            node.purgatory.touch(leader.key)
            await turns(5)
            assert [each.done() for each in asked] == [other <= number for other in range(3)]
            assert await offset_of(node) == 5 + number
        assert {code_of(each) for each in await asyncio.gather(*asked)} == {ErrorCode.NONE}
        assert waiting(node) == []
        (group,) = [group for name, *group in known(node) if name == "g"]
        assert group[1] == {}, "it is pending for ever"


@pytest.mark.parametrize("version", [2, 5, 7, 8, 9, 10])
@in_virtual_time
async def test_a_commit_hears_why_it_failed(tmp_path: Path, version: int) -> None:
    async def asks(offset: int) -> "asyncio.Future[m.OffsetCommitResponse]":
        offsets, connection = [("t", offset), ("u", offset)], node.connection()
        connection._peers.correlation_id = -offset  # as after 2**31 requests
        asking = asyncio.ensure_future(connection.ask(commit("g", offsets), m.OffsetCommitResponse, version))
        await turns(5)
        return asking

    async with Nodes(tmp_path, 2, offsets_commit_timeout_ms="100") as nodes:
        node = await led(nodes, to=(1,), replicas=(1, 2))
        asking = await asks(5)
        assert groups_of(node).waited == 1
        answer = await asking
        assert code_of(answer) is ErrorCode.REQUEST_TIMED_OUT
        names = [each.topic_id if version >= 10 else each.name for each in answer.topics]
        assert names == [topic_id(each) if version >= 10 else each for each in READ_TOPICS]
        assert await offset_of(node) == 0
        asking = await asks(6)
        await nodes.lead(OFFSETS_TOPIC, leader=2)
        assert code_of(await asking) is ErrorCode.NOT_COORDINATOR
        assert groups_of(node).waited == 2


@pytest.mark.parametrize("ways", ["general, short", "short, general", "short, short", "general, general"])
@in_virtual_time
async def test_a_commit_that_followers_get_too_late_counts_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ways: str
) -> None:
    async with Nodes(tmp_path, 2, offsets_commit_timeout_ms="100") as nodes:
        node = await led(nodes, to=(1,), replicas=(1, 2))
        leader, asked, waited = node.partition(OFFSETS_TOPIC), [], 0
        first = leader.log.log_end_offset
        for number, way in enumerate(ways.split(", ")):
            with monkeypatch.context() as patch:
                if way == "general":
                    patch.setattr(frames, "_OF_GROUPS", ())
                asked.append(
                    asyncio.ensure_future(node.ask(commit("g", [("t", 5 + number)]), m.OffsetCommitResponse, 8))
                )
                await turns(5)
                await asyncio.sleep(0.06)  # the other one is not durable in time, and this one may be
            waited += way == "short"
            assert groups_of(node).waited == waited
        assert code_of(await asked[0]) is ErrorCode.REQUEST_TIMED_OUT
        leader.state.follower_fetched(nodes[2].id, first + 1, nodes.now_ms)
        node.purgatory.touch(leader.key)
        assert await offset_of(node) == 5
        assert code_of(await asked[1]) is ErrorCode.REQUEST_TIMED_OUT
        assert await offset_of(node) == 5
        leader.state.follower_fetched(nodes[2].id, first + 2, nodes.now_ms)
        node.purgatory.touch(leader.key)
        assert await offset_of(node) == 6


@in_virtual_time
async def test_a_commit_whose_client_leaves_is_committed_all_the_same(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        node = await led(nodes, to=(1,), replicas=(1, 2))
        connection, leader = node.connection(), node.partition(OFFSETS_TOPIC)
        asking = asyncio.ensure_future(connection.ask(commit("g", [("t", 5)]), m.OffsetCommitResponse, 8))
        await turns(5)
        assert groups_of(node).waited == 1
        for pipe in connection._peers._pipes.values():
            pipe.served.close("the client is gone")
        assert isinstance((await asyncio.gather(asking, return_exceptions=True))[0], PeerUnreachable)
        leader.state.follower_fetched(nodes[2].id, leader.log.log_end_offset, nodes.now_ms)
        node.purgatory.touch(leader.key)
        await turns(5)
        assert await offset_of(node) == 5


@in_virtual_time
async def test_commits_without_enough_replicas_take_the_general_way(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        node = await led(nodes, replicas=(1, 2))
        await minimum(nodes, 2)
        await nodes.lead(OFFSETS_TOPIC, leader=1, isr=(1,), to=(1,))
        await turns(5)
        asking = node.ask(commit("g", [("t", 5)]), m.OffsetCommitResponse, 8)
        before = groups_of(node).waited
        assert code_of(await asking) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert groups_of(node).waited == before
