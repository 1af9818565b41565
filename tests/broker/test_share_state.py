"""Share state in a cluster: whichever broker coordinates a share partition, its state is read as it was written."""

import asyncio
from pathlib import Path

import pytest

from headrace.broker.share import persister_client
from headrace.coordinators.share_state.keys import key_text
from headrace.coordinators.share_state.persister import (
    InitialState,
    PersisterOutcome,
    SharePartitionKey,
    SharePartitionState,
    StateBatch,
    StateUpdate,
    Summary,
    TopicIdPartition,
)
from headrace.errors import ErrorCode
from headrace.limits import SHARE_STATE_BATCHES_MAX
from headrace.protocol import messages as m
from headrace.topics import SHARE_STATE_TOPIC
from tests.broker.replica_nodes import Nodes, topic_id, turns
from tests.eventually import eventually_async

GROUP = "queue"
T = TopicIdPartition(topic_id("t"), 0)
U = TopicIdPartition(topic_id("u"), 0)
DONE = PersisterOutcome()
ALONE = {"share.coordinator.state.topic.min.isr": "1"}


async def led_at(nodes: Nodes, coordinator: int) -> None:
    """Two topics, and share state that one node coordinates and all have."""
    for topic in ("t", "u"):
        await nodes.lead(topic, leader=1, replicas=(1,))
    await nodes.lead(SHARE_STATE_TOPIC, leader=coordinator, replicas=nodes.numbers)


@pytest.mark.parametrize("coordinator", [1, 2], ids=["own coordinator", "other coordinator"])
async def test_the_state_of_share_partitions_is_kept(tmp_path: Path, coordinator: int) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await led_at(nodes, coordinator)
        persister = nodes[1].share_state.persister
        assert await persister.initialize(GROUP, {T: InitialState(1, -1), U: InitialState(1, 7)}) == {T: DONE, U: DONE}
        assert await persister.read(GROUP, {T: 0, U: 3}) == {
            T: SharePartitionState(state_epoch=1),
            U: SharePartitionState(state_epoch=1, start_offset=7),
        }
        batches = (StateBatch(10, 19, 2, 1), StateBatch(20, 29, 0, 2))
        assert await persister.write(GROUP, {U: StateUpdate(1, 3, 10, 10, batches)}) == {U: DONE}
        read = await persister.read(GROUP, {U: 3})
        assert read == {U: SharePartitionState(ErrorCode.NONE, None, 1, 10, batches)}
        assert await persister.read_summary(GROUP, {T: -1, U: -1}) == {
            T: Summary(state_epoch=1),
            U: Summary(ErrorCode.NONE, None, 1, 3, 10, 10),
        }
        refused = await persister.write(GROUP, {U: StateUpdate(1, 2, 10, 0, ())})
        assert refused[U].error is ErrorCode.FENCED_LEADER_EPOCH
        assert refused[U].message
        assert await persister.delete(GROUP, frozenset({T, U})) == {T: DONE, U: DONE}
        assert await persister.read_summary(GROUP, {U: -1}) == {U: Summary()}


async def test_the_first_call_creates_the_topic(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1, **ALONE) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        assert await nodes[1].share_state.persister.initialize(GROUP, {T: InitialState(1, 0)}) == {T: DONE}
        assert nodes[1].partition(SHARE_STATE_TOPIC).log.log_end_offset == 1


async def test_the_next_coordinator_knows_the_state(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 3) as nodes:
        await led_at(nodes, 2)
        persister = nodes[1].share_state.persister
        await persister.initialize(GROUP, {T: InitialState(1, 5)})
        update = StateUpdate(1, -1, 6, 1, (StateBatch(6, 9, 0, 2),))
        assert await persister.write(GROUP, {T: update}) == {T: DONE}
        nodes.crash(2)
        writing = asyncio.ensure_future(persister.write(GROUP, {T: update._replace(start_offset=7)}))
        await nodes.lead(SHARE_STATE_TOPIC, leader=3, isr=(3, 1))
        assert await writing == {T: DONE}
        assert (await persister.read(GROUP, {T: -1}))[T].state_batches == (StateBatch(7, 9, 0, 2),)


async def test_a_write_whose_answer_is_lost_is_repeated(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await led_at(nodes, 2)
        persister = nodes[1].share_state.persister
        await persister.initialize(GROUP, {T: InitialState(1, 5)})
        held = nodes.hold(m.WriteShareGroupStateRequest)
        update = StateUpdate(1, -1, 6, 1, (StateBatch(6, 9, 0, 2),))
        writing = asyncio.ensure_future(persister.write(GROUP, {T: update}))
        await eventually_async(lambda: len(nodes.held) == 1)
        nodes.cuts = {(2, 1)}
        held.set()
        await turns(2)
        assert not writing.done()
        nodes.cuts = set()
        assert await writing == {T: DONE}
        assert (await persister.read(GROUP, {T: -1}))[T].state_batches == update.state_batches


async def test_a_call_waits_for_a_coordinator(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await led_at(nodes, 2)
        await nodes.lead(SHARE_STATE_TOPIC, leader=-1)
        calling = asyncio.ensure_future(nodes[1].share_state.persister.initialize(GROUP, {T: InitialState(1, 5)}))
        await turns(20)
        assert not calling.done()
        await nodes.lead(SHARE_STATE_TOPIC, leader=1)
        assert await calling == {T: DONE}


async def test_a_call_without_a_coordinator_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persister_client, "PAUSES_MS", (1, 1))
    async with Nodes(tmp_path, 1, **ALONE) as nodes:
        await led_at(nodes, -1)
        results = await nodes[1].share_state.persister.read(GROUP, {T: 0, U: 0})
        assert {each.error for each in results.values()} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


async def test_a_broker_that_stops_waits_for_no_coordinator(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await led_at(nodes, 2)
        await nodes.lead(SHARE_STATE_TOPIC, leader=-1)
        share_state = nodes[1].share_state
        persister = share_state.persister
        calling = asyncio.ensure_future(persister.initialize(GROUP, {T: InitialState(1, 5)}))
        await turns(20)
        share_state.close()
        await asyncio.wait([calling])
        assert calling.cancelled()
        results = await persister.read(GROUP, {T: 0})
        assert results[T].error is ErrorCode.BROKER_NOT_AVAILABLE


async def test_calls_that_wait_for_a_broker_share_its_next_request(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await led_at(nodes, 2)
        persister = nodes[1].share_state.persister
        await persister.initialize(GROUP, {T: InitialState(1, 0), U: InitialState(1, 0)})
        await persister.initialize("other", {T: InitialState(1, 0)})
        nodes[1].peers.asked.clear()
        held = nodes.hold(m.WriteShareGroupStateRequest)

        def write(key: TopicIdPartition, offset: int, group: str = GROUP) -> asyncio.Future[object]:
            update = StateUpdate(1, -1, -1, 0, (StateBatch(offset, offset, 2, 1),))
            return asyncio.ensure_future(persister.write(group, {key: update}))

        first = [write(T, 0)]
        await eventually_async(lambda: len(nodes.held) == 1)
        first += [write(T, 2), write(U, 4), write(T, 6), write(T, 8, "other"), write(U, 10)]
        await asyncio.sleep(0.01)
        held.set()
        await asyncio.gather(*first)
        asked = [
            (each.group_id, sum(len(topic.partitions) for topic in each.topics))
            for each in nodes[1].peers.asked
            if isinstance(each, m.WriteShareGroupStateRequest)
        ]
        assert asked == [(GROUP, 1), (GROUP, 2), (GROUP, 2), ("other", 1)]
        state = await persister.read(GROUP, {T: -1, U: -1})
        assert [each.first_offset for each in state[T].state_batches] == [0, 2, 6]
        assert [each.first_offset for each in state[U].state_batches] == [4, 10]


@pytest.mark.slow
async def test_thousands_of_state_batches_are_sent_in_several_requests(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await led_at(nodes, 2)
        persister = nodes[1].share_state.persister
        groups = [f"q{number}" for number in range(3)]
        batches = tuple(StateBatch(2 * number, 2 * number, 2, 1) for number in range(SHARE_STATE_BATCHES_MAX))
        for group in groups:
            both = {T: InitialState(1, 0), U: InitialState(1, 0)}
            assert await persister.initialize(group, both) == {T: DONE, U: DONE}
            wanted = {key: StateUpdate(1, -1, -1, 0, batches) for key in both}
            assert await persister.write(group, wanted) == {T: DONE, U: DONE}
        assert (await persister.read(groups[-1], {T: -1}))[T].state_batches == batches


async def test_the_state_of_a_deleted_topic_is_removed(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await led_at(nodes, 2)
        await nodes[1].share_state.persister.initialize(GROUP, {T: InitialState(1, 0), U: InitialState(1, 0)})
        coordinator = nodes[2].share_state.coordinator
        assert coordinator.share_partitions == 2
        await nodes.delete("t")
        await eventually_async(lambda: coordinator.share_partitions == 1)


async def test_old_records_are_deleted(tmp_path: Path) -> None:
    settings = {"share.coordinator.state.topic.prune.interval.ms": "1000",
                "share.coordinator.snapshot.update.records.per.snapshot": "2"}  # fmt: skip
    async with Nodes(tmp_path, 1, **ALONE, **settings) as nodes:
        await led_at(nodes, 1)
        share_state = nodes[1].share_state
        await share_state.persister.initialize(GROUP, {T: InitialState(1, 0)})
        for number in range(7):
            update = StateUpdate(1, -1, -1, 0, (StateBatch(number, number, 2, 1),))
            await share_state.persister.write(GROUP, {T: update})
        log = nodes[1].partition(SHARE_STATE_TOPIC).log
        assert (log.log_start_offset, log.log_end_offset) == (0, 8)
        nodes.now_ms += 1000
        runtime = share_state.coordinator.runtime
        runtime.run(share_state.coordinator._coordinator.tick(nodes.now_ms))
        assert (log.log_start_offset, log.log_end_offset) == (6, 8)
        before = await share_state.persister.read(GROUP, {T: -1})
        await nodes.lead(SHARE_STATE_TOPIC, leader=-1)
        await nodes.lead(SHARE_STATE_TOPIC, leader=1)
        assert await share_state.persister.read(GROUP, {T: -1}) == before


# Raw requests


async def test_empty_requests_get_empty_answers(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1, **ALONE) as nodes:
        await led_at(nodes, 1)
        wanted = m.ReadShareGroupStateRequest.ReadStateData(topic_id=T.topic_id)
        partition = m.ReadShareGroupStateRequest.PartitionData(partition=0)
        named = m.ReadShareGroupStateRequest.ReadStateData(topic_id=T.topic_id, partitions=[partition])
        for request in (
            m.ReadShareGroupStateRequest(group_id=GROUP),
            m.ReadShareGroupStateRequest(group_id=GROUP, topics=[named, wanted]),
            m.ReadShareGroupStateRequest(group_id="", topics=[named]),
        ):
            assert await nodes[1].ask(request, m.ReadShareGroupStateResponse) == m.ReadShareGroupStateResponse()


async def test_a_broker_that_does_not_coordinate_says_so(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await led_at(nodes, 2)
        partition = m.DeleteShareGroupStateRequest.PartitionData(partition=0)
        topic = m.DeleteShareGroupStateRequest.DeleteStateData(topic_id=T.topic_id, partitions=[partition])
        request = m.DeleteShareGroupStateRequest(group_id=GROUP, topics=[topic])
        answer = await nodes[1].ask(request, m.DeleteShareGroupStateResponse)
        assert answer.results[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR


async def test_the_coordinator_of_a_share_partition_is_found(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await led_at(nodes, 2)
        key = key_text(SharePartitionKey(GROUP, *T))
        request = m.FindCoordinatorRequest(key_type=2, coordinator_keys=[key, "queue", f"{key}:x"])
        answer = await nodes[1].ask(request, m.FindCoordinatorResponse, version=6)
        assert [(each.error_code, each.node_id) for each in answer.coordinators] == [
            (ErrorCode.NONE, 2),
            (ErrorCode.INVALID_REQUEST, -1),
            (ErrorCode.INVALID_REQUEST, -1),
        ]
        answer = await nodes[1].ask(request, m.FindCoordinatorResponse, version=5)
        assert {each.error_code for each in answer.coordinators} == {ErrorCode.INVALID_REQUEST}
