"""A controller's requests of many partitions are applied in slices: what others see and do in between, and what becomes
of the rest when this broker is fenced, registers again or stops."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from headrace.broker.cluster import fenced_metadata
from headrace.broker.cluster.fenced_metadata import FencedMetadata
from headrace.broker.fetch.fetch_sessions import FetchSessionCache
from headrace.broker.partitions import replica_manager
from headrace.broker.replication import isr_requests, replica_fetcher
from headrace.controller.decisions.control_requests import ControlRequest
from headrace.errors import ErrorCode, NotLeaderOrFollower
from headrace.in_slices import Turns, finished
from headrace.log.directories.checkpoints import HIGH_WATERMARK
from headrace.log.partition_log import PartitionLog
from headrace.metadata import image
from headrace.metadata.deltas import MetadataDelta
from headrace.protocol import messages as m
from tests.broker import replica_nodes
from tests.broker.replica_nodes import Node, Nodes, topic_id
from tests.eventually import eventually_async
from tests.simulation.virtual_time import in_virtual_time

TOPIC, ELSEWHERE, NOBODY = "many", 2, -1
MANY = 60
PER_TURN = 10


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few partitions take several turns of the event loop."""
    monkeypatch.setattr(replica_manager, "PARTITIONS_PER_TURN_MAX", PER_TURN)
    monkeypatch.setattr(replica_manager, "ELEMENTS_PER_SLICE", PER_TURN)
    monkeypatch.setattr(replica_manager, "STEP_DOWN_WEIGHT", 0)
    monkeypatch.setattr(fenced_metadata, "Turns", partial(Turns, PER_TURN))
    monkeypatch.setattr(image, "ELEMENTS_PER_SLICE", PER_TURN)


def leader_and_isr(node: Node, leader: int, epoch: int, *, broker_epoch: int | None = None) -> m.LeaderAndIsrRequest:
    """The leader of all partitions of the topic."""
    State = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState
    states = [
        State(
            partition_index=number, controller_epoch=1, leader=leader, leader_epoch=epoch, isr=[max(1, leader)],
            partition_epoch=epoch, replicas=[1, ELSEWHERE], is_new=True,
        )
        for number in range(MANY)
    ]  # fmt: skip
    topic = m.LeaderAndIsrRequest.LeaderAndIsrTopicState(
        topic_name=TOPIC, topic_id=topic_id(TOPIC), partition_states=states
    )
    return m.LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=1,
        broker_epoch=node.broker_epoch if broker_epoch is None else broker_epoch,
        topic_states=[topic],
    )


def update_metadata(
    node: Node, leader: int, epoch: int, *, broker_epoch: int | None = None, numbers: Sequence[int] = range(MANY)
) -> m.UpdateMetadataRequest:
    """The same for clients."""
    State = m.UpdateMetadataRequest.UpdateMetadataPartitionState
    states = [
        State(partition_index=number, leader=leader, leader_epoch=epoch, isr=[leader], replicas=[1, ELSEWHERE])
        for number in numbers
    ]
    topic = m.UpdateMetadataRequest.UpdateMetadataTopicState(
        topic_name=TOPIC, topic_id=topic_id(TOPIC), partition_states=states
    )
    return m.UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        broker_epoch=node.broker_epoch if broker_epoch is None else broker_epoch,
        topic_states=[topic],
    )


def stop_replicas(node: Node) -> m.StopReplicaRequest:
    """All partitions of the topic are deleted."""
    State = m.StopReplicaRequest.StopReplicaPartitionState
    states = [State(partition_index=number, leader_epoch=-2, delete_partition=True) for number in range(MANY)]
    topic = m.StopReplicaRequest.StopReplicaTopicState(topic_name=TOPIC, partition_states=states)
    return m.StopReplicaRequest(
        controller_id=1, controller_epoch=1, broker_epoch=node.broker_epoch, topic_states=[topic]
    )


def epochs(node: Node) -> list[int]:
    """The leader epoch of each partition of the topic that the node has."""
    return [each.leader_epoch for each in node.replicas if each.key.topic == TOPIC]


def led(node: Node) -> int:
    """How many partitions of the topic the node leads."""
    return sum(each.is_leader for each in node.replicas if each.key.topic == TOPIC)


async def with_logs(node: Node) -> None:
    """Creates the logs, so that no request of the test waits for a thread."""
    await node.control.handle(leader_and_isr(node, NOBODY, 0))
    assert epochs(node) == [0] * MANY


async def until_some_are(node: Node, epoch: int) -> None:
    """Returns between two slices, when some partitions are in the leader epoch and others not."""
    while epoch not in epochs(node):  # noqa: ASYNC110 - nothing says so
        await asyncio.sleep(0)
    assert epochs(node).count(epoch) < MANY


async def begun(node: Node, request: ControlRequest, epoch: int) -> "asyncio.Task[object]":
    """The request, some slices of which are applied."""
    task: asyncio.Task[object] = asyncio.create_task(node.control.handle(request))
    await until_some_are(node, epoch)
    return task


@in_virtual_time
async def test_others_are_answered_while_thousands_of_partitions_begin_to_lead(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("other", leader=1, replicas=(1,))
        node, answered, seen = nodes[1], 0, set()
        await with_logs(node)
        task = asyncio.create_task(node.ask(leader_and_isr(node, 1, 1), m.LeaderAndIsrResponse))
        while not task.done():
            answer = await node.ask(m.ListOffsetsRequest(replica_id=-1, topics=[]), m.ListOffsetsResponse)
            assert answer.topics == []
            answered += 1
            seen.add(led(node))
            await asyncio.sleep(0)
        assert answered > MANY / PER_TURN
        assert seen >= set(range(PER_TURN, MANY, PER_TURN)), "after each slice others had their turn"
        assert all(each.error_code == 0 for topic in (await task).topics for each in topic.partition_errors)
        assert led(node) == MANY, "the answer comes when all of it is applied"


@in_virtual_time
async def test_a_later_request_of_the_controller_waits_for_the_earlier_one(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        node, answered = nodes[1], []
        await with_logs(node)
        first = await begun(node, leader_and_isr(node, 1, 1), 1)
        first.add_done_callback(lambda _: answered.append((0, set(epochs(node)))))
        later = leader_and_isr(node, ELSEWHERE, 2)
        later.controller_epoch = 2  # another controller's
        second = asyncio.create_task(node.control.handle(later))
        second.add_done_callback(lambda _: answered.append((1, set(epochs(node)))))
        await second
        await asyncio.sleep(0)
        assert [number for number, _ in answered] == [0, 1]
        assert answered[1][1] == {2} and led(node) == 0
        first_answer = await first
        assert isinstance(first_answer, m.LeaderAndIsrResponse) and not first_answer.error_code


@in_virtual_time
async def test_what_is_left_of_a_request_is_void_once_the_broker_is_fenced(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        node = nodes[1]
        await with_logs(node)
        task = await begun(node, leader_and_isr(node, 1, 1), 1)
        node.control.refuse_fenced()
        node.replicas.step_down()
        answer = await task
        assert isinstance(answer, m.LeaderAndIsrResponse)
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert led(node) == 0, "a fenced broker leads nothing, although the request was under way"


@asynccontextmanager
async def fenced(node: Node) -> AsyncIterator[tuple[FencedMetadata, list[tuple[int, bool]]]]:
    """A node that leads all partitions and then is fenced, and what it announces: each partition, and whether it leads
    it."""
    await node.control.handle(leader_and_isr(node, 1, 1))
    await node.control.handle(update_metadata(node, 1, 1))
    announced: list[tuple[int, bool]] = []
    node.replicas.on_leadership(
        lambda key, partition: announced.append((key.partition, partition is not None and partition.is_leader))
    )
    reader = FencedMetadata(
        node.id, node.nodes.store, node.metadata, node.control, asyncio.ensure_future,
        node.replicas.announce_stepped_down,
    )  # fmt: skip
    node.control.refuse_fenced()
    node.replicas.step_down()
    reader.begin()
    yield reader, announced
    reader.close()


def leaders(node: Node) -> set[int]:
    """Who leads the topic's partitions by the metadata."""
    return {each.leader for each in node.metadata.topics[TOPIC].partitions.values()}


@in_virtual_time
async def test_a_fenced_broker_leads_nothing_at_once_and_tells_of_it_in_slices(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        node = nodes[1]
        async with fenced(node) as (_, announced):
            seen = set()
            assert led(node) == 0
            with pytest.raises(NotLeaderOrFollower):
                node.replicas.leader(TOPIC, MANY - 1)
            while len(announced) < MANY:
                await asyncio.sleep(0)
                seen.add((len(announced), tuple(leaders(node))))
        assert (0, (1,)) in seen, "the metadata is made in slices"
        assert {(count, (NOBODY,)) for count in range(PER_TURN, MANY + 1, PER_TURN)} <= seen, "so is what follows it"
        assert all(names == (NOBODY,) for count, names in seen if count), "no answer names this broker as the leader"
        assert announced == [(number, False) for number in range(MANY)]


@in_virtual_time
async def test_a_fenced_broker_announces_that_it_stopped_before_it_leads_again(tmp_path: Path) -> None:
    """A coordinator must drop what it has loaded, although the next LeaderAndIsr came early."""
    async with Nodes(tmp_path, 1) as nodes:
        node = nodes[1]
        async with fenced(node) as (reader, announced):
            node.broker_epoch += 1
            reader.look()
            await node.replicas.apply_leader_and_isr(leader_and_isr(node, 1, 3))
            await asyncio.sleep(1)
        assert led(node) == MANY
        for number in range(MANY):
            assert [leads for each, leads in announced if each == number] == [False, True]


@in_virtual_time
@pytest.mark.parametrize("is_fenced_again", [False, True])
async def test_listeners_hear_all_of_it_although_the_broker_registers_again(
    tmp_path: Path, is_fenced_again: bool
) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        node = nodes[1]
        heard: list[int] = []

        def slices(delta: MetadataDelta) -> Iterator[None]:
            for number in delta.partitions_changed.get(TOPIC, ()):
                heard.append(number)
                yield

        node.metadata.on_change(slices)
        async with fenced(node) as (reader, announced):
            heard.clear()
            while len(heard) < MANY // 2:  # noqa: ASYNC110 - nothing says so
                await asyncio.sleep(0)
            node.broker_epoch += 1
            reader.look()
            if is_fenced_again:
                node.control.refuse_fenced()
                node.replicas.step_down()
                reader.begin()
            await asyncio.sleep(1)
        assert heard == list(range(MANY))
        assert leaders(node) == {NOBODY} and led(node) == 0
        assert announced == [(number, False) for number in range(MANY)]


@in_virtual_time
async def test_a_new_registration_gets_nothing_of_the_last_ones_request(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        node = nodes[1]
        await with_logs(node)
        task = await begun(node, leader_and_isr(node, 1, 1), 1)
        node.broker_epoch += 1
        done = epochs(node)
        answer = await task
        assert isinstance(answer, m.LeaderAndIsrResponse)
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert epochs(node) == done
        again = await node.control.handle(leader_and_isr(node, 1, 2))
        assert not again.error_code and led(node) == MANY


@in_virtual_time
async def test_a_broker_that_dies_between_two_slices_leads_all_after_its_start(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        await with_logs(nodes[1])
        task = await begun(nodes[1], leader_and_isr(nodes[1], 1, 1), 1)
        nodes[1].append(TOPIC, "a")
        task.cancel()
        nodes.crash(1)
        node = await nodes.start(1)
        answer = await node.control.handle(leader_and_isr(node, 1, 2))
        assert not answer.error_code and led(node) == MANY
        assert node.values(TOPIC) == ["a"]


@in_virtual_time
async def test_readers_of_the_metadata_see_all_of_a_request_or_nothing(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        node = nodes[1]
        await node.control.handle(update_metadata(node, 1, 0))
        before, turns = node.metadata.snapshot, 0
        task = asyncio.create_task(node.ask(update_metadata(node, ELSEWHERE, 1), m.UpdateMetadataResponse))
        while not task.done():
            found = {each.leader for each in node.metadata.topics[TOPIC].partitions.values()}
            assert found == ({1} if node.metadata.snapshot is before else {ELSEWHERE})
            await asyncio.sleep(0)
            turns += 1
        assert turns > MANY / PER_TURN
        assert not (await task).error_code
        assert {each.leader for each in node.metadata.topics[TOPIC].partitions.values()} == {ELSEWHERE}


@in_virtual_time
async def test_steps_down_in_slices_where_the_metadata_has_later_leaders(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        node, seen = nodes[1], set()
        await node.control.handle(leader_and_isr(node, 1, 0))
        await node.control.handle(update_metadata(node, 1, 0))
        heard: list[int] = []
        node.metadata.on_change(lambda delta: heard.append(led(node)))
        task = asyncio.create_task(node.control.handle(update_metadata(node, ELSEWHERE, 1)))
        while not task.done():
            seen.add(led(node))
            await asyncio.sleep(0)
        assert led(node) == 0 and seen >= set(range(PER_TURN, MANY + PER_TURN, PER_TURN))
        assert heard == [MANY - PER_TURN], "listeners of whole deltas do not wait for those that go on in slices"


@pytest.mark.parametrize("is_fenced", [True, False])
@in_virtual_time
async def test_metadata_for_the_last_registration_is_dropped_whole(tmp_path: Path, is_fenced: bool) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        node = nodes[1]
        await node.control.handle(update_metadata(node, 1, 0))
        before = node.metadata.snapshot
        task = asyncio.create_task(node.control.handle(update_metadata(node, ELSEWHERE, 1)))
        for _ in range(2):
            await asyncio.sleep(0)
        assert not task.done()
        if is_fenced:
            node.control.refuse_fenced()
        else:
            node.broker_epoch += 1
        assert (await task).error_code == ErrorCode.STALE_BROKER_EPOCH
        assert node.metadata.snapshot is before


@in_virtual_time
async def test_what_a_broker_reads_by_itself_meanwhile_is_not_lost(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        node = nodes[1]
        await node.control.handle(update_metadata(node, 1, 0))
        applying = node.metadata.applying(update_metadata(node, 1, 1, numbers=range(MANY - 1)))
        assert list(islice(applying, 2)) == [None, None]
        node.metadata.apply(update_metadata(node, ELSEWHERE, 7, numbers=[MANY - 1]))
        assert finished(applying) is not None
        found = node.metadata.topics[TOPIC].partitions
        assert [each.leader_epoch for each in found.values()] == [1] * (MANY - 1) + [7]


@in_virtual_time
async def test_a_listener_that_fails_between_slices_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        node, heard = nodes[1], []

        def failing(delta: object) -> "list[None]":
            def slices() -> object:
                yield
                raise ValueError("a bug")

            return slices()  # type: ignore[return-value]

        def sliced(delta: object) -> object:
            yield
            heard.append("sliced")

        node.metadata.on_change(failing)  # type: ignore[arg-type]
        node.metadata.on_change(sliced)  # type: ignore[arg-type]
        node.metadata.on_change(lambda _: heard.append("whole"))
        assert not (await node.control.handle(update_metadata(node, 1, 0))).error_code
        assert heard == ["whole", "sliced"]
        assert "a bug" in caplog.text


@in_virtual_time
async def test_others_are_answered_while_partitions_are_deleted(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        node, seen = nodes[1], set()
        await node.control.handle(leader_and_isr(node, 1, 0))
        task = asyncio.create_task(node.control.handle(stop_replicas(node)))
        while epochs(node):
            seen.add(len(epochs(node)))
            await asyncio.sleep(0)
        assert seen >= set(range(PER_TURN, MANY, PER_TURN))
        answer = await task
        assert isinstance(answer, m.StopReplicaResponse)
        assert [each.error_code for each in answer.partition_errors] == [0] * MANY
        assert not node.logs.logs and not node.logs.partitions_of(TOPIC)
        assert not (await node.control.handle(leader_and_isr(node, 1, 1))).error_code, "the topic may be made anew"
        assert sorted(node.logs.partitions_of(TOPIC)) == list(range(MANY))


@in_virtual_time
async def test_a_deletion_is_answered_when_no_checkpoint_has_the_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic may be made anew after the answer, and a broker that dies then must not give it the offsets."""
    async with Nodes(tmp_path, 1) as nodes:
        node, loop = nodes[1], asyncio.get_running_loop()
        await node.control.handle(leader_and_isr(node, 1, 0))
        node.append(TOPIC, "a")
        checkpoint = tmp_path / "1" / HIGH_WATERMARK
        node.logs.checkpoint_high_watermarks()
        assert f"{TOPIC} 0 1\n" in checkpoint.read_text()

        def slow(work: Callable[[], None], done: Callable[[None], None]) -> None:
            loop.call_later(1, lambda: done(work()))  # type: ignore[func-returns-value]

        monkeypatch.setattr(node.logs._writes, "_background", slow)
        begun = loop.time()
        await node.control.handle(stop_replicas(node))
        assert loop.time() >= begun + 1
        assert TOPIC not in checkpoint.read_text()


@in_virtual_time
async def test_a_dropped_partition_is_freed_without_the_collector(tmp_path: Path) -> None:
    """What a broker keeps for its partitions is hidden from the collector, once they are many."""
    async with Nodes(tmp_path, 1) as nodes:
        node = nodes[1]
        for epoch, leader in enumerate((1, ELSEWHERE, 1)):
            await node.control.handle(leader_and_isr(node, leader, epoch))
        node.append(TOPIC, "a", "b")
        gc.collect()
        gc.disable()
        try:
            await node.control.handle(stop_replicas(node))
            await asyncio.sleep(1)
            left = [each for each in gc.get_objects() if isinstance(each, PartitionLog)]
            assert not [each for each in left if each.partition.topic == TOPIC and each.files is node.logs.files]
        finally:
            gc.enable()


@in_virtual_time
async def test_a_follower_of_many_partitions_adds_some_with_each_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_fetcher, "PARTITIONS_ADDED_MAX", 3)
    topics = [f"t{number}" for number in range(10)]
    asked: list[int] = []
    build = replica_fetcher.ReplicaFetcher._topics

    def counted(self: replica_fetcher.ReplicaFetcher, wanted: dict[object, object]) -> object:
        asked.append(len(wanted))
        return build(self, wanted)  # type: ignore[arg-type]

    monkeypatch.setattr(replica_fetcher.ReplicaFetcher, "_topics", counted)
    async with Nodes(tmp_path, 2) as nodes:
        for topic in topics:
            await nodes.lead(topic, leader=1, replicas=(1, 2), isr=(1,), to=[1])
            nodes[1].append(topic, "a", "b")
        nodes.crash(2)
        node = await nodes.start(2)
        await eventually_async(lambda: all(node.values(topic) == ["a", "b"] for topic in topics))
        assert max(asked) == 3
        nodes[1].append(topics[-1], "c")
        await eventually_async(lambda: node.values(topics[-1]) == ["a", "b", "c"])


@pytest.mark.parametrize("room", [0, 5], ids=["no session", "a session with too little room"])
@in_virtual_time
async def test_a_follower_fetches_all_partitions_where_a_session_cannot_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Else each session would begin with the same ones."""
    monkeypatch.setattr(replica_fetcher, "PARTITIONS_ADDED_MAX", 3)
    monkeypatch.setattr(
        replica_nodes, "FetchSessionCache", lambda slots, ids: FetchSessionCache(slots, ids, partitions_max=room)
    )
    topics = [f"t{number}" for number in range(10)]
    async with Nodes(tmp_path, 2) as nodes:
        for topic in topics:
            await nodes.lead(topic, leader=1, replicas=(1, 2), isr=(1,), to=[1])
            nodes[1].append(topic, "a", "b")
        nodes.crash(2)
        node = await nodes.start(2)
        await eventually_async(lambda: all(node.values(topic) == ["a", "b"] for topic in topics))


@in_virtual_time
async def test_a_leader_of_many_partitions_asks_for_some_isr_changes_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isr_requests, "CHANGES_PER_REQUEST_MAX", 3)
    topics = [f"t{number}" for number in range(10)]
    async with Nodes(tmp_path, 2) as nodes:
        asked: list[int] = []
        grant = nodes.alter_partition

        async def alter_partition(request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
            asked.append(len(request.topics))
            return await grant(request)

        monkeypatch.setattr(nodes, "alter_partition", alter_partition)
        for topic in topics:
            await nodes.lead(topic, leader=1, replicas=(1, 2))
        nodes.crash(2)
        for topic in topics:
            nodes[1].append(topic, "a")
        nodes.now_ms += 100_000
        finished(nodes[1].replication.isr_changes.shrink())
        await eventually_async(lambda: all(nodes.changes[topic] == [(1,)] for topic in topics))
        assert max(asked) == 3 and sum(asked) == len(topics)
