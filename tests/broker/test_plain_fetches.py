"""Followers that fetch the shortest way, compiled and not, send the same bytes as those that fetch the general way, and
come to the same logs and the same state."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.partitions.partition import Partition
from headrace.broker.replication import followed, plain_fetches, replica_fetcher
from headrace.broker.replication.following import FetcherServices
from headrace.errors import ErrorCode
from headrace.log import upkeep
from headrace.log.producers.verification import NOT_REQUIRED
from headrace.metadata.entity_configs import TOPICS
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.conversation.fetch_session_client import FetchSessionClient
from headrace.protocol.headers import read_response_header
from headrace.records.format2.batch import read_header
from headrace.records.format2.control import COMMIT, Marker
from headrace.types import LeaderEpoch
from tests.broker.replica_nodes import Node, Nodes
from tests.examples import QUICK
from tests.log.support import batch_of
from tests.simulation.virtual_time import in_virtual_time
from tests.uncompiled import uncompiled

NAMES = ("a", "b", "c", "flushed", "throttled")
BUSY = ("a", "a", "b", "b", "c", "c", "flushed", "throttled")
SETTINGS = {
    "log_segment_bytes": "1048576",
    "follower_replication_throttled_rate": "50000",
    "num_replica_fetchers": "1",
}
WAYS = ("compiled", "uncompiled", "general")
VERSION = 18


class World:
    """A leader, node 1, and a follower, node 2, that fetches one way."""

    def __init__(self, way: str, nodes: Nodes) -> None:
        self.way, self.nodes = way, nodes
        nodes[2].peers.lends = way != "general"
        nodes[2].peers.__dict__["is_uncompiled"] = way == "uncompiled"
        self.producers: Counter[tuple[str, int]] = Counter()

    @property
    def follower(self) -> Node:
        return self.nodes[2]

    def append(self, topic: str, sizes: list[int], producer: int, *, is_transactional: bool = False) -> None:
        """Batches of records of these sizes, if node 1 leads."""
        leader = self.nodes[1]
        partition = leader.partition(topic)
        if not partition.is_leader:
            return
        for size in sizes:
            batch = memoryview(
                batch_of(
                    b"v" * size,
                    b"w",
                    producer_id=producer,
                    sequence=self.producers[topic, producer] if producer >= 0 else -1,
                    is_transactional=is_transactional,
                    timestamps_ms=[self.nodes.now_ms] * 2,
                )
            )
            partition.append(batch, read_header(batch), now_ms=self.nodes.now_ms, acks=1, verification=NOT_REQUIRED)
            self.producers[topic, producer] += 2
        partition.touch_appended(leader.purgatory)

    def state(self) -> dict[str, Any]:
        """All that fetches may change."""
        node = self.follower
        found: dict[str, Any] = {
            "asked": [each.encode(VERSION) for each in node.peers.asked if isinstance(each, m.FetchRequest)],
            "counted": (node.replication.bytes_in, node.replication.follower_quota.bytes_passed),
        }
        for topic in NAMES:
            partition = node.partition(topic)
            log, state = partition.log, partition.state
            found[topic] = (
                log.log_start_offset, log.log_end_offset, log.leader_epochs.entries, state.high_watermark,
                state.log_end_offset, state.is_leader, [entry.batches for entry in log.producers.entries.values()],
                sorted(log.producers.entries), log.last_stable_offset(state.high_watermark),
            )  # fmt: skip
            found[f"{topic}'s bytes"] = [segment.records.size for segment in log.segments]
            found[f"{topic}'s records"] = Path(log.segments[-1].path(".log")).read_bytes()[: log.active.records.size]
        for fetcher in node.replication.fetchers:
            found[f"fetcher {fetcher.leader}"] = (
                fetcher._conversation.session, list(fetcher._changed), list(fetcher._uncut), list(fetcher._delayed),
                sorted(fetcher._session_partitions), fetcher._failures,
                [(key, each.lag, each.refusals, each.compared, each.leader_epoch)
                 for key, each in fetcher.partitions.items()],
            )  # fmt: skip
        return found


@pytest.fixture(autouse=True)
def forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the fetchers of some nodes run uncompiled."""
    form, of_followed = uncompiled(plain_fetches), uncompiled(followed)

    def fetches(following: followed.Following, services: FetcherServices) -> object:
        is_uncompiled = getattr(services.peers, "is_uncompiled", False)
        return (form if is_uncompiled else plain_fetches).PlainFetches(following, services)

    def following(conversation: FetchSessionClient, failed: Any) -> object:
        is_uncompiled = getattr(failed.__self__._services.peers, "is_uncompiled", False)
        return (of_followed if is_uncompiled else followed).Following(conversation, failed)

    def followed_one(partition: Partition) -> object:
        is_uncompiled = Path(partition.log.directory).parts[-3:-1] == ("uncompiled", "2")
        return (of_followed if is_uncompiled else followed).Followed(partition)

    monkeypatch.setattr(replica_fetcher, "PlainFetches", fetches)
    monkeypatch.setattr(replica_fetcher, "Following", following)
    monkeypatch.setattr(replica_fetcher, "Followed", followed_one)


async def worlds(stack: AsyncExitStack, directory: Path) -> list[World]:
    found = [World(way, await stack.enter_async_context(Nodes(directory / way, 2, **SETTINGS))) for way in WAYS]
    limited = {"follower.replication.throttled.replicas": "*"}
    for each in found:
        await each.nodes.entities.rewrite(TOPICS, "flushed", lambda _: {"flush.messages": "1"})
        await each.nodes.entities.rewrite(TOPICS, "throttled", lambda _: limited)
    await asyncio.sleep(0.1)
    for each in found:
        for topic in NAMES:
            await each.nodes.lead(topic, leader=1, replicas=(1, 2), isr=(1, 2) if topic != "throttled" else (1,))
    await asyncio.sleep(1)
    for each in found:
        each.append("a", [1], -1)  # from now on, all followers wait for the leader at the same times
    await settled()
    for each in found:
        each.follower.peers.asked.clear()
    return found


async def settled() -> None:
    await asyncio.sleep(0.007)


class Steps:
    """The same events in all worlds."""

    def __init__(self, seed: int, found: list[World]) -> None:
        self.chance, self.worlds = random.Random(seed), found
        self.kinds: Counter[str] = Counter()

    async def all(self, what: Callable[[World], object]) -> None:
        for each in self.worlds:
            done = what(each)
            if asyncio.iscoroutine(done):
                await done

    async def step(self) -> None:
        kinds = {
            self.append: 12, self.wait_a_while: 3, self.elect: 0.6, self.delete_records: 1, self.end_transaction: 2,
            self.cut: 0.4, self.flood: 0.5,
        }  # fmt: skip
        (kind,) = self.chance.choices(list(kinds), list(kinds.values()))
        self.kinds[kind.__name__] += 1
        await kind()
        await settled()
        self.check(kind.__name__)

    def check(self, what: str) -> None:
        states = [each.state() for each in self.worlds]
        for key, expected in states[2].items():
            assert states[0].get(key) == states[1].get(key) == expected, (what, key)

    async def append(self) -> None:
        chance = self.chance
        for _ in range(chance.choice((1, 1, 1, 3))):
            topic, producer = chance.choice(BUSY), chance.choice((-1, -1, 7, 8))
            sizes = [chance.choice((1, 1, 200, 9_000)) for _ in range(chance.choice((1, 1, 4, 20)))]
            for each in self.worlds:
                each.append(topic, sizes, producer, is_transactional=producer == 8)

    async def flood(self) -> None:
        """More than is taken in a turn, or than a partition has room for in an answer."""
        topic, count = self.chance.choice(NAMES), self.chance.choice((3, 12))
        await self.all(lambda each: each.append(topic, [100_000] * count, -1))

    async def end_transaction(self) -> None:
        topic = self.chance.choice(NAMES)
        for each in self.worlds:
            partition = each.nodes[1].partition(topic)
            if partition.is_leader:
                partition.append_marker(
                    Marker(COMMIT, 1), producer_id=8, producer_epoch=0, transaction_version=0, now_ms=each.nodes.now_ms
                )
                partition.touch_appended(each.nodes[1].purgatory)

    async def wait_a_while(self) -> None:
        ms = self.chance.choice((1, 20, 200, 3_000))
        for each in self.worlds:
            each.nodes.now_ms += ms
        await asyncio.sleep(ms / 1000)

    async def elect(self) -> None:
        """Another leader epoch: of node 1, or for a while of node 2, so that what node 1 adds to its log diverges."""
        topic, is_other = self.chance.choice(NAMES), self.chance.random() < 0.5
        if is_other:
            await self.all(lambda each: each.nodes.lead(topic, leader=2, to=[2]))
            await self.all(lambda each: each.append(topic, [5], -1))
            await settled()
            await self.all(lambda each: each.nodes[2].append(topic, "of another leader"))
            await self.all(lambda each: each.nodes.lead(topic, leader=2))
            await asyncio.sleep(1)
        await self.all(lambda each: each.nodes.lead(topic, leader=1))
        if is_other:
            await asyncio.sleep(1)

    async def delete_records(self) -> None:
        topic, share = self.chance.choice(NAMES), self.chance.random()
        for each in self.worlds:
            partition = each.nodes[1].partition(topic)
            if partition.is_leader:
                upkeep.delete_records_before(partition.log, int(partition.high_watermark * share), 0)

    async def cut(self) -> None:
        """The leader's answers do not arrive for a while."""
        for each in self.worlds:
            each.nodes.cuts.add((1, 2))
        await self.append()
        await settled()
        for each in self.worlds:
            each.nodes.cuts.clear()
        await asyncio.sleep(2)


@pytest.mark.parametrize("seed", range(4))
def test_followers_ask_alike_and_come_to_the_same_logs(seed: int, tmp_path: Path) -> None:
    taken: list[int] = []

    @in_virtual_time
    async def run() -> None:
        async with AsyncExitStack() as stack:
            steps = Steps(seed, await worlds(stack, tmp_path))
            for _ in range(40 if QUICK else 80):
                await steps.step()
            taken.extend(each.follower.peers.lent for each in steps.worlds)
            taken.append(sum(isinstance(each, m.FetchRequest) for each in steps.worlds[0].follower.peers.asked))

    run()
    assert taken[0] == taken[1] > taken[3] // 4, f"of {taken[3]} fetches, few take the shortest way"
    assert not taken[2]


def test_damaged_records_are_refused_and_fetched_again(tmp_path: Path) -> None:
    """The leader's disk has a bit flipped behind the first batch, and then has it back."""

    @in_virtual_time
    async def run() -> None:
        async with AsyncExitStack() as stack:
            found = await worlds(stack, tmp_path)
            damaged = []
            for each in found:
                each.append("a", [10], -1)
            await settled()
            for each in found:
                log = each.nodes[1].partition("a").log
                path = Path(log.active.path(".log"))
                each.append("a", [10, 10], -1)
                octets = bytearray(path.read_bytes())
                octets[log.active.records.size - 3] ^= 4
                path.write_bytes(octets)
                damaged.append((path, log.active.records.size - 3))
            await settled()
            states = [each.state() for each in found]
            assert states[0] == states[1] == states[2]
            fetchers = [next(iter(each.follower.replication.fetchers)) for each in found]
            assert all(each._delayed for each in fetchers)
            for path, position in damaged:
                octets = bytearray(path.read_bytes())
                octets[position] ^= 4
                path.write_bytes(octets)
            await asyncio.sleep(5)
            assert [each.follower.partition("a").log.log_end_offset for each in found] == [8, 8, 8]

    run()


Answer = m.FetchResponse
Change = Callable[[World, Answer], Answer | bytes]


def change_next_answer(world: World, change: Change) -> None:
    """Changes the next answer that brings the follower records, before it is taken."""
    peers: Any = world.follower.peers
    original = peers._answer_to

    async def changed(pipe: object, frame: bytes, to: object, name: str) -> bytes:
        data: bytes = await original(pipe, frame, to, name)
        if name != "FetchRequest" or peers._answer_to is original:
            return data
        _, pos = read_response_header(data, ApiKey.FETCH, VERSION)
        answer = Answer.decode(VERSION, memoryview(data), pos)[0]
        if not answer.responses or not only(answer).records:
            return data
        peers._answer_to = original
        new = change(world, answer)
        return data[:pos] + (new if isinstance(new, bytes) else new.encode(VERSION))

    peers._answer_to = changed


def only(answer: Answer) -> Any:
    return answer.responses[0].partitions[0]


def with_error(code: int) -> Change:
    def change(world: World, answer: Answer) -> Answer:
        only(answer).error_code, only(answer).records = code, b""
        return answer

    return change


def without_session(code: int) -> Change:
    return lambda world, answer: Answer(error_code=code)


def cut_off(size: int) -> Change:
    def change(world: World, answer: Answer) -> Answer:
        only(answer).records = bytes(only(answer).records)[:-size]
        return answer

    return change


def with_a_bit_flipped(at: int) -> Change:
    def change(world: World, answer: Answer) -> Answer:
        records = bytearray(only(answer).records)
        records[at] ^= 1
        only(answer).records = bytes(records)
        return answer

    return change


def of_another_partition(world: World, answer: Answer) -> Answer:
    only(answer).partition_index = 16
    return answer


def of_another_id(world: World, answer: Answer) -> Answer:
    """As of a topic that was created anew: all but the first bytes are the same."""
    topic = answer.responses[0]
    topic.topic_id = bytes([topic.topic_id[0] ^ 1]) + topic.topic_id[1:]
    return answer


def of_one_topic_in_two_parts(world: World, answer: Answer) -> Answer:
    records = bytes(only(answer).records)
    half = read_header(memoryview(records)).size_bytes
    topic = answer.responses[0]
    parts = [
        m.FetchResponse.PartitionData(
            partition_index=0, high_watermark=only(answer).high_watermark,
            last_stable_offset=only(answer).last_stable_offset, log_start_offset=only(answer).log_start_offset,
            aborted_transactions=None, preferred_read_replica=-1, records=part,
        )
        for part in (records[:half], records[half:])
    ]  # fmt: skip
    answer.responses = [
        m.FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[part])
        for part in parts
    ]
    return answer


def of_another_session(world: World, answer: Answer) -> Answer:
    answer.session_id ^= 1
    return answer


def with_a_diverging_epoch(world: World, answer: Answer) -> Answer:
    log = world.follower.partition("a").log
    only(answer).diverging_epoch = m.FetchResponse.EpochEndOffset(
        epoch=log.leader_epochs.latest, end_offset=log.log_end_offset - 2
    )
    only(answer).records = b""
    return answer


def when_another_leader_epoch_has_begun(world: World, answer: Answer) -> Answer:
    partition = world.follower.partition("a")
    epoch = partition.state.leader_epoch
    partition.state.leader_epoch = LeaderEpoch(epoch + 1)
    for fetcher in world.follower.replication.fetchers:
        fetcher.follow(partition)
    partition.state.leader_epoch = epoch  # what the leader refuses ends when the fetcher follows again
    return answer


def when_it_is_left(world: World, answer: Answer) -> Answer:
    world.follower.replication.fetchers.leave(world.follower.partition("a").key)
    return answer


def when_another_one_is_left(world: World, answer: Answer) -> Answer:
    world.follower.replication.fetchers.leave(world.follower.partition("b").key)
    return answer


def when_the_log_has_failed(world: World, answer: Answer) -> Answer:
    world.follower.partition("a").log.fail("a test")
    return answer


CHANGES: dict[str, Change] = {
    "an error": with_error(ErrorCode.UNKNOWN_LEADER_EPOCH),
    "the session is lost": without_session(ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    "the session's epoch is another": without_session(ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    "an error of all": without_session(ErrorCode.UNKNOWN_SERVER_ERROR),
    "cut off in a batch": cut_off(1),
    "cut off in the second batch's head": cut_off(90),
    "cut off behind a length": cut_off(240),
    "another checksum": with_a_bit_flipped(17),
    "a gap": with_a_bit_flipped(6),
    "another record": with_a_bit_flipped(70),
    "another partition": of_another_partition,
    "another topic": of_another_id,
    "another session": of_another_session,
    "twice the same partition": of_one_topic_in_two_parts,
    "a diverging epoch": with_a_diverging_epoch,
    "another leader epoch": when_another_leader_epoch_has_begun,
    "not followed any more": when_it_is_left,
    "another one not followed any more": when_another_one_is_left,
    "a failed log": when_the_log_has_failed,
}
LEFT = {"another leader epoch": "a", "not followed any more": "a", "another one not followed any more": "b"}
"""The topics to be followed again at last."""


@pytest.mark.parametrize("name", CHANGES)
def test_odd_answers_are_taken_alike(name: str, tmp_path: Path) -> None:
    @in_virtual_time
    async def run() -> None:
        async with AsyncExitStack() as stack:
            steps = Steps(0, await worlds(stack, tmp_path))
            for each in steps.worlds:
                each.append("a", [20], 7)
                each.append("b", [20], -1)
            await settled()
            steps.check("before")
            for each in steps.worlds:
                change_next_answer(each, CHANGES[name])
                each.append("a", [1], 7)  # the fetch that waits is answered as it is
            await settled()
            for each in steps.worlds:
                each.append("a", [60, 60], 7)
            for _ in range(3):
                await settled()
                steps.check(name)
            for each in steps.worlds:
                each.append("a", [5], 7)
                each.append("b", [5, 6], 8)
            await asyncio.sleep(3)
            steps.check("later")
            for each in steps.worlds:
                for topic in LEFT.get(name, ()):
                    each.follower.replication.fetchers.follow(each.follower.partition(topic))
            await asyncio.sleep(1)
            steps.check("at last")
            ends = {each.follower.partition("a").log.log_end_offset for each in steps.worlds}
            assert {each.follower.partition("b").log.log_end_offset for each in steps.worlds} == {6}
            assert ends == ({6} if name == "a failed log" else {12})

    run()


def test_each_fetch_tells_the_present_registration_and_settings(tmp_path: Path) -> None:
    """The broker registers anew, and a topic's followers get throttled, while a fetch waits."""

    @in_virtual_time
    async def run() -> None:
        async with AsyncExitStack() as stack:
            steps = Steps(0, await worlds(stack, tmp_path))
            limited = {"follower.replication.throttled.replicas": "*"}
            for each in steps.worlds:
                each.follower.broker_epoch += 5
                each.append("a", [20], -1)
            await settled()
            steps.check("registered")
            for each in steps.worlds:
                fetches = [asked for asked in each.follower.peers.asked if isinstance(asked, m.FetchRequest)]
                assert fetches[-1].replica_state.replica_epoch == each.follower.broker_epoch
                assert not each.follower.replication.follower_quota.bytes_passed
                await each.nodes.entities.rewrite(TOPICS, "a", lambda _: limited)
            await asyncio.sleep(0.1)
            for each in steps.worlds:
                each.append("a", [20], -1)
            await settled()
            steps.check("throttled")
            for each in steps.worlds:
                assert each.follower.replication.follower_quota.bytes_passed
                await each.nodes.entities.rewrite(TOPICS, "a", lambda _: {})
            await asyncio.sleep(0.1)
            for each in steps.worlds:
                each.append("a", [20], -1)
            await settled()
            steps.check("not throttled")

    run()
