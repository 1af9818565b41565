"""ShareFetch and ShareAcknowledge of one and several members, with the real share coordinator behind them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from headrace.broker.metrics.shares import families
from headrace.broker.share.persister_client import PersisterClient
from headrace.coordinators.share_state.persister import (
    PersisterOutcome,
    SharePartitionKey,
    StateUpdate,
    TopicIdPartition,
)
from headrace.errors import ErrorCode
from headrace.quotas.entities import DEFAULT, Entity
from headrace.records.format2.batch import Record, encode_batch, read_header
from tests.broker.replica_nodes import Node, Nodes, topic_id
from tests.broker.share_requests import (
    ACCEPT,
    GROUP,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    acknowledge_error_of,
    acquired,
    begin_group,
    error_of,
    values,
)
from tests.broker.transactions_at import producer_at
from tests.eventually import eventually_async


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node that leads t-0, with a share group that begins at offset 0."""
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        await begin_group(nodes[1])
        yield nodes[1]


async def test_members_share_the_records_and_finish_them(node: Node) -> None:
    node.append("t", *"abcdef")
    one, two = Member(node, "one"), Member(node, "two")
    answer = await one.request(max_wait_ms=5000, max_records=4)
    assert (values(answer), acquired(answer)) == (list("abcd"), [(0, 3, 1)])
    assert answer.acquisition_lock_timeout_ms == 30_000
    assert await two.opened() == [(4, 5, 1)]
    assert await two.acknowledge((4, 5, [ACCEPT])) == ("NONE", None)
    answer = await one.request((0, 3, [ACCEPT, RELEASE, REJECT, ACCEPT]))
    assert acknowledge_error_of(answer) == ("NONE", None)
    assert await two.fetch() == [(1, 1, 2)]
    assert await two.acknowledge((1, 1, [ACCEPT])) == ("NONE", None)
    assert start_offset(node) == 6


async def test_what_members_do_is_counted(node: Node) -> None:
    node.append("t", *"abcdef")
    one = Member(node, "one")
    await one.opened()
    await one.acknowledge((0, 3, [ACCEPT, RELEASE, REJECT, ACCEPT]), (4, 4, [ACCEPT]))
    samples = {
        (family.name.removeprefix("kafka_server_") + suffix, *labels.values()): number
        for family in await families(node.shares.started, node.share_state.started)
        for suffix, labels, number in family.samples
    }
    counted = "sharegroupmetrics_recordacknowledgements_total"
    by_type = {name: samples[counted, name] for name in ("Accept", "Release", "Reject", "Renew", "Gap")}
    assert by_type == {"Accept": 3, "Release": 1, "Reject": 1, "Renew": 0, "Gap": 0}
    assert samples["sharegroupmetrics_partitionloadtimems_count",] == 1
    assert samples["sharepartitionmetrics_inflightmessagecount", GROUP, "t", "0"] == 5, "all but the first"
    assert samples["sharesessioncache_sharesessionscount",] == samples["sharesessioncache_sharepartitionscount",] == 1
    assert (
        samples["share_coordinator_metrics_write_total",]
        == samples["share_coordinator_metrics_write_latency_count",]
        == 1
    )
    assert samples["share_coordinator_metrics_num_partitions", "active"] == 1


async def test_a_fetch_takes_no_more_than_the_quota_permits_at_once(node: Node) -> None:
    for value in "abc":
        node.append("t", value * 100)
    assert await Member(node, "one").opened() == [(0, 2, 1)]
    await begin_group(node, group="other")
    node.throttling.fetch.set_rate(Entity(user=DEFAULT), 20.0)  # 200 bytes at once
    node.throttling.is_active = True
    other = Member(node, "other", group="other")
    assert await other.opened() == [(0, 0, 1)]
    assert await other.fetch() == [(1, 1, 1)], "and nothing is counted, as in Apache Kafka"


def start_offset(node: Node) -> int:
    """The start offset of the share partition."""
    led = node.shares.manager.find(SharePartitionKey(GROUP, topic_id("t"), 0))
    assert led is not None
    assert led.state is not None
    return led.state.start_offset


async def test_a_fetch_waits_for_records_and_members_get_them_in_turn(node: Node) -> None:
    one, two = Member(node, "one"), Member(node, "two")
    assert await one.fetch() == []
    assert await two.fetch() == []
    waiting = [asyncio.create_task(each.fetch(max_wait_ms=5000, max_records=1)) for each in (one, two)]
    await asyncio.sleep(0.05)
    assert not any(each.done() for each in waiting)
    node.append("t", "a", "b")
    assert await asyncio.gather(*waiting) == [[(0, 0, 1)], [(1, 1, 1)]]


async def test_a_fetch_waits_for_its_min_bytes_and_takes_less_at_the_end(node: Node) -> None:
    one = Member(node, "one")
    assert await one.fetch() == []
    waiting = asyncio.create_task(one.fetch(max_wait_ms=300, min_bytes=100_000))
    await asyncio.sleep(0.05)
    node.append("t", "a")
    await asyncio.sleep(0.05)
    assert not waiting.done()
    assert await waiting == [(0, 0, 1)]


async def test_released_records_wake_a_fetch_that_waits(node: Node) -> None:
    node.append("t", "a")
    one, two = Member(node, "one"), Member(node, "two")
    assert await one.opened() == [(0, 0, 1)]
    assert await two.fetch() == []
    waiting = asyncio.create_task(two.fetch(max_wait_ms=5000))
    await asyncio.sleep(0.05)
    assert await one.acknowledge((0, 0, [RELEASE])) == ("NONE", None)
    assert await waiting == [(0, 0, 2)]


@pytest.mark.slow
async def test_locks_that_end_give_the_records_to_another_member(tmp_path: Path) -> None:
    async with Nodes(
        tmp_path,
        1,
        **{"group.share.record.lock.duration.ms": "1000", "group.share.min.record.lock.duration.ms": "1000"},
    ) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        node = nodes[1]
        await begin_group(node)
        node.append("t", "a", "b")
        one, two = Member(node, "one"), Member(node, "two")
        assert await one.opened() == [(0, 1, 1)]
        await one.acknowledge((0, 0, [ACCEPT]))
        assert await two.fetch(max_wait_ms=5000) == [(1, 1, 2)]
        assert (await one.acknowledge((1, 1, [ACCEPT])))[0] == "INVALID_RECORD_STATE"
        assert await two.acknowledge((1, 1, [RENEW]), is_renew_ack=True) == ("NONE", None)


async def test_the_end_of_a_session_releases_what_its_member_holds(node: Node) -> None:
    node.append("t", "a", "b")
    one, two = Member(node, "one"), Member(node, "two")
    assert await one.opened() == [(0, 1, 1)]
    one.epoch = -1
    answer = await one.request((0, 0, [ACCEPT]))
    assert acknowledge_error_of(answer) == ("NONE", None)
    assert await two.fetch(max_wait_ms=5000) == [(1, 1, 2)]
    one.epoch = 5
    assert ErrorCode((await one.request()).error_code) is ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_a_closed_connection_ends_its_sessions_and_the_group(node: Node) -> None:
    node.append("t", "a")
    manager = node.shares.manager
    one = Member(node, "one")
    assert await one.opened() == [(0, 0, 1)]
    session = manager.sessions.get(GROUP, "one")
    assert session is not None
    node.shares.disconnected(session.connection)
    assert (len(manager.sessions), len(manager)) == (0, 0)
    two = Member(node, "two")
    assert await two.fetch(max_wait_ms=5000) == [(0, 0, 2)]


async def test_a_share_partition_is_read_anew_after_its_last_write(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next member gets the record with the count of deliveries that it had before."""
    write, may_write = PersisterClient.write, asyncio.Event()

    async def held(
        client: PersisterClient, group_id: str, updates: Mapping[TopicIdPartition, StateUpdate]
    ) -> Mapping[TopicIdPartition, PersisterOutcome]:
        await may_write.wait()
        return await write(client, group_id, updates)

    node.append("t", "a")
    manager = node.shares.manager
    one, two = Member(node, "one"), Member(node, "two")
    assert await one.opened() == [(0, 0, 1)]
    monkeypatch.setattr(PersisterClient, "write", held)
    session = manager.sessions.get(GROUP, "one")
    assert session is not None
    node.shares.disconnected(session.connection)
    waiting = asyncio.create_task(two.fetch(max_wait_ms=5000))
    await asyncio.sleep(0.1)
    may_write.set()
    assert await waiting == [(0, 0, 2)]


async def test_epochs_of_a_session_follow_each_other(node: Node) -> None:
    one = Member(node, "one")
    assert await one.fetch() == []
    for epoch, error in ((3, "INVALID_SHARE_SESSION_EPOCH"), (1, "NONE"), (1, "INVALID_SHARE_SESSION_EPOCH")):
        one.epoch = epoch
        assert ErrorCode((await one.request()).error_code).name == error
    one.epoch = 0
    assert await one.acknowledge((0, 0, [ACCEPT])) == ("INVALID_SHARE_SESSION_EPOCH", None)
    one.epoch = 0
    answer = await one.request((0, 0, [ACCEPT]))
    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "batches",
    [
        [(5, 4, [1])],
        [(0, 4, [1]), (3, 5, [1])],
        [(0, 4, [])],
        [(0, 4, [1, 1])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(0, 0, [4])],
    ],
)
async def test_malformed_acknowledgements_are_refused(node: Node, batches: list[tuple[int, int, list[int]]]) -> None:
    node.append("t", *"abcdef")
    one = Member(node, "one")
    assert await one.opened() == [(0, 5, 1)]
    assert await one.acknowledge(*batches) == ("INVALID_REQUEST", None)
    assert acknowledge_error_of(await one.request(*batches)) == ("INVALID_REQUEST", None)
    assert await one.acknowledge((0, 5, [ACCEPT])) == ("NONE", None)


async def test_acknowledgements_of_records_of_others_are_refused(node: Node) -> None:
    node.append("t", "a", "b")
    one, two = Member(node, "one"), Member(node, "two")
    assert await one.opened(max_records=1) == [(0, 0, 1)]
    assert await two.opened() == [(1, 1, 1)]
    assert await two.acknowledge((0, 0, [ACCEPT])) == (
        "INVALID_RECORD_STATE",
        "Member is not the owner of batch record",
    )
    assert (await two.acknowledge((5, 6, [ACCEPT])))[0] == "INVALID_REQUEST"


async def test_unknown_topics_and_partitions_have_errors_of_their_own(node: Node) -> None:
    one = Member(node, "one")
    assert error_of(await one.request(partition=7)) == "UNKNOWN_TOPIC_OR_PARTITION"
    two = Member(node, "two", "nobody")
    assert error_of(await two.request()) == "UNKNOWN_TOPIC_ID"
    assert await two.acknowledge((0, 0, [ACCEPT])) == ("UNKNOWN_TOPIC_ID", None)
    three = Member(node, "three", group="another")
    assert await three.fetch(topics=[]) == []
    assert await three.acknowledge((0, 0, [ACCEPT])) == (
        "UNKNOWN_TOPIC_OR_PARTITION",
        "This server does not host this topic-partition.",
    )


async def test_no_more_sessions_are_opened_than_allowed(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1, **{"group.share.max.share.sessions": "1"}) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        await begin_group(nodes[1])
        one, two = Member(nodes[1], "one"), Member(nodes[1], "two")
        assert await one.fetch() == []
        assert ErrorCode((await two.request()).error_code) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
        one.epoch = 0
        assert await one.fetch() == []


@pytest.mark.slow
async def test_committed_records_alone_reach_a_group_that_asks_for_them(node: Node) -> None:
    node.configure_group(GROUP, {"share.isolation.level": "read_committed"})
    producer = await producer_at(node)
    await producer.produce(node, "t")
    node.append("t", "plain")
    one = Member(node, "one")
    assert await one.opened(max_wait_ms=100) == []
    await producer.end(is_commit=False)
    await eventually_async(lambda: _reaches(node, 3), "the marker")
    got = []
    for _ in range(3):
        got += await one.fetch(max_wait_ms=500)
    assert got[0] == (1, 2, 1)
    assert await one.acknowledge((1, 2, [ACCEPT, 0])) == ("NONE", None)
    assert start_offset(node) == 3


def _reaches(node: Node, offset: int) -> bool:
    return node.partition("t").last_stable_offset >= offset


async def test_another_leader_goes_on_with_what_was_stored(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        await begin_group(nodes[1])
        nodes[1].append("t", *"abcd")
        one = Member(nodes[1], "one")
        assert await one.opened() == [(0, 3, 1)]
        assert await one.acknowledge((0, 1, [ACCEPT, RELEASE])) == ("NONE", None)
        await nodes.lead("t", leader=2)
        answer = await one.request((2, 3, [ACCEPT]))
        assert error_of(answer) == "NOT_LEADER_OR_FOLLOWER"
        assert acknowledge_error_of(answer)[0] == "UNKNOWN_TOPIC_OR_PARTITION"
        assert answer.responses[0].partitions[0].current_leader.leader_id == 2
        two = Member(nodes[2], "two")
        assert sorted(await two.opened()) == [(1, 1, 2), (2, 3, 1)]


async def test_a_deleted_topic_ends_its_share_partitions(node: Node) -> None:
    one = Member(node, "one")
    assert await one.fetch() == []
    await node.nodes.delete("t")
    assert len(node.shares.manager) == 0
    assert (await one.request()).responses[0].partitions[0].error_code in (
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )


async def test_deleted_records_are_passed_over(node: Node) -> None:
    node.append("t", *"abcd")
    one = Member(node, "one")
    assert await one.opened(max_records=1) == [(0, 0, 1)]
    node.partition("t").delete_records(3, 0)
    assert await one.fetch(max_wait_ms=1000) == [(3, 3, 1)]
    assert await one.acknowledge((0, 0, [ACCEPT])) == ("NONE", None)


async def test_a_group_begins_where_its_setting_says(node: Node) -> None:
    node.append("t", *"abcd")
    for number, (reset, first) in enumerate({"earliest": 0, "latest": 4, "by_duration:PT1H": 0}.items()):
        group = f"group-{number}"
        node.configure_group(group, {"share.auto.offset.reset": reset})
        await begin_group(node, group=group, start_offset=-1)
        member = Member(node, "one", group=group)
        end = node.partition("t").high_watermark
        assert await member.opened(max_wait_ms=200) == ([(0, end - 1, 1)] if first == 0 else []), reset
        node.append("t", "x")
        assert (await member.fetch(max_wait_ms=5000))[0][0] == end, reset


async def test_a_fetch_of_a_share_partition_that_was_never_begun_says_so(node: Node) -> None:
    member = Member(node, "one", group="never")
    answer = await member.request(max_wait_ms=5000)
    assert error_of(answer) == "UNKNOWN_SERVER_ERROR"


async def test_the_record_limit_gives_no_record_more(node: Node) -> None:
    one = Member(node, "one")
    partition = node.partition("t")
    batch = memoryview(encode_batch([Record(0, 0, None, b"x", ())] * 5))
    partition.append(batch, read_header(batch), now_ms=0, acks=1)
    assert await one.opened(max_records=2, share_acquire_mode=1) == [(0, 1, 1)]
    assert await one.fetch(max_records=2, share_acquire_mode=0) == [(2, 4, 1)]


async def test_a_state_that_cannot_be_read_is_an_error_of_its_share_partition_alone(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.append("t", "a")
    with monkeypatch.context() as patch:
        patch.setattr("headrace.broker.share.share_manager.SharePartition", None)
        assert error_of(await Member(node, "one").request(max_wait_ms=5000)) == "UNKNOWN_SERVER_ERROR"
    assert await Member(node, "two").opened() == [(0, 0, 1)]
