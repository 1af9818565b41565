"""The runtime under a second coordinator: counters in a topic of their own, on brokers that follow each other.

A counter's record is its name and value. A counter that nobody has raised for a while is forgotten.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.broker.coordinator_host.coordinator_runtime import CoordinatorRuntime
from headrace.broker.coordinator_host.internal_topic import InternalTopic
from headrace.controller.decisions.topics import RequestedTopic
from headrace.coordinators.deadlines import Deadlines
from headrace.coordinators.runtime import Answer, Append, OwnedPartitions
from headrace.errors import CorruptMessage, ErrorCode, KafkaError
from headrace.limits import COORDINATOR_ACTIONS_PER_TURN_MAX
from headrace.types import NO_PRODUCER
from tests.broker.replica_nodes import Node, Nodes, turns
from tests.eventually import WITHIN_SECONDS, eventually_async
from tests.simulation.virtual_time import in_virtual_time

COUNTERS = RequestedTopic("__counters", 1, 3, configs={"cleanup.policy": "compact"})
FOREVER_MS = 3_600_000

Told = tuple[ErrorCode, int]
Reply = Callable[[Told], None]


class Raised(NamedTuple):
    """A counter's new value is written."""

    name: str
    value: int
    reply: Reply


Actions = list[Answer | Append[Raised]]


@dataclass
class ReadCounters:
    """The counters of one partition, as its records say."""

    partition: int
    values: dict[str, int] = field(default_factory=dict)

    def record(self, key: bytes, value: bytes | None, record_offset: int, producer_id: int = NO_PRODUCER) -> None:
        if value is None:
            self.values.pop(key.decode(), None)
        elif value == b"corrupt":
            raise CorruptMessage(f"the value of {key!r}")
        else:
            self.values[key.decode()] = int(value)

    def marker(self, producer_id: int, committed: bool) -> None:
        raise AssertionError("nobody counts in transactions")


class Counters:
    """The machine."""

    def __init__(self, topic: InternalTopic, kept_ms: int) -> None:
        self.partitions = OwnedPartitions(ReadCounters)
        self.values: dict[str, int] = {}
        self._topic, self._kept_ms = topic, kept_ms
        self._deadlines: Deadlines[str] = Deadlines()

    def increment(self, name: str, reply: Reply, now_ms: int) -> Actions:
        partition = self._topic.partition_for(name)
        error = self.partitions.availability(partition)
        if error is not ErrorCode.NONE:
            return [Answer(reply, (error, -1))]
        value = self.values[name] = self.values.get(name, 0) + 1
        self._deadlines.set(name, now_ms + self._kept_ms)
        record = name.encode(), str(value).encode()
        return [Append(partition, (record,), now_ms, Raised(name, value, reply))]

    def loaded(self, replay: ReadCounters, now_ms: int) -> Iterator[Actions]:
        for name, value in replay.values.items():
            if value < 0:
                raise ValueError(f"{name} has counted backwards")
            self.values[name] = value
            self._deadlines.set(name, now_ms + self._kept_ms)
            yield []

    def unloaded(self, partition: int, now_ms: int) -> Actions:
        for name in self.values:
            self._deadlines.cancel(name)
        self.values.clear()
        return []

    def appended(self, then: Raised, error: ErrorCode, record_offset: int, now_ms: int) -> Actions:
        return [Answer(then.reply, (error, then.value))]

    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms()

    def tick(self, now_ms: int) -> Actions:
        actions: Actions = []
        while (name := self._deadlines.pop_due(now_ms)) is not None:
            del self.values[name]
            actions.append(Append(self._topic.partition_for(name), ((name.encode(), None),), now_ms))
        return actions

    def clock_was_set(self, by_ms: int) -> None:
        self._deadlines.shift(by_ms)


class Host:
    """The counters that one node coordinates."""

    def __init__(self, nodes: Nodes, node: Node, kept_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self.topic = InternalTopic(COUNTERS, node.metadata, nodes.create_topics)
        self.machine = Counters(self.topic, kept_ms)
        self.runtime: CoordinatorRuntime[ReadCounters, Raised] = CoordinatorRuntime(
            self.topic.name,
            self.machine,
            appends=node.appends,
            append_timeout_ms=5000,
            spawn=node.create_task,
            loop=loop,
            now_ms=lambda: int(loop.time() * 1000),
        )
        node.replicas.on_leadership(self.runtime.leadership_changed)

    def ask(self, name: str) -> "asyncio.Future[Told]":
        """Raises a counter by one."""
        told: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self.runtime.run(self.machine.increment(name, told.set_result, self.runtime.now_ms()))
        return told

    async def count(self, name: str) -> int:
        """Raises a counter by one, once its partition is loaded."""
        async with asyncio.timeout(WITHIN_SECONDS):
            while True:
                error, value = await self.ask(name)
                if error is ErrorCode.NONE:
                    return value
                assert error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                await asyncio.sleep(0)


async def hosts_on(nodes: Nodes, kept_ms: int = FOREVER_MS) -> dict[int, Host]:
    """A coordinator of counters on every node; node 1 leads."""
    hosts = {number: Host(nodes, node, kept_ms) for number, node in nodes.up.items()}
    await hosts[1].topic.ensure()
    return hosts


@in_virtual_time
async def test_the_topic_is_made_as_the_coordinator_wants_it(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        made: list[RequestedTopic] = []

        async def create(wanted: Sequence[RequestedTopic]) -> dict[str, KafkaError | None]:
            made.extend(wanted)
            return {COUNTERS.name: KafkaError(code=ErrorCode.TOPIC_ALREADY_EXISTS)}

        def by_length(key: str, partition_count: int) -> int:
            return len(key) % partition_count

        topic = InternalTopic(RequestedTopic("__counters", 4), nodes[1].metadata, create, by_length)
        assert (topic.exists, topic.partition_count, topic.partition_for("abcdef")) == (False, 4, 2)
        await topic.ensure()
        assert made == [RequestedTopic("__counters", 4)]
        await nodes.lead("__counters", leader=1, replicas=(1,))
        await topic.ensure()
        assert (topic.exists, topic.partition_count, len(made)) == (True, 1, 1)


@in_virtual_time
async def test_a_refusal_to_make_the_topic_reaches_who_asked(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:

        async def create(wanted: Sequence[RequestedTopic]) -> dict[str, KafkaError | None]:
            return {COUNTERS.name: KafkaError("too few brokers", ErrorCode.INVALID_REPLICATION_FACTOR)}

        with pytest.raises(KafkaError, match="too few brokers"):
            await InternalTopic(COUNTERS, nodes[1].metadata, create).ensure()


@in_virtual_time
async def test_counters_go_on_at_the_next_leader_and_are_served_by_nobody_else(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 3) as nodes:
        hosts = await hosts_on(nodes)
        wanted = 0
        for turn in range(5):
            leader = turn % 3 + 1
            await nodes.lead(COUNTERS.name, leader=leader)
            for _ in range(3):
                wanted += 1
                assert await hosts[leader].count("a") == wanted
            for number, host in hosts.items():
                if number != leader:
                    assert await host.ask("a") == (ErrorCode.NOT_COORDINATOR, -1)
                    assert not host.machine.values


@in_virtual_time
async def test_a_value_is_told_when_the_replicas_have_it_and_the_error_when_another_broker_leads(
    tmp_path: Path,
) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        hosts = await hosts_on(nodes)
        assert await hosts[1].count("a") == 1
        nodes.cuts = {(1, 2), (2, 1)}
        second = hosts[1].ask("a")
        await turns(5)
        assert not second.done()
        await nodes.lead(COUNTERS.name, leader=2, isr=(2,))
        assert (await second)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await hosts[2].count("a") == 2, "what was not committed did not count"


@in_virtual_time
async def test_a_new_epoch_of_the_same_leader_reads_nothing_again(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        hosts = await hosts_on(nodes)
        assert await hosts[1].count("a") == 1
        hosts[1].machine.values["only in memory"] = 7
        await nodes.lead(COUNTERS.name, leader=1)
        assert await hosts[1].ask("only in memory") == (ErrorCode.NONE, 8)


@in_virtual_time
async def test_a_counter_whose_time_is_up_is_forgotten_by_the_log_too(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        hosts = await hosts_on(nodes, kept_ms=30)
        assert await hosts[1].count("a") == 1
        await eventually_async(lambda: not hosts[1].machine.values)
        await eventually_async(lambda: nodes[2].high_watermark(COUNTERS.name) == 2)
        await nodes.lead(COUNTERS.name, leader=2)
        assert await hosts[2].count("a") == 1


@in_virtual_time
async def test_a_broker_that_starts_again_reads_what_it_had_written(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        hosts = await hosts_on(nodes)
        assert [await hosts[1].count("a"), await hosts[1].count("a"), await hosts[1].count("b")] == [1, 2, 1]
        hosts[1].runtime.close()
        state = nodes.states.pop(COUNTERS.name)
        nodes.crash(1)
        again = Host(nodes, await nodes.start(1), FOREVER_MS)
        nodes.states[COUNTERS.name] = state
        await nodes.lead(COUNTERS.name, leader=1)
        assert [await again.count("a"), await again.count("b")] == [3, 2]


@in_virtual_time
async def test_two_coordinators_on_one_broker_leave_each_others_topics_alone(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        hosts = await hosts_on(nodes)
        await nodes[1].groups.topic.ensure()
        assert await hosts[1].count("a") == 1
        await eventually_async(lambda: nodes[1].groups.overview()[0] is ErrorCode.NONE)
        await nodes.lead(nodes[1].groups.topic.name, leader=2)
        assert await hosts[1].ask("a") == (ErrorCode.NONE, 2)
        assert nodes[1].groups.fetch_offsets("g", None, False)[0] is ErrorCode.NOT_COORDINATOR


@in_virtual_time
async def test_thousands_of_actions_leave_the_event_loop_to_others(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        (host,) = (await hosts_on(nodes)).values()
        await host.count("a")
        log, count = nodes[1].partition(COUNTERS.name).log, 3 * COORDINATOR_ACTIONS_PER_TURN_MAX
        await asyncio.sleep(0)
        before = log.log_end_offset
        told = [host.ask("a") for _ in range(count)]
        written = [log.log_end_offset - before]
        while not all(each.done() for each in told):
            await asyncio.sleep(0)
            written.append(log.log_end_offset - before)
        assert written[-1] == count
        assert all(0 <= after - so_far <= COORDINATOR_ACTIONS_PER_TURN_MAX for so_far, after in pairwise(written))
        assert [each.result() for each in told] == [(ErrorCode.NONE, number + 2) for number in range(count)]


@in_virtual_time
async def test_writes_that_wait_for_their_turn_end_with_the_leadership(tmp_path: Path) -> None:
    """Written later, they would lie behind what the next coordinator has written."""
    async with Nodes(tmp_path, 1) as nodes:
        (host,) = (await hosts_on(nodes)).values()
        await host.count("a")
        log = nodes[1].partition(COUNTERS.name).log
        told = [host.ask("a") for _ in range(2 * COORDINATOR_ACTIONS_PER_TURN_MAX)]
        written = log.log_end_offset
        host.runtime.unload(0)
        await turns(3)
        assert log.log_end_offset == written
        assert {each.result()[0] for each in told} == {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}


@in_virtual_time
@pytest.mark.parametrize("value", [b"no number", b"-1"], ids=["in a record", "when it is taken over"])
async def test_a_partition_that_cannot_be_understood_is_not_served_and_stops_no_broker(
    tmp_path: Path, value: bytes
) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        (host,) = (await hosts_on(nodes)).values()
        assert await host.count("a") == 1
        log = nodes[1].partition(COUNTERS.name).log
        host.runtime.run([Append(0, ((b"b", value),), 0)])
        host.runtime.unload(0)
        await host.runtime.load(0, log, 7)
        assert host.machine.partitions.availability(0) is ErrorCode.NOT_COORDINATOR
        assert not host.machine.values


@in_virtual_time
async def test_a_partition_that_is_let_go_while_it_is_taken_over_is_not_served(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        (host,) = (await hosts_on(nodes)).values()
        for name in "abc":
            assert await host.count(name) == 1
        host.runtime.unload(0)
        loading = asyncio.ensure_future(host.runtime.load(0, nodes[1].partition(COUNTERS.name).log, 7))
        await asyncio.sleep(0)
        assert set(host.machine.values) == {"a"}
        assert host.machine.partitions.availability(0) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        host.runtime.unload(0)
        await loading
        assert host.machine.partitions.availability(0) is ErrorCode.NOT_COORDINATOR
        assert not host.machine.values


@in_virtual_time
async def test_a_record_that_cannot_be_read_is_skipped_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        (host,) = (await hosts_on(nodes)).values()
        assert await host.count("a") == 1
        batch = (b"b", b"5"), (b"c", b"corrupt"), (b"d", b"corrupt"), (b"e", b"7")
        host.runtime.run([Append(0, batch, 0)])
        host.runtime.unload(0)
        await host.runtime.load(0, nodes[1].partition(COUNTERS.name).log, 7)
        assert host.machine.values == {"a": 1, "b": 5, "e": 7}
        (warning,) = [each.getMessage() for each in caplog.records if "skipped" in each.getMessage()]
        assert "2 records of the batch at offset 1" in warning
