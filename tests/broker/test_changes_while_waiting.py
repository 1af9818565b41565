"""What changes while a request waits holds for its answer: rules of access, quotas, leaders, topics, disks and logs.

The shortest ways, compiled and not, and the general way answer alike, and nothing waits for ever.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.request import dispatch
from headrace.broker.request.throttling import Throttling
from headrace.errors import ErrorCode
from headrace.log import upkeep
from headrace.log.truncation import truncate_to
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import read_response_header
from headrace.security.access import ANONYMOUS, Operation, RequestOrigin, ResourceType
from headrace.types import TopicPartition
from tests.broker.quota_requests import Client as QuotaClient
from tests.broker.quota_requests import alter
from tests.broker.replica_nodes import Node, Nodes, turns
from tests.broker.test_commit_queue import queues, request
from tests.broker.test_plain_fetch import Client, Setting, answers_of_waiting, clients, setting, tail
from tests.broker.test_plain_follow import VERSION, Wanted, World, asked, settled, worlds
from tests.eventually import eventually
from tests.simulation.virtual_time import in_virtual_time
from tests.wire import Wire
from tests.wire import batch as batch_of

__all__ = ["clients", "setting"]

WAIT_MS = 500


class Asked:
    """Rules that permit all operations but some; they note what they are asked."""

    heeds_client_ids = True

    def __init__(self, *refused: Operation) -> None:
        self.refused = refused
        self.asked: set[tuple[str, str, Operation, ResourceType, str]] = set()

    def permits(self, origin: RequestOrigin, operation: Operation, resource: ResourceType, name: str) -> bool:
        self.asked.add((origin.principal, origin.client_id or "", operation, resource, name))
        return operation not in self.refused

    def permitted(
        self, origin: RequestOrigin, operations: Sequence[Operation], resource: ResourceType, name: str
    ) -> Sequence[Operation]:
        return [each for each in operations if self.permits(origin, each, resource, name)]

    def permits_any(
        self, origin: RequestOrigin, operation: Operation, resource: ResourceType, *, prefix: str = ""
    ) -> bool:
        return operation not in self.refused


Change = Callable[[Nodes, Any], Awaitable[None]]


async def rules_that_forbid(nodes: Nodes, leader: Node) -> None:
    leader.dispatcher._services.admission.rules_changed(Asked(Operation.CLUSTER_ACTION, Operation.WRITE))


async def rules_that_permit(nodes: Nodes, leader: Node) -> None:
    leader.dispatcher._services.admission.rules_changed(Asked())


async def a_quota(nodes: Nodes, leader: Node) -> None:
    leader.throttling.is_active = True


async def the_same_leader_again(nodes: Nodes, leader: Node) -> None:
    await nodes.lead("a", leader=1)


async def another_leader(nodes: Nodes, leader: Node) -> None:
    await nodes.lead("a", leader=2)


async def a_deletion(nodes: Nodes, leader: Node) -> None:
    await nodes.delete("a")


async def a_disk_that_fails(nodes: Nodes, leader: Node) -> None:
    leader.partition("a").log.fail("the disk is broken")
    leader.replicas.take_offline([TopicPartition("a", 0)])


async def an_unclean_election(nodes: Nodes, leader: Node) -> None:
    """Another replica led without what this one has, which is cut off here; then this one leads again."""
    await nodes.lead("a", leader=2, isr=(2,))
    truncate_to(leader.partition("a").log, 1, nodes.now_ms)
    await nodes.lead("a", leader=1, isr=(1,))


async def deleted_records(nodes: Nodes, leader: Node) -> None:
    partition = leader.partition("a")
    upkeep.delete_records_before(partition.log, partition.high_watermark, 0)


# -- a follower


def follow(world: World, session_epoch: int, offset: int) -> m.FetchRequest:
    epoch = world.nodes.states["a"].leader_epoch
    last = -1 if not offset else world.leader.partition("a").log.leader_epochs.latest
    wanted = Wanted(
        partition=0, current_leader_epoch=epoch, fetch_offset=offset, last_fetched_epoch=last,
        partition_max_bytes=1 << 20,
    )  # fmt: skip
    return m.FetchRequest(
        session_epoch=session_epoch,
        replica_state=m.FetchRequest.ReplicaState(replica_id=2, replica_epoch=70),
        topics=[asked("a", wanted)],
        max_wait_ms=WAIT_MS * session_epoch,
        min_bytes=1,
        max_bytes=1 << 20,
    )


@pytest.mark.slow
@pytest.mark.parametrize("appends", [True, False])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (rules_that_forbid, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (rules_that_permit, ErrorCode.NONE),
        (a_quota, ErrorCode.NONE),
        (the_same_leader_again, ErrorCode.FENCED_LEADER_EPOCH),
        (another_leader, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (a_deletion, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (a_disk_that_fails, ErrorCode.KAFKA_STORAGE_ERROR),
        (an_unclean_election, ErrorCode.NOT_LEADER_OR_FOLLOWER),  # answered between the elections
        (deleted_records, ErrorCode.NONE),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_followers_fetch_that_waits(change: Change, code: ErrorCode, appends: bool, tmp_path: Path) -> None:
    found: list[tuple[bytes, dict[str, Any]]] = []
    rules: list[Any] = []

    @in_virtual_time
    async def run() -> None:
        async with AsyncExitStack() as stack:
            for world in await worlds(stack, tmp_path):
                leader = world.leader
                leader.append("a", "x", "y", "z")
                opened = world.send(2, follow(world, 0, 3))
                await settled()
                world.note_session(2, opened.result())
                before = world.answered
                waiting = world.send(2, follow(world, 1, 3))
                await settled()
                assert not waiting.done()
                assert world.answered == before + (world.way != "general")
                await change(world.nodes, leader)
                partition = leader.replicas.find(("a", 0))
                if appends and partition is not None and partition.is_leader:
                    leader.append("a", "new")
                await asyncio.sleep(2 * WAIT_MS / 1000)
                assert waiting.done(), f"it still waits, {world.way}"
                found.append((waiting.result(), world.state()))
                rules.append(leader.dispatcher._services.admission._rules)

    run()
    assert found[0] == found[1] == found[2]
    _, pos = read_response_header(found[0][0], ApiKey.FETCH, VERSION)
    answer = m.FetchResponse.decode(VERSION, found[0][0], pos)[0]
    codes = {each.error_code for topic in answer.responses for each in topic.partitions} or {ErrorCode.NONE}
    assert codes == {code}
    if code:
        assert not any(each.records for topic in answer.responses for each in topic.partitions)
    if rules[0] is not None:
        expected = {(ANONYMOUS, "follower", Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")}
        assert [each.asked for each in rules] == [expected] * 3


# -- a consumer


@pytest.mark.parametrize("version", [6, 12, 15])
@pytest.mark.parametrize("is_permitted", [True, False])
def test_rules_that_come_while_a_consumers_fetch_waits(
    setting: Setting, clients: list[Client], version: int, is_permitted: bool
) -> None:
    services = setting.dispatcher._services
    rules = Asked() if is_permitted else Asked(Operation.READ)

    def then() -> None:
        services.loop.call_soon_threadsafe(services.admission.rules_changed, rules)
        eventually(lambda: services.admission.has_rules)
        with Wire(setting.bootstrap) as wire:
            assert wire.produce("plain", batch_of([b"secret" * 20])).error_code == 0

    asked_for = tail(setting, 0)
    try:
        answers = answers_of_waiting(setting, clients, asked_for, version, then)
    finally:
        services.loop.call_soon_threadsafe(services.admission.rules_changed, None)
        eventually(lambda: not services.admission.has_rules)
    assert answers[0] == answers[1] == answers[2]
    assert (b"secret" in answers[0]) == is_permitted
    readers = {each for each in rules.asked if each[2] is Operation.READ}
    assert readers == {(ANONYMOUS, each.way[:4], Operation.READ, ResourceType.TOPIC, "plain") for each in clients}


@pytest.mark.parametrize("version", [6, 15])
def test_a_quota_that_comes_while_a_consumers_fetch_waits_counts_what_it_gets(
    setting: Setting, clients: list[Client], version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[tuple[str, str | None, int]] = []
    fetched = Throttling.fetched

    def count(throttling: Throttling, ctx: Any, size: int, taken: Any = ()) -> int:
        counted.append((ctx.connection.principal, ctx.client_id, size))
        return fetched(throttling, ctx, size, taken)

    monkeypatch.setattr(Throttling, "fetched", count)
    records = batch_of([b"x" * 100])
    with QuotaClient(setting.bootstrap, "admin") as admin, Wire(setting.bootstrap) as wire:
        everybody = {"client_id": None}

        def then() -> None:
            assert admin.ask(alter(everybody, consumer_byte_rate=1e12), 1).entries[0].error_code == 0
            assert wire.produce("plain", records).error_code == 0

        request_at_the_end = tail(setting, 0)
        try:
            answers = answers_of_waiting(setting, clients, request_at_the_end, version, then)
        finally:
            assert admin.ask(alter(everybody, consumer_byte_rate=None), 1).entries[0].error_code == 0
    assert answers[0] == answers[1] == answers[2]
    assert records[61:] in answers[0]
    assert sorted(counted) == sorted((ANONYMOUS, each.way[:4], len(records)) for each in clients)
    assert not setting.dispatcher._services.throttling.is_active


# -- a produce


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (rules_that_forbid, ErrorCode.NONE),  # it was permitted when it came, and its records are in the log
        (a_quota, ErrorCode.NONE),
        (the_same_leader_again, ErrorCode.NONE),
        (another_leader, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (a_deletion, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (a_disk_that_fails, ErrorCode.KAFKA_STORAGE_ERROR),
        (an_unclean_election, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_produce_that_waits(change: Change, code: ErrorCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    async def played(directory: Path, way: str) -> None:
        async with Nodes(directory, 2) as nodes:
            await nodes.lead("a", leader=1, replicas=(1, 2), to=(1,))
            leader = nodes[1]
            waiting = asyncio.ensure_future(
                leader.ask(
                    request(
                        [
                            ("a", -1, 0),
                        ]
                    ),
                    m.ProduceResponse,
                )
            )
            await turns(5)
            assert (sum(each.requests for each in queues(leader)) == 1) == (way == "short")
            assert not waiting.done()
            await change(nodes, leader)
            await turns(5)
            partition = leader.replicas.find(("a", 0))
            if partition is not None and partition.is_leader and partition.log.failure is None:
                partition.state.follower_fetched(nodes[2].id, partition.log.log_end_offset, nodes.now_ms)
                leader.purgatory.touch(partition.key)
            answer = await waiting
            leader.throttling.is_active = False
            found.append((answer, not queues(leader)))

    for way in ("short", "general"):
        with monkeypatch.context() as patched:
            if way == "general":
                patched.setattr(dispatch, "append_plainly", lambda *_: None)
            in_virtual_time(played)(tmp_path / way, way)
    assert found[0] == found[1]
    answer, is_empty = found[0]
    assert is_empty, "a queue is left that nobody waits in"
    assert {each.error_code for topic in answer.responses for each in topic.partition_responses} == {code}
