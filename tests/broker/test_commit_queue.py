"""Plain produces that wait for replicas: what they are answered, in whichever way, and what is left of them."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headrace.broker.produce import commit_queue
from headrace.broker.produce.commit_queue import CommitQueue
from headrace.broker.produce.plain_produce import Uncommitted, append_plainly
from headrace.broker.request import dispatch
from headrace.broker.request.context import RequestContext
from headrace.broker.request.dispatch import Dispatcher
from headrace.broker.request.shortcuts import Shortcuts
from headrace.errors import ErrorCode
from headrace.in_slices import finished
from headrace.metadata.entity_configs import TOPICS
from headrace.network.peers.peers import PeerUnreachable
from headrace.protocol import messages as m
from headrace.protocol.plain_produce import PlainProduce
from headrace.records.format2.batch import Record, encode_batch
from tests.broker.replica_nodes import Node, Nodes, topic_id, turns
from tests.eventually import eventually_async
from tests.rotation import drawn
from tests.simulation.frames import Served
from tests.simulation.virtual_time import in_virtual_time
from tests.uncompiled import uncompiled

TOPICS_OF_THE_TEST = ("t", "u")
EVENTS = 40
UNCOMPILED: Any = uncompiled(commit_queue)

Part = tuple[str, int, int]
"""A topic, a producer (-1: none), and its first sequence."""


def request(parts: Sequence[Part], *, acks: int = -1, timeout_ms: int = 20_000) -> m.ProduceRequest:
    """A produce of one small batch for each part."""
    topics = []
    for topic, producer, sequence in parts:
        batch = encode_batch(
            [Record(i, 0, None, b"%d" % (sequence + i), ()) for i in range(2)],
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence if producer >= 0 else -1,
        )
        partition = m.ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
        topics.append(
            m.ProduceRequest.TopicProduceData(topic_id=topic_id(topic), name=topic, partition_data=[partition])
        )
    return m.ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def script(chance: Random) -> list[tuple[Any, ...]]:
    """What happens, in order: produces, cut and healed ways, leaders that change, ISRs that shrink, minima."""
    sequences = dict.fromkeys(TOPICS_OF_THE_TEST, 0)
    events: list[tuple[Any, ...]] = []
    for _ in range(EVENTS):
        what = chance.choices(
            ("produce", "cut", "heal", "lead", "lag", "minimum", "rest"), weights=(12, 2, 3, 1, 1, 1, 4)
        )[0]
        if what == "produce":
            parts = []
            for topic in chance.sample(TOPICS_OF_THE_TEST, chance.choice((1, 1, 2))):
                kind = chance.random()
                sequence = sequences[topic] - (2 if kind < 0.1 else -6 if kind > 0.95 else 0)
                parts.append((topic, 7, max(0, sequence)) if kind < 0.7 or kind > 0.95 else (topic, -1, 0))
                if 0.1 <= kind < 0.7:
                    sequences[topic] += 2
            # With a time-out of 0 it is chance whether the time or the replicas come first, and may differ by the way.
            events.append((what, tuple(parts), chance.choice((-1, -1, -1, 1)), chance.choice((1, 150, 20_000))))
        elif what == "cut":
            events.append((what, chance.choice((2, 3))))
        elif what == "lead":
            events.append((what, chance.choice(TOPICS_OF_THE_TEST), chance.choice((1, 1, 2))))
        elif what == "minimum":
            events.append((what, chance.choice(TOPICS_OF_THE_TEST), chance.choice((1, 2, 3))))
        else:
            events.append((what,))
    return events


async def minimum(nodes: Nodes, topic: str, replicas: int) -> None:
    await nodes.entities.rewrite(TOPICS, topic, lambda before: {**before, "min.insync.replicas": str(replicas)})


@pytest.fixture(autouse=True, params=["short", "uncompiled", "shortest"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which way produces may take; "uncompiled" is the short one with queues of the uncompiled module."""
    name: str = request.param
    monkeypatch.setattr(Served, "offers_produces", name == "shortest")
    if name == "uncompiled":
        monkeypatch.setattr(Dispatcher, "_wait_for_replicas", _wait_uncompiled)
    return name


def _wait_uncompiled(self: Dispatcher, ctx: RequestContext, request: PlainProduce, appended: Uncommitted) -> None:
    queues = UNCOMPILED.CommitQueues(self._services)
    deadline = self._services.loop.time() + max(0, request.timeout_ms) / 1000
    waiting = UNCOMPILED.WaitingReply(ctx, appended.frame, len(request.batches), appended.refuse, deadline)
    ctx.keep_place(waiting.abandon)
    for number, partition, wait in appended.waits:
        waiting.wait_for(queues.of(partition), number, partition, wait)


async def played(
    directory: Path, events: Sequence[tuple[Any, ...]], version: int
) -> tuple[list[Any], list[Any], tuple[int, int]]:
    """Plays a script; returns node 1's answers, what its logs hold then, and how many produces took the shortest way,
    and waited there."""
    asked: list[asyncio.Future[m.ProduceResponse]] = []
    async with Nodes(directory, 3, replica_lag_time_max_ms="1000") as nodes:
        for topic in TOPICS_OF_THE_TEST:
            await nodes.lead(topic, leader=1, replicas=(1, 2, 3))
        for event in events:
            match event:
                case ("produce", parts, acks, timeout_ms):
                    asking = nodes[1].ask(request(parts, acks=acks, timeout_ms=timeout_ms), m.ProduceResponse, version)
                    asked.append(asyncio.ensure_future(asking))
                case ("cut", number):
                    nodes.cuts |= {(1, number), (number, 1)}
                case ("heal",):
                    nodes.cuts = set()
                case ("lead", topic, number):
                    await nodes.lead(topic, leader=number)
                case ("minimum", topic, replicas):
                    await minimum(nodes, topic, replicas)
                case ("lag",):
                    nodes.now_ms += 1500
                    finished(nodes[1].replication.isr_changes.shrink())
            await turns(5)
        nodes.cuts = set()
        answers = await asyncio.gather(*asked)
        logs = [nodes[1].values(topic) for topic in TOPICS_OF_THE_TEST]
        assert not queues(nodes[1]), "a queue is left that nobody waits in"
        shortest = nodes[1].dispatcher.shortcut
        assert isinstance(shortest, Shortcuts)
        return answers, logs, (shortest.produces.taken, shortest.produces.waited)


def queues(node: Node) -> list[CommitQueue]:
    """The queues in which requests wait."""
    found = [partition.commits for partition in node.replicas.partitions.values()]
    return [each for each in found if each is not None and each._waiting]


@pytest.mark.parametrize("number", range(4))
def test_both_ways_answer_alike_whoever_leads_lags_or_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, way: str
) -> None:
    chance = Random(drawn("produces that wait for replicas", number))
    events, version = script(chance), chance.choice((9, 12, 13))
    found: list[tuple[list[Any], list[Any], tuple[int, int]]] = []
    waited = 0

    def counted(*how: Any) -> Any:
        nonlocal waited
        answer = append_plainly(*how)
        waited += isinstance(answer, Uncommitted)
        return answer

    def play(directory: Path, way: Callable[..., Any]) -> None:
        @in_virtual_time
        async def test() -> None:
            found.append(await played(directory, events, version))

        with monkeypatch.context() as patched:
            patched.setattr(dispatch, "append_plainly", way)
            test()

    play(tmp_path / "short", counted)
    with monkeypatch.context() as patched:
        patched.setattr(Served, "offers_produces", False)
        play(tmp_path / "long", lambda *_: None)
    assert found[0][0] == found[1][0], events
    assert found[0][1] == found[1][1]
    assert waited or way == "shortest", "the short way was not gone"
    assert any(found[0][2]) is (way == "shortest"), "the shortest way was not gone"


@in_virtual_time
async def test_requests_of_one_partition_wait_in_one_operation_and_are_answered_at_once(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2), to=(1,))
        before = len(nodes[1].purgatory)
        waiting = [asyncio.ensure_future(nodes[1].ask(request([("t", -1, 0)]), m.ProduceResponse)) for _ in range(5)]
        await turns(5)
        (queue,) = queues(nodes[1])
        assert (queue.requests, len(nodes[1].purgatory) - before) == (5, 1)
        leader = nodes[1].partition("t")
        leader.state.follower_fetched(nodes[2].id, 6, nodes.now_ms)
        nodes[1].purgatory.touch(leader.key)
        await turns(5)
        assert [each.done() for each in waiting] == [True, True, True, False, False]
        leader.state.follower_fetched(nodes[2].id, 10, nodes.now_ms)
        nodes[1].purgatory.touch(leader.key)
        offsets = [
            (each.responses[0].partition_responses[0].error_code, each.responses[0].partition_responses[0].base_offset)
            for each in await asyncio.gather(*waiting)
        ]
        assert offsets == [(0, 2 * n) for n in range(5)]
        assert (queues(nodes[1]), len(nodes[1].purgatory)) == ([], before)


@in_virtual_time
async def test_each_request_has_its_own_deadline(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()

    async def ended(asking: Any, began: float) -> tuple[ErrorCode, int]:
        answer = await asking
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        return code, round(1000 * (loop.time() - began))

    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2), to=(1,))
        began = loop.time()
        waits = [
            asyncio.ensure_future(
                ended(nodes[1].ask(request([("t", -1, 0)], timeout_ms=timeout_ms), m.ProduceResponse), began)
            )
            for timeout_ms in (500, 100, 2_000, 100)
        ]
        found = await asyncio.gather(*waits)
        assert {code for code, _ in found} == {ErrorCode.REQUEST_TIMED_OUT}
        assert [took_ms // 10 for _, took_ms in found] == [50, 10, 200, 10]


@in_virtual_time
async def test_a_repeated_batch_does_not_wait_for_what_came_in_between(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2), to=(1,))
        node, leader = nodes[1], nodes[1].partition("t")
        asked = [
            asyncio.ensure_future(node.ask(request([("t", 7, sequence)], timeout_ms=timeout_ms), m.ProduceResponse))
            for sequence, timeout_ms in ((0, 20_000), (2, 20_000), (0, 20_000), (4, 20_000), (2, 20_000))
        ]
        await turns(5)
        for offset, done in ((2, {0, 2}), (4, {0, 1, 2, 4}), (6, {0, 1, 2, 3, 4})):
            leader.state.follower_fetched(nodes[2].id, offset, nodes.now_ms)
            node.purgatory.touch(leader.key)
            await turns(5)
            assert {number for number, each in enumerate(asked) if each.done()} == done
        found = [each.responses[0].partition_responses[0] for each in await asyncio.gather(*asked)]
        assert [(each.error_code, each.base_offset) for each in found] == [(0, 0), (0, 2), (0, 0), (0, 4), (0, 2)]
        assert queues(node) == []


@in_virtual_time
async def test_many_deadlines_are_looked_at_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look costs time for each that waits, so there are fewer looks the more wait."""
    looks, loop = 0, asyncio.get_running_loop()
    call_at = loop.call_at

    def counted(when: float, callback: Callable[..., Any], *arguments: Any, **how: Any) -> asyncio.TimerHandle:
        def called(*given: Any) -> None:
            nonlocal looks
            looks += 1
            callback(*given)

        is_look = callback == nodes[1].purgatory._expire
        return call_at(when, called if is_look else callback, *arguments, **how)

    for module in (commit_queue, UNCOMPILED):
        monkeypatch.setattr(module, "_S_BETWEEN_LOOKS", 0.001)
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2), to=(1,))
        monkeypatch.setattr(loop, "call_at", counted)
        asked = [
            asyncio.ensure_future(nodes[1].ask(request([("t", -1, 0)], timeout_ms=timeout_ms), m.ProduceResponse))
            for timeout_ms in range(100, 300)
        ]
        for _ in range(100):  # those that come meanwhile bring no look forward
            await asyncio.sleep(0.001)
            asked.append(asyncio.ensure_future(nodes[1].ask(request([("t", -1, 0)], timeout_ms=1), m.ProduceResponse)))
        answers = await asyncio.gather(*asked)
    assert {each.responses[0].partition_responses[0].error_code for each in answers} == {ErrorCode.REQUEST_TIMED_OUT}
    assert 1 < looks < 20


@in_virtual_time
@pytest.mark.parametrize("end", ["time", "replicas"])
async def test_many_that_end_at_once_are_answered_over_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    for module in (commit_queue, UNCOMPILED):
        monkeypatch.setattr(module, "_ANSWERS_PER_LOOK", 10)
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2), to=(1,))
        node, leader = nodes[1], nodes[1].partition("t")
        asked = [
            asyncio.ensure_future(node.ask(request([("t", -1, 0)], timeout_ms=1_000), m.ProduceResponse))
            for _ in range(35)
        ]
        await eventually_async(lambda: queues(node) != [] and queues(node)[0].requests == 35)
        (queue,) = queues(node)
        if end == "replicas":
            leader.state.follower_fetched(nodes[2].id, 70, nodes.now_ms)
            node.purgatory.touch(leader.key)
        else:
            await asyncio.sleep(0.98)  # each turn of the loop below takes a microsecond
        waiting = [35]
        while waiting[-1]:
            await asyncio.sleep(0)
            if queue.requests != waiting[-1]:
                waiting.append(queue.requests)
        answers = [each.responses[0].partition_responses[0] for each in await asyncio.gather(*asked)]
    assert max(before - after for before, after in pairwise(waiting)) == 10
    code = ErrorCode.REQUEST_TIMED_OUT if end == "time" else ErrorCode.NONE
    assert {each.error_code for each in answers} == {code}


@in_virtual_time
async def test_clients_that_leave_leave_nothing_behind(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2), to=(1,))
        connection = nodes[1].connection()
        asked = [asyncio.ensure_future(connection.ask(request([("t", -1, 0)]), m.ProduceResponse)) for _ in range(200)]
        stays = asyncio.ensure_future(nodes[1].ask(request([("t", -1, 0)]), m.ProduceResponse))
        await eventually_async(lambda: queues(nodes[1]) != [] and queues(nodes[1])[0].requests == 201)
        for pipe in connection._peers._pipes.values():
            pipe.served.close("the client is gone")
        (queue,) = queues(nodes[1])
        assert queue.requests == 1
        assert len(queue._waiting) <= 65, "a queue keeps those whose clients have left"
        leader = nodes[1].partition("t")
        leader.state.follower_fetched(nodes[2].id, 402, nodes.now_ms)
        nodes[1].purgatory.touch(leader.key)
        assert (await stays).responses[0].partition_responses[0].error_code == 0
        assert {type(each) for each in await asyncio.gather(*asked, return_exceptions=True)} == {PeerUnreachable}
        assert queues(nodes[1]) == []


@in_virtual_time
async def test_a_request_waits_for_all_of_its_partitions_whatever_happens_to_others(tmp_path: Path) -> None:
    """Connections that break while the head of a queue is answered must not count a batch twice."""
    async with Nodes(tmp_path, 2) as nodes:
        for topic in TOPICS_OF_THE_TEST:
            await nodes.lead(topic, leader=1, replicas=(1, 2), to=(1,))
        node, connection = nodes[1], nodes[1].connection()
        lost = [asyncio.ensure_future(connection.ask(request([("t", -1, 0)]), m.ProduceResponse)) for _ in range(150)]
        both = asyncio.ensure_future(node.ask(request([("t", -1, 0), ("u", -1, 0)]), m.ProduceResponse))
        await eventually_async(lambda: sum(queue.requests for queue in queues(node)) == 152)
        (pipe,) = connection._peers._pipes.values()
        answer_later = pipe.served.answer_later

        def breaks(slot: Any, chunks: Any, timed: Any) -> None:
            answer_later(slot, chunks, timed)
            pipe.served.close("the client is gone")

        pipe.served.answer_later = breaks  # type: ignore
        for offset in (302, 302):
            node.partition("t").state.follower_fetched(nodes[2].id, offset, nodes.now_ms)
            node.purgatory.touch(node.partition("t").key)
            await turns(5)
        assert not both.done(), "it is answered though one of its batches is not committed"
        (queue,) = queues(node)
        assert queue.requests == 1
        node.partition("u").state.follower_fetched(nodes[2].id, 2, nodes.now_ms)
        node.purgatory.touch(node.partition("u").key)
        assert [each.partition_responses[0].error_code for each in (await both).responses] == [0, 0]
        assert PeerUnreachable in {type(each) for each in await asyncio.gather(*lost, return_exceptions=True)}
        assert queues(node) == []


@in_virtual_time
async def test_a_request_of_two_partitions_times_out_once(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        for topic in TOPICS_OF_THE_TEST:
            await nodes.lead(topic, leader=1, replicas=(1, 2), to=(1,))
        asking = nodes[1].ask(request([("t", -1, 0), ("u", -1, 0)], timeout_ms=100), m.ProduceResponse)
        waiting = asyncio.ensure_future(asking)
        await turns(5)
        nodes[1].partition("u").state.follower_fetched(nodes[2].id, 2, nodes.now_ms)
        nodes[1].purgatory.touch(nodes[1].partition("u").key)
        codes = [each.partition_responses[0].error_code for each in (await waiting).responses]
        assert codes == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
        assert all(queue.requests == 0 for queue in queues(nodes[1]))


@pytest.mark.parametrize("version", [9, 12, 13])
@in_virtual_time
async def test_a_produce_whose_leader_is_replaced_hears_who_leads_now(tmp_path: Path, version: int) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2), to=(1,))
        waiting = asyncio.ensure_future(nodes[1].ask(request([("t", -1, 0)]), m.ProduceResponse, version))
        await turns(5)
        assert [queue.requests for queue in queues(nodes[1])] == [1]
        await nodes.lead("t", leader=2)
        answer = await waiting
        (found,) = answer.responses[0].partition_responses
        assert (found.error_code, found.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        leader = (found.current_leader.leader_id, found.current_leader.leader_epoch)
        named = [(each.node_id, each.host) for each in answer.node_endpoints]
        assert (leader, named) == (((2, 1), [(2, "node-2")]) if version >= 10 else ((-1, -1), []))
