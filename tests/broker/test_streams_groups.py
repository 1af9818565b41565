"""Streams groups on brokers: they outlive their coordinator, and their internal topics are created once."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.broker.coordinator_host.streams_topics import StreamsTopics
from headrace.controller.decisions.topics import RequestedTopic
from headrace.coordinators.groups.streams.configured_topology import TopologyInternalTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.limits import ASSIGNED_IN_PLACE_MAX
from headrace.protocol import messages as m
from headrace.topics import OFFSETS_TOPIC
from tests.broker.replica_nodes import Node, Nodes
from tests.coordinators.groups.streams.samples import requested, subtopology
from tests.eventually import eventually_async
from tests.simulation.virtual_time import in_virtual_time

GROUP = "app"
SETTINGS = {"group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0"}
Request = m.StreamsGroupHeartbeatRequest
Response = m.StreamsGroupHeartbeatResponse


class Thread:
    """A member, which asks whichever broker coordinates its group."""

    def __init__(self, name: str, subtopology_count: int = 1) -> None:
        self.name, self.epoch = name, 0
        self.topology = requested(*(subtopology(str(each), ["t"]) for each in range(subtopology_count)))
        self.tasks: dict[str, list[int]] = {}

    async def beat(self, node: Node) -> ErrorCode:
        """One heartbeat; it joins with the first."""
        fields: dict[str, Any] = {
            each: [Request.TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in tasks.items()]
            for each, tasks in (("active_tasks", self.tasks), ("standby_tasks", {}), ("warmup_tasks", {}))
        }
        if self.epoch == 0:
            fields |= {"topology": self.topology, "process_id": self.name, "rebalance_timeout_ms": 60_000}
        request = Request(group_id=GROUP, member_id=self.name, member_epoch=self.epoch, **fields)
        answer = await node.ask(request, Response)
        if answer.error_code == ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.active_tasks is not None:
                self.tasks = {each.subtopology_id: each.partitions for each in answer.active_tasks}
        return ErrorCode(answer.error_code)

    async def has_beaten(self, node: Node) -> bool:
        return await self.beat(node) is ErrorCode.NONE


async def described(node: Node) -> m.StreamsGroupDescribeResponse.DescribedGroup:
    answer = await node.ask(m.StreamsGroupDescribeRequest(group_ids=[GROUP]), m.StreamsGroupDescribeResponse)
    return answer.groups[0]


@in_virtual_time
async def test_members_keep_their_tasks_and_epochs_at_the_next_coordinator(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 3, **SETTINGS) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2, 3))
        await nodes.lead(OFFSETS_TOPIC, leader=1, replicas=(1, 2, 3))
        thread = Thread("one")
        await eventually_async(lambda: thread.has_beaten(nodes[1]))
        await eventually_async(lambda: asyncio.sleep(0, bool(thread.tasks)))
        epoch = thread.epoch
        for turn in (2, 3, 1):
            await nodes.lead(OFFSETS_TOPIC, leader=turn)
            await eventually_async(lambda at=nodes[turn]: thread.has_beaten(at))
            assert (thread.epoch, thread.tasks) == (epoch, {"0": [0]})
            assert (await described(nodes[turn])).group_state == "Stable"
            others = [each for each in nodes.up.values() if each is not nodes[turn]]
            assert [await thread.beat(each) for each in others] == [ErrorCode.NOT_COORDINATOR] * 2


@in_virtual_time
async def test_a_member_whose_join_no_replica_has_is_not_told_that_it_joined(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2, **SETTINGS, **{"offsets.commit.timeout.ms": "100"}) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        await nodes.lead(OFFSETS_TOPIC, leader=1, replicas=(1, 2))
        first, second = Thread("one"), Thread("two")
        await eventually_async(lambda: first.has_beaten(nodes[1]))
        nodes.cuts = {(1, 2), (2, 1)}
        assert await second.beat(nodes[1]) is not ErrorCode.NONE
        nodes.crash(1)
        await nodes.lead(OFFSETS_TOPIC, leader=2, isr=(2,))
        await nodes.lead("t", leader=2, isr=(2,))
        await eventually_async(lambda: first.has_beaten(nodes[2]))
        assert [each.member_id for each in (await described(nodes[2])).members] == ["one"]
        await eventually_async(lambda: second.has_beaten(nodes[2]))


@in_virtual_time
async def test_the_tasks_of_a_large_group_are_assigned_on_a_thread(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1, **SETTINGS) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        await nodes.lead(OFFSETS_TOPIC, leader=1, replicas=(1,))
        thread = Thread("one", ASSIGNED_IN_PLACE_MAX)

        async def has_every_task() -> bool:
            await thread.beat(nodes[1])
            return len(thread.tasks) == ASSIGNED_IN_PLACE_MAX

        await eventually_async(has_every_task)


class Creations:
    """A controller that creates topics when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.outcome: KafkaError | None = None
        self.may_answer = asyncio.Event()

    async def make(self, topics: Sequence[RequestedTopic]) -> Mapping[str, KafkaError | None]:
        self.asked += [each.name for each in topics]
        await self.may_answer.wait()
        return {each.name: self.outcome for each in topics}


@in_virtual_time
async def test_an_internal_topic_is_asked_for_once_and_again_when_its_failure_is_forgotten() -> None:
    loop, creations, now_ms = asyncio.get_running_loop(), Creations(), [0]
    topics = StreamsTopics(creations, loop.create_task, lambda: now_ms[0])
    wanted = [TopologyInternalTopic("log", 3, 0, (("cleanup.policy", "compact"),))]
    assert topics.create(wanted, forget_after_ms=100) == ""
    assert topics.create(wanted, forget_after_ms=100) == ""
    await asyncio.sleep(0)
    assert creations.asked == ["log"]
    creations.outcome = KafkaError("too few brokers", ErrorCode.INVALID_REPLICATION_FACTOR)
    creations.may_answer.set()
    await asyncio.sleep(0.01)
    assert topics.create(wanted, forget_after_ms=100) == "log (too few brokers)"
    now_ms[0] = 100
    assert topics.create(wanted, forget_after_ms=100) == ""
    await asyncio.sleep(0.01)
    assert creations.asked == ["log", "log"]
