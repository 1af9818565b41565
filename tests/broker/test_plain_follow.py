"""The shortest way of a follower's fetch, compiled and not, gives the answers of the general way, byte for byte, and
leaves partitions, followers and sessions in the same state."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from copy import copy
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.fetch import plain_follow, plain_session, waiting_fetch
from headrace.broker.request.throttling import Throttling
from headrace.errors import ErrorCode
from headrace.log import upkeep
from headrace.metadata.entity_configs import TOPICS
from headrace.network import connection as connections
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import read_response_header, write_request_header
from headrace.replication.isr import committed
from headrace.replication.replica_offsets import Follower
from headrace.types import BrokerId
from tests.broker.replica_nodes import Nodes, _Pipe, topic_id
from tests.simulation.virtual_time import in_virtual_time
from tests.uncompiled import uncompiled

NAMES = ("a", "b", "c", "throttled")
WAYS = ("compiled", "uncompiled", "general")
FOLLOWERS = (2, 3)
SETTINGS = {"leader_replication_throttled_rate": "100", "log_segment_bytes": "1048576"}
VERSION = 18
Wanted = m.FetchRequest.FetchPartition


def uncompiled_module() -> ModuleType:
    return uncompiled(plain_follow, connections, waiting_fetch, plain_session)


def decoded(answer: bytes) -> m.FetchResponse:
    _, pos = read_response_header(answer, ApiKey.FETCH, VERSION)
    return m.FetchResponse.decode(VERSION, answer, pos)[0]


class World:
    """A leader that answers followers by one of the ways. The followers are the test's."""

    def __init__(self, way: str, nodes: Nodes) -> None:
        self.way, self.nodes, self.leader = way, nodes, nodes[1]
        dispatcher = self.leader.dispatcher
        self.follows: Any = None
        if way == "compiled":
            self.follows = cast(Any, dispatcher.shortcut).follows
        elif way == "uncompiled":
            times = dispatcher.handlers[ApiKey.FETCH].times
            self.follows = uncompiled_module().PlainFollows(dispatcher._services, times)
            dispatcher.__dict__["shortcut"] = SimpleNamespace(follows=self.follows, take=self.follows.take)
        else:
            dispatcher.__dict__["shortcut"] = None
        self.pipes = {follower: _Pipe(self.leader) for follower in FOLLOWERS}
        self.sessions = dict.fromkeys(FOLLOWERS, 0)

    @property
    def answered(self) -> int:
        return 0 if self.follows is None else int(self.follows.taken + self.follows.waited)

    def send(self, follower: int, request: m.FetchRequest, version: int = VERSION) -> "asyncio.Future[bytes]":
        """Sends a request, which is not answered yet if it waits."""
        if request.session_epoch > 0:
            request.session_id += self.sessions[follower]
        return self.send_frame(
            follower, write_request_header(ApiKey.FETCH, version, 9, "follower") + request.encode(version)
        )

    def send_frame(self, follower: int, frame: bytes) -> "asyncio.Future[bytes]":
        """As `send`, of any bytes."""
        if self.pipes[follower].served.is_closed:
            self.pipes[follower] = _Pipe(self.leader)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.pipes[follower].answers.append(answer)
        self.pipes[follower].on_bytes(frame)
        return answer

    def note_session(self, follower: int, answer: bytes) -> None:
        self.sessions[follower] = decoded(answer).session_id

    def state(self) -> dict[str, Any]:
        """All that a fetch may change."""
        found: dict[str, Any] = {"waiting": len(self.leader.purgatory), "watched": len(self.leader.purgatory.watched)}
        for key, partition in self.leader.replicas.partitions.items():
            state = partition.state
            found[str(key)] = (
                state.high_watermark, state.log_end_offset, state.leader_epoch, state.partition_epoch, state.isr_state,
                {each: [getattr(one, name) for name in Follower.__slots__] for each, one in state.followers.items()},
            )  # fmt: skip
        sessions = self.leader.dispatcher._services.fetch_sessions._sessions
        for each in sessions.values():
            found[f"session {each.id}"] = (
                each.epoch, each.last_used_ms, each.size, [(key, one.key, one.high_watermark, one.log_start_offset,
                one.wanted) for key, one in each.partitions.items()],
            )  # fmt: skip
        replication = self.leader.replication
        found["sent"] = replication.bytes_out, replication.leader_quota.bytes_passed
        found["requests"] = list(self.leader.dispatcher.handlers[ApiKey.FETCH].times.by_version)
        found["traffic"] = [(topic, each.fetches, each.bytes_out, each.failed_fetches)
                            for topic, each in self.leader.replicas.traffic]  # fmt: skip
        found["changes"] = dict(self.nodes.changes)
        return found


async def worlds(stack: AsyncExitStack, directory: Path) -> list[World]:
    found = []
    for way in WAYS:
        nodes = await stack.enter_async_context(Nodes(directory / way, 3, **SETTINGS))
        for follower in FOLLOWERS:
            nodes.crash(follower)
        await nodes.entities.rewrite(TOPICS, "throttled", lambda _: {"leader.replication.throttled.replicas": "*"})
        await settled()
        for topic in NAMES:
            await nodes.lead(topic, leader=1, replicas=(1, 2, 3), isr=(1, 2, 3) if topic != "throttled" else (1,))
        found.append(World(way, nodes))
    return found


async def settled() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


class Steps:
    """The same events in all worlds."""

    def __init__(self, seed: int, found: list[World]) -> None:
        self.chance, self.worlds = random.Random(seed), found
        self.session_epochs = dict.fromkeys(FOLLOWERS, 0)
        self.offsets = {(each, topic): 0 for each in FOLLOWERS for topic in NAMES}
        self.told: dict[tuple[int, str], tuple[int, bool] | None] = {}
        """The leader epoch that a follower has sent; None if it sent anything."""
        self.pending: list[tuple[object, list[asyncio.Future[bytes]]]] = []
        self.kinds: Counter[str] = Counter()

    async def all(self, what: Callable[[World], object]) -> None:
        for each in self.worlds:
            done = what(each)
            if asyncio.iscoroutine(done):
                await done

    async def step(self) -> None:
        kinds = {
            self.append: 5, self.fetch: 12, self.open: 0.5, self.wait_a_while: 3, self.elect: 0.7,
            self.delete_records: 1, self.change_isr: 1, self.leave: 0.5, self.replicas_change: 0.3,
            self.delete_topic: 0.1,
        }  # fmt: skip
        (kind,) = self.chance.choices(list(kinds), list(kinds.values()))
        self.kinds[kind.__name__] += 1
        await kind()
        await settled()
        self.check(kind.__name__)

    def check(self, what: str) -> None:
        still = []
        for request, answers in self.pending:
            done = [each.done() for each in answers]
            assert len(set(done)) == 1, (what, done, request)
            if not done[0]:
                still.append((request, answers))
                continue
            results = [str(each.exception()) if each.exception() else each.result() for each in answers]
            assert results[0] == results[1] == results[2], (what, request)
        self.pending = still
        states = [each.state() for each in self.worlds]
        for key, expected in states[2].items():
            assert states[0].get(key) == states[1].get(key) == expected, (what, key)
        assert len({len(each) for each in states}) == 1, what

    def topics_known(self) -> list[str]:
        return [topic for topic in NAMES if topic in self.worlds[0].nodes.states]

    def leads(self, topic: str) -> bool:
        return self.worlds[0].nodes.states[topic].leader == 1

    # -- events

    async def append(self) -> None:
        topic, values = self.chance.choice(NAMES), ["x" * self.chance.choice((1, 200, 9_000, 40_000))]
        values *= self.chance.choice((1, 1, 3))
        if topic in self.topics_known() and self.leads(topic):
            await self.all(lambda each: each.leader.append(topic, *values))

    async def wait_a_while(self) -> None:
        ms = self.chance.choice((1, 20, 200, 40_000))
        for each in self.worlds:
            each.nodes.now_ms += ms
        await asyncio.sleep(min(ms, 1_000) / 1000)

    async def elect(self) -> None:
        topic, leader = self.chance.choice(NAMES), self.chance.choices((1, 2), (9, 1))[0]
        if topic in self.topics_known():
            await self.all(lambda each: each.nodes.lead(topic, leader=leader))

    async def change_isr(self) -> None:
        topic = self.chance.choice(NAMES)
        isr = self.chance.choice(((1, 2, 3), (1, 2), (1,), (1, 3)))
        if topic in self.topics_known():
            await self.all(lambda each: each.nodes.lead(topic, leader=1, isr=isr))

    async def replicas_change(self) -> None:
        topic = self.chance.choice(NAMES)
        if topic in self.topics_known():
            await self.all(lambda each: each.nodes.lead(topic, leader=1, replicas=(1, 2), isr=(1, 2)))

    async def delete_topic(self) -> None:
        if "c" in self.topics_known():
            await self.all(lambda each: each.nodes.delete("c"))
        else:
            await self.all(lambda each: each.nodes.lead("c", leader=1, replicas=(1, 2, 3), isr=(1, 2, 3)))

    async def delete_records(self) -> None:
        topic = self.chance.choice(NAMES)
        if topic not in self.topics_known():
            return
        share = self.chance.random()
        for each in self.worlds:
            partition = each.leader.partition(topic)
            if partition.is_leader:
                upkeep.delete_records_before(partition.log, int(partition.high_watermark * share), 0)

    async def leave(self) -> None:
        follower = self.chance.choice(FOLLOWERS)
        await self.all(lambda each: each.pipes[follower].served.close("the follower has gone"))
        self.session_epochs[follower] = 0

    def wanted(self, follower: int, topic: str, is_wild: bool) -> Wanted:
        """What a follower asks for, or anything."""
        chance, name = self.chance, (follower, topic)
        end, start, latest, epoch = 3, 0, 0, 0
        if topic in self.topics_known():
            log = self.worlds[0].leader.partition(topic).log
            end, start, latest = log.log_end_offset, log.log_start_offset, log.leader_epochs.latest
            epoch = self.worlds[0].nodes.states[topic].leader_epoch
        last = self.offsets[name]
        places = {"end": end, "on": chance.randint(min(last, end), end), "same": min(last, end), "above": end + 1,
                  "below": start - 1}  # fmt: skip
        weights = (3, 2, 2, 1, 1) if is_wild else (12, 4, 4, 0, 0)
        offset = places[chance.choices(list(places), weights)[0]]
        self.offsets[name] = offset if is_wild else max(offset, start)
        self.told[name] = None if is_wild else (epoch, topic in self.topics_known())
        return Wanted(
            partition=7 if is_wild and chance.random() < 0.1 else 0,
            current_leader_epoch=chance.choice((-1, epoch - 1, epoch + 1, epoch)) if is_wild else epoch,
            fetch_offset=self.offsets[name],
            last_fetched_epoch=chance.randint(-1, latest + 1) if is_wild else chance.choice((latest, latest, -1)),
            log_start_offset=chance.choice((0, start)),
            partition_max_bytes=chance.choice((1 << 20, 1 << 20, 0, 300, 50_000)),
        )

    def follows(self, follower: int, topic: str) -> bool:
        state = self.worlds[0].nodes.states.get(topic)
        return state is not None and state.leader == 1 and follower in state.replicas

    async def open(self) -> None:
        """A session with all partitions, or some."""
        follower = self.chance.choice(FOLLOWERS)
        await self.ask(follower, self.chance.sample(NAMES, self.chance.choice((2, 3, 4, 4))), 0, False)

    async def fetch(self) -> None:
        follower = self.chance.choice(FOLLOWERS)
        if self.pending and self.chance.random() < 0.8:  # most followers wait for an answer before they ask again
            await asyncio.sleep(1)
            self.check("a wait")
        epoch = self.session_epochs[follower]
        if not epoch:
            await self.open()
            return
        topics = self.chance.sample(NAMES, self.chance.choice((0, 0, 1, 1, 2, 4)))
        is_wild = self.chance.random() < 0.1
        if not is_wild:
            states = self.worlds[0].nodes.states
            told = self.told
            due = [topic for topic in NAMES if (follower, topic) in told and self.follows(follower, topic)
                   and told[follower, topic] != (states[topic].leader_epoch, True)]  # fmt: skip
            topics = [topic for topic in dict.fromkeys([*topics, *due]) if self.follows(follower, topic)]
        is_known = self.chance.random() < 0.97
        self.kinds["in a session"] += 1
        await self.ask(follower, topics, epoch if is_known else epoch + 1, is_wild)

    async def ask(self, follower: int, topics: list[str], session_epoch: int, is_wild: bool) -> None:
        chance = self.chance
        parts = [(topic, self.wanted(follower, topic, is_wild)) for topic in topics]
        left = [topic for topic in NAMES if not self.follows(follower, topic) and (follower, topic) in self.told]
        forgotten = [m.FetchRequest.ForgottenTopic(topic_id=topic_id(topic), partitions=[0, 7])
                     for topic in left if chance.random() < 0.5]  # fmt: skip
        epoch = 50 + 10 * follower + (chance.choice((0, 1, -1)) if is_wild else 0)
        limits: dict[str, Any] = {
            "max_wait_ms": chance.choice((0, 40, 40, 500)), "min_bytes": chance.choice((0, 1, 1, 1, 5_000)),
            "max_bytes": chance.choice((1 << 20, 1 << 20, 1 << 20, 60_000, 100)),
            "isolation_level": int(is_wild and chance.random() < 0.2),
        }  # fmt: skip
        is_known, version = chance.random() < 0.99, VERSION if chance.random() < 0.95 else chance.choice((15, 16, 17))

        def send(world: World) -> "asyncio.Future[bytes]":
            request = m.FetchRequest(
                session_id=0 if is_known else 1,
                session_epoch=session_epoch,
                replica_state=m.FetchRequest.ReplicaState(replica_id=follower, replica_epoch=epoch),
                topics=[asked(topic, each) for topic, each in parts],
                forgotten_topics_data=list(forgotten),
                **limits,
            )
            return world.send(follower, request, version)

        answers = [send(each) for each in self.worlds]
        request = (follower, session_epoch, epoch, limits, parts)
        self.pending.append((request, answers))
        await settled()
        self.check(f"fetch {request}")
        self.session_epochs[follower] = session_epoch + 1 if is_known else 0
        if answers[0].done() and not answers[0].exception():
            answer = answers[0].result()
            _, pos = read_response_header(answer, ApiKey.FETCH, version)
            error = m.FetchResponse.decode(version, answer, pos)[0].error_code
            if error:
                self.session_epochs[follower] = 0
            elif not session_epoch:
                for world, each in zip(self.worlds, answers, strict=True):
                    world.note_session(follower, each.result())


def asked(topic: str, wanted: Wanted) -> m.FetchRequest.FetchTopic:
    return m.FetchRequest.FetchTopic(topic=topic, topic_id=topic_id(topic), partitions=[copy(wanted)])


@pytest.mark.parametrize("seed", range(6))
def test_fetches_are_answered_alike_and_leave_the_same_state(seed: int, tmp_path: Path) -> None:
    taken: list[int] = []

    @in_virtual_time
    async def run() -> None:
        async with AsyncExitStack() as stack:
            steps = Steps(seed, await worlds(stack, tmp_path))
            for _ in range(250):
                await steps.step()
            taken.extend(each.answered for each in steps.worlds)
            taken.append(steps.kinds["in a session"])

    run()
    assert taken[0] == taken[1] > 3, f"of {taken[3]} requests in a session, few take the shortest way"


def test_a_quota_that_comes_while_a_followers_fetch_waits_does_not_count_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[object] = []

    def count(*what: object) -> float:
        counted.append(what)
        return 0.0

    monkeypatch.setattr(Throttling, "_request_wait", count)

    def request(world: World, session_epoch: int) -> m.FetchRequest:
        epoch = world.nodes.states["a"].leader_epoch
        wanted = Wanted(partition=0, current_leader_epoch=epoch, last_fetched_epoch=-1, partition_max_bytes=1 << 20)
        return m.FetchRequest(
            session_epoch=session_epoch,
            replica_state=m.FetchRequest.ReplicaState(replica_id=2, replica_epoch=70),
            topics=[asked("a", wanted)] if not session_epoch else [],
            max_wait_ms=500 * session_epoch,
            min_bytes=1,
            max_bytes=1 << 20,
        )

    @in_virtual_time
    async def run() -> None:
        async with AsyncExitStack() as stack:
            for world in await worlds(stack, tmp_path):
                opened = world.send(2, request(world, 0))
                await settled()
                world.note_session(2, opened.result())
                waiting = world.send(2, request(world, 1))
                await settled()
                assert not waiting.done()
                world.leader.throttling.is_active = True
                world.leader.append("a", "x")
                await settled()
                assert waiting.done()
                assert not counted, world.way

    run()


# -- what a session keeps of its partitions


def follow(
    world: World, session_epoch: int, offset: int, *, broker_epoch: int = 70, max_wait_ms: int = 0
) -> m.FetchRequest:
    """A fetch of broker 2, of topic a from `offset` on."""
    epoch = world.nodes.states["a"].leader_epoch
    last = -1 if not offset else world.leader.partition("a").log.leader_epochs.latest
    wanted = Wanted(
        partition=0, current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=last,
        partition_max_bytes=1 << 20,
    )  # fmt: skip
    return m.FetchRequest(
        session_epoch=session_epoch,
        replica_state=m.FetchRequest.ReplicaState(replica_id=2, replica_epoch=broker_epoch),
        topics=[asked("a", wanted)],
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
    )


def alike(tmp_path: Path, story: Callable[[World], Awaitable[list[bytes]]]) -> tuple[list[bytes], dict[str, Any]]:
    """The answers of a story, and the state behind it, which are the same in all worlds. It begins when broker 2 has
    opened a session for topic a, which has three records."""
    found: list[tuple[list[bytes], dict[str, Any]]] = []

    @in_virtual_time
    async def run() -> None:
        async with AsyncExitStack() as stack:
            for world in await worlds(stack, tmp_path):
                world.leader.append("a", *"xyz")
                opened = world.send(2, follow(world, 0, 0))
                await settled()
                world.note_session(2, opened.result())
                found.append((await story(world), world.state()))

    run()
    assert found[0] == found[1] == found[2]
    return found[0]


async def same_leader_in_a_new_epoch(world: World) -> None:
    await world.nodes.lead("a", leader=1)


async def led_by_another_meanwhile(world: World) -> None:
    await world.nodes.lead("a", leader=2)
    await world.nodes.lead("a", leader=1)


async def deleted_and_made_again(world: World) -> None:
    await world.nodes.delete("a")
    await world.nodes.lead("a", leader=1, replicas=(1, 2, 3), isr=(1, 2, 3))
    world.leader.append("a", *"xyz")


async def reassigned_and_back(world: World) -> None:
    await world.nodes.lead("a", leader=1, replicas=(1, 3), isr=(1, 3))
    await world.nodes.lead("a", leader=1, replicas=(1, 2, 3), isr=(1, 2, 3))


async def left_out_of_the_isr(world: World) -> None:
    await world.nodes.lead("a", leader=1, isr=(1, 3))


async def stepped_down_and_leads_again(world: World) -> None:
    world.leader.replicas.step_down()
    await world.nodes.lead("a", leader=1)


@pytest.mark.parametrize(
    "change",
    [
        same_leader_in_a_new_epoch, led_by_another_meanwhile, deleted_and_made_again, reassigned_and_back,
        left_out_of_the_isr, stepped_down_and_leads_again,
    ],
    ids=lambda change: change.__name__,
)  # fmt: skip
def test_a_session_notices_that_a_partition_or_its_follower_is_another_object(
    change: Callable[[World], Any], tmp_path: Path
) -> None:
    async def story(world: World) -> list[bytes]:
        before = world.answered
        first = world.send(2, follow(world, 1, 1))
        await settled()
        assert first.done()
        await change(world)
        assert world.leader.partition("a").is_leader
        second = world.send(2, follow(world, 2, 2))
        await settled()
        assert world.answered == before + 2 * (world.way != "general")
        progress = world.leader.partition("a").state.followers[BrokerId(2)]
        assert progress.log_end_offset == 2, f"another follower has the progress, {world.way}"
        return [first.result(), second.result()]

    (_, second), _ = alike(tmp_path, story)
    answer = decoded(second)
    assert [each.records is not None for topic in answer.responses for each in topic.partitions] == [True]


def test_a_follower_that_registers_again_is_told_apart_from_itself(tmp_path: Path) -> None:
    async def story(world: World) -> list[bytes]:
        answers = []
        for number, broker_epoch in enumerate((70, 75, 75, 70, 76), 1):  # the fourth is from before
            answer = world.send(2, follow(world, number, 2, broker_epoch=broker_epoch))
            await settled()
            answers.append(answer.result())
            progress = world.leader.partition("a").state.followers[BrokerId(2)]
            assert progress.broker_epoch == (75 if number == 4 else broker_epoch)
        return answers

    alike(tmp_path, story)


def test_a_follower_is_eligible_while_the_metadata_has_its_broker(tmp_path: Path) -> None:
    async def story(world: World) -> list[bytes]:
        answers = []
        for number, is_alive in enumerate((True, False, True), 1):
            told = world.nodes._metadata(world.leader, "a", world.nodes.states["a"])
            told.live_brokers = [each for each in told.live_brokers if is_alive or each.id != 2]
            await world.leader.control.handle(told)
            answer = world.send(2, follow(world, number, number))
            await settled()
            answers.append(answer.result())
            assert world.leader.partition("a").state.followers[BrokerId(2)].is_eligible == is_alive
        return answers

    alike(tmp_path, story)


def test_a_session_that_several_brokers_use_counts_the_progress_of_each(tmp_path: Path) -> None:
    async def story(world: World) -> list[bytes]:
        answers = []
        for number, (broker, offset) in enumerate(((2, 1), (3, 2), (2, 2), (3, 3)), 1):
            request = follow(world, number, offset)
            request.replica_state.replica_id = broker
            answer = world.send(2, request)
            await settled()
            answers.append(answer.result())
            assert world.leader.partition("a").state.followers[BrokerId(broker)].log_end_offset == offset
        return answers

    alike(tmp_path, story)


def test_a_session_that_is_evicted_while_its_fetch_waits_answers_that_one_alone(tmp_path: Path) -> None:
    async def story(world: World) -> list[bytes]:
        waiting = world.send(2, follow(world, 1, 3, max_wait_ms=500))
        await settled()
        assert not waiting.done()
        world.leader.dispatcher._services.fetch_sessions.end(world.sessions[2])
        world.leader.append("a", "new")
        await settled()
        following = world.send(2, follow(world, 2, 4, max_wait_ms=500))
        await settled()
        return [waiting.result(), following.result()]

    (_, following), _ = alike(tmp_path, story)
    assert decoded(following).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_fetches_of_one_session_wait_again_and_again_and_several_at_once(tmp_path: Path) -> None:
    """The first is answered by records, the second in time; the third one is overtaken by the fourth."""

    async def story(world: World) -> list[bytes]:
        loop = asyncio.get_running_loop()
        answers = []
        for number, wait_ms in enumerate((300, 500, 40, 500, 100), 1):
            end, began = world.leader.partition("a").log.log_end_offset, loop.time()
            answer = world.send(2, follow(world, number, end, max_wait_ms=wait_ms))
            await asyncio.sleep(0.02)
            assert not answer.done()
            if number % 2:
                world.leader.append("a", "new")
            answers.append(await answer)
            took_ms = 20 if number % 2 else wait_ms
            assert took_ms <= 1000 * (loop.time() - began) < took_ms + 10, (world.way, number)
        end = world.leader.partition("a").log.log_end_offset
        third = world.send(2, follow(world, 6, end, max_wait_ms=500))
        fourth = world.send(2, follow(world, 7, end, max_wait_ms=300))
        await asyncio.sleep(0.02)
        assert not third.done() and not fourth.done()
        world.leader.append("a", "new")
        answers += [await third, await fourth]
        last = world.send(2, follow(world, 8, end + 1, max_wait_ms=200))
        await asyncio.sleep(0.02)
        world.pipes[2].served.close("the follower has gone")
        world.leader.append("a", "new")
        await asyncio.sleep(1)
        assert not last.done() or last.exception() is not None
        assert not len(world.leader.purgatory)
        return answers

    alike(tmp_path, story)


def test_a_replica_that_is_throttled_while_its_fetch_waits_gets_no_records_beyond_the_quota(tmp_path: Path) -> None:
    async def story(world: World) -> list[bytes]:
        waiting = world.send(2, follow(world, 1, 3, max_wait_ms=200))
        await settled()
        assert not waiting.done()
        await world.nodes.entities.rewrite(TOPICS, "a", lambda _: {"leader.replication.throttled.replicas": "*"})
        await settled()
        state = world.leader.partition("a").state
        state.isr_state = committed(state.isr - {2})
        world.leader.append("a", "new" * 1_000)
        await settled()
        following = world.send(2, follow(world, 2, 3, max_wait_ms=200))
        await asyncio.sleep(0.3)
        return [waiting.result(), following.result()]

    _, state = alike(tmp_path, story)
    assert state["sent"][1] > 0, "nothing counts for the quota"


def test_one_place_in_the_purgatory_does_for_the_fetches_of_a_session_that_wait(tmp_path: Path) -> None:
    """On other connections too, and for partitions that the session gets meanwhile."""

    async def story(world: World) -> list[bytes]:
        answers = []
        for number in range(1, 41):
            if number == 15:
                world.pipes[2].served.close("the follower has gone")
            end = world.leader.partition("a").log.log_end_offset
            request = follow(world, number, end, max_wait_ms=500)
            if number in (20, 21):
                wanted = Wanted(
                    partition=0, current_leader_epoch=world.nodes.states["b"].leader_epoch,
                    fetch_offset=world.leader.partition("b").log.log_end_offset, last_fetched_epoch=-1,
                    partition_max_bytes=1 << 20,
                )  # fmt: skip
                request.topics.append(asked("b", wanted))
            answer = world.send(2, request)
            await settled()
            assert not answer.done() and len(world.leader.purgatory) == 1
            if world.way != "general":
                assert len(world.leader.purgatory._deadlines) <= 4
            world.leader.append("b" if number == 20 else "a", "x" * 20_000)
            await settled()
            answers.append(answer.result())
        return answers

    alike(tmp_path, story)


def test_a_session_lets_go_of_the_replicas_that_were_dropped(tmp_path: Path) -> None:
    """Its follower may be dead, and never forget them."""

    async def story(world: World) -> list[bytes]:
        first = world.send(2, follow(world, 1, 1))
        await settled()
        services = world.leader.dispatcher._services
        (session,) = services.fetch_sessions._sessions.values()
        (kept,) = session.partitions.values()
        replica = world.leader.partition("a")
        assert kept.replica is (None if world.way == "general" else replica)
        list(services.fetch_sessions.let_go_of_dropped())
        assert kept.replica is (None if world.way == "general" else replica), "it is still there"
        await world.nodes.delete("a")
        list(services.fetch_sessions.let_go_of_dropped())
        assert kept.replica is kept.follower is kept.producers is None
        await world.nodes.lead("a", leader=1, replicas=(1, 2, 3), isr=(1, 2, 3))
        second = world.send(2, follow(world, 2, 0))
        await settled()
        return [first.result(), second.result()]

    alike(tmp_path, story)
