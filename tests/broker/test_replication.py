"""Followers follow: records, high watermarks, log starts; and what acks promise holds, whoever comes and goes."""

import asyncio
from pathlib import Path

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import finished
from headrace.log import truncation
from headrace.log.flusher import inline
from headrace.metadata.entity_configs import TOPICS
from headrace.protocol import messages as m
from headrace.records.format2.batch import Record, encode_batch
from tests.broker.replica_nodes import Node, Nodes, topic_id, turns
from tests.eventually import eventually_async
from tests.log.support import Work, hold_background
from tests.simulation.virtual_time import in_virtual_time

UNKNOWN_CODE = 9_999
"""An error code that this release does not know."""


def numbered(first: int, count: int) -> list[str]:
    return [f"v{number}" for number in range(first, first + count)]


def produce(topic: str, value: str, acks: int, timeout_ms: int = 20_000) -> m.ProduceRequest:
    batch = encode_batch([Record(0, 0, None, value.encode(), ())])
    partition = m.ProduceRequest.PartitionProduceData(index=0, records=batch)
    return m.ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[m.ProduceRequest.TopicProduceData(topic_id=topic_id(topic), partition_data=[partition])],
    )


async def produced(node: Node, topic: str, value: str, acks: int = -1, timeout_ms: int = 20_000) -> ErrorCode:
    answer = await node.ask(produce(topic, value, acks, timeout_ms), m.ProduceResponse)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


@in_virtual_time
async def test_followers_have_what_the_leader_has_and_all_of_it_is_committed_everywhere(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 3) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2, 3))
        values = numbered(0, 50)
        nodes[1].append("t", *values)
        await eventually_async(lambda: nodes[1].high_watermark("t") == 50)
        assert nodes[2].values("t") == nodes[3].values("t") == values
        await eventually_async(lambda: nodes[2].high_watermark("t") == nodes[3].high_watermark("t") == 50)
        assert nodes[2].partition("t").log.leader_epochs.entries == [(0, 0)]


@in_virtual_time
async def test_a_session_says_only_what_changed(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        for topic in ("t", "u", "v"):
            await nodes.lead(topic, leader=1, replicas=(1, 2))
        nodes[1].append("u", "a")
        await eventually_async(lambda: nodes[2].high_watermark("u") == 1)
        nodes[1].append("u", "b")
        await eventually_async(lambda: nodes[2].high_watermark("u") == 2)
        fetches = [each for each in nodes[2].peers.asked if isinstance(each, m.FetchRequest)]
        incremental = [each for each in fetches if each.session_epoch > 0]
        assert fetches[0].session_epoch == 0
        assert len(incremental) >= 2
        last = [topic.topic_id for each in incremental[-3:] for topic in each.topics]
        assert set(last) <= {topic_id("u")}


@in_virtual_time
async def test_acks_all_is_answered_once_the_isr_has_it_and_acks_one_at_once(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 3) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2, 3))
        nodes.cuts = {(3, 1), (1, 3)}
        assert await produced(nodes[1], "t", "a", acks=1) is ErrorCode.NONE
        waiting = asyncio.ensure_future(produced(nodes[1], "t", "b"))
        await eventually_async(lambda: nodes[2].values("t") == ["a", "b"])
        await turns()
        assert not waiting.done()
        nodes.cuts = set()
        assert await waiting is ErrorCode.NONE
        assert nodes[3].values("t") == ["a", "b"]


@in_virtual_time
async def test_too_small_an_isr_refuses_acks_all_before_the_append(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 3) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2, 3), isr=(1,), to=(1,))
        nodes[1].partition("t").state.min_insync_replicas = 2
        assert await produced(nodes[1], "t", "a") is ErrorCode.NOT_ENOUGH_REPLICAS
        assert nodes[1].values("t") == []


@in_virtual_time
async def test_an_isr_that_shrinks_below_its_minimum_commits_nothing_until_it_grows_again(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2, replica_lag_time_max_ms="1000") as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        nodes[1].partition("t").state.min_insync_replicas = 2
        nodes[1].append("t", "a")
        await eventually_async(lambda: nodes[1].high_watermark("t") == 1)
        nodes.cuts = {(2, 1), (1, 2)}
        waiting = asyncio.ensure_future(produced(nodes[1], "t", "b"))
        await eventually_async(lambda: nodes[1].values("t") == ["a", "b"])
        nodes.now_ms += 1500
        finished(nodes[1].replication.isr_changes.shrink())
        await eventually_async(lambda: nodes[1].partition("t").state.isr == {1})
        await turns()
        assert not waiting.done()
        assert nodes[1].high_watermark("t") == 1
        nodes.cuts = set()
        assert await waiting is ErrorCode.NONE
        assert nodes.changes["t"] == [(1,), (1, 2)]


async def minimum(nodes: Nodes, replicas: int) -> None:
    """Sets the topic's `min.insync.replicas`, as AlterConfigs does."""
    await nodes.entities.rewrite(TOPICS, "t", lambda before: {**before, "min.insync.replicas": str(replicas)})


@in_virtual_time
async def test_a_lowered_minimum_commits_at_once_what_waits(tmp_path: Path) -> None:
    """Apache Kafka looks again at the next append or fetch of a follower, which may never come."""
    async with Nodes(tmp_path, 2, replica_lag_time_max_ms="1000") as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        await minimum(nodes, 2)
        nodes.cuts = {(2, 1), (1, 2)}
        waiting = asyncio.ensure_future(produced(nodes[1], "t", "a"))
        await eventually_async(lambda: nodes[1].values("t") == ["a"])
        nodes.now_ms += 1500
        finished(nodes[1].replication.isr_changes.shrink())
        await eventually_async(lambda: nodes[1].partition("t").state.isr == {1})
        await turns()
        assert not waiting.done()
        await minimum(nodes, 1)
        assert await waiting is ErrorCode.NONE
        assert nodes[1].high_watermark("t") == 1
        assert await produced(nodes[1], "t", "b") is ErrorCode.NONE


@in_virtual_time
async def test_a_raised_minimum_counts_for_what_waits_and_for_what_comes(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 3) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2, 3), isr=(1, 2), to=(1,))
        waiting = asyncio.ensure_future(produced(nodes[1], "t", "a"))
        await eventually_async(lambda: nodes[1].values("t") == ["a"])
        await minimum(nodes, 3)
        nodes[1].partition("t").state.follower_fetched(nodes[2].id, 1, nodes.now_ms)
        await turns()
        assert (waiting.done(), nodes[1].high_watermark("t")) == (False, 0), "two replicas no longer commit"
        assert await produced(nodes[1], "t", "b") is ErrorCode.NOT_ENOUGH_REPLICAS
        await minimum(nodes, 2)
        assert await waiting is ErrorCode.NONE


@in_virtual_time
async def test_an_isr_that_is_too_small_once_the_record_is_committed_is_told_so(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2), to=(1,))
        waiting = asyncio.ensure_future(produced(nodes[1], "t", "a"))
        await turns(5)
        leader = nodes[1].partition("t")
        leader.state.follower_fetched(nodes[2].id, 1, nodes.now_ms)
        leader.state.min_insync_replicas = 2
        leader.apply(nodes.states["t"]._replace(isr=(nodes[1].id,), partition_epoch=7), nodes.now_ms)
        nodes[1].purgatory.touch(leader.key)
        assert await waiting is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


@in_virtual_time
async def test_a_leader_that_leads_on_in_a_new_epoch_goes_on_waiting_for_its_replicas(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2), to=(1,))
        waiting = asyncio.ensure_future(produced(nodes[1], "t", "a"))
        await turns(5)
        await nodes.lead("t", leader=1)
        assert await waiting is ErrorCode.NONE
        assert nodes[2].values("t") == ["a"]


@in_virtual_time
async def test_a_produce_that_the_replicas_are_too_slow_for_times_out(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2), to=(1,))
        assert await produced(nodes[1], "t", "a", timeout_ms=30) is ErrorCode.REQUEST_TIMED_OUT


@in_virtual_time
async def test_who_waits_for_replicas_of_a_leader_that_is_replaced_hears_of_it(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2), to=(1,))
        waiting = asyncio.ensure_future(produced(nodes[1], "t", "a"))
        await turns(5)
        await nodes.lead("t", leader=2)
        assert await waiting is ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_a_follower_that_falls_behind_leaves_the_isr_and_joins_again(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 3, replica_lag_time_max_ms="1000") as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2, 3))
        nodes[1].append("t", "a")
        await eventually_async(lambda: nodes[1].high_watermark("t") == 1)
        nodes.cuts = {(3, 1), (1, 3)}
        nodes[1].append("t", "b")
        nodes.now_ms += 1500
        await eventually_async(lambda: nodes[1].partition("t").state.followers[nodes[2].id].log_end_offset == 2)
        finished(nodes[1].replication.isr_changes.shrink())
        await eventually_async(lambda: nodes[1].partition("t").state.isr == {1, 2})
        assert nodes[1].high_watermark("t") == 2
        assert nodes[1].replication.under_replicated == 1
        nodes.cuts = set()
        await eventually_async(lambda: nodes[1].partition("t").state.isr == {1, 2, 3})
        assert nodes.changes["t"] == [(1, 2), (1, 2, 3)]
        assert nodes[1].replication.under_replicated == 0
        assert (nodes[1].replication.isr_changes.shrinks, nodes[1].replication.isr_changes.expansions) == (1, 1)


@in_virtual_time
@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, UNKNOWN_CODE], ids=["known", "of a newer release"])
async def test_a_change_of_the_isr_that_the_controller_cannot_make_now_is_asked_for_again(
    tmp_path: Path, code: int
) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        nodes.refusing = code
        await nodes.lead("t", leader=1, replicas=(1, 2), isr=(1,))
        await eventually_async(lambda: nodes[1].replication.isr_changes.refusals >= 2)
        assert nodes[1].partition("t").state.isr == {1}
        nodes.refusing = ErrorCode.NONE
        await eventually_async(lambda: nodes[1].partition("t").state.isr == {1, 2})


@in_virtual_time
async def test_a_broker_that_ends_asks_for_nothing_more(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        nodes.refusing = ErrorCode.NOT_CONTROLLER
        await nodes.lead("t", leader=1, replicas=(1, 2), isr=(1,))
        await eventually_async(lambda: nodes[1].replication.isr_changes.refusals >= 1)
        tasks = nodes[1].tasks
        assert tasks
        nodes[1].replication.close()
        await eventually_async(lambda: not tasks)


@in_virtual_time
async def test_the_log_start_of_the_leader_is_its_followers(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        nodes[1].append("t", *numbered(0, 10))
        await eventually_async(lambda: nodes[1].high_watermark("t") == 10)
        nodes[1].partition("t").delete_records(4, 0)
        nodes[1].append("t", "x")
        await eventually_async(lambda: nodes[2].partition("t").log.log_start_offset == 4)


@in_virtual_time
async def test_a_new_follower_begins_where_its_leader_does_also_inside_a_batch(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        leader = nodes[1].partition("t")
        batch = memoryview(encode_batch([Record(0, 0, None, value.encode(), ()) for value in numbered(0, 10)]))
        from headrace.records.format2.batch import read_header

        leader.append(batch, read_header(batch), now_ms=0, acks=1)
        nodes[1].append("t", "last")
        leader.delete_records(4, 0)
        await nodes.lead("t", leader=1, replicas=(1, 2), isr=(1,))
        await eventually_async(lambda: nodes[1].partition("t").state.isr == {1, 2})
        follower = nodes[2].partition("t").log
        assert (follower.log_start_offset, follower.log_end_offset) == (4, 11)
        assert nodes[2].values("t")[-1] == "last"


@in_virtual_time
async def test_a_follower_that_was_away_for_longer_than_the_leader_keeps_records_starts_anew(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        nodes[1].append("t", "a", "b")
        await eventually_async(lambda: nodes[2].values("t") == ["a", "b"])
        nodes.crash(2)
        await nodes.lead("t", leader=1, isr=(1,))
        nodes[1].append("t", *numbered(2, 8))
        nodes[1].partition("t").delete_records(7, 0)
        await nodes.start(2)
        await eventually_async(lambda: nodes[1].partition("t").state.isr == {1, 2})
        follower = nodes[2].partition("t")
        assert (follower.log.log_start_offset, follower.log.log_end_offset) == (7, 10)
        assert nodes[2].values("t") == ["v7", "v8", "v9"]
        assert follower.high_watermark >= 7


@in_virtual_time
async def test_a_follower_that_has_more_than_a_leader_that_lost_its_records_loses_them_too(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        nodes[1].append("t", *numbered(0, 5))
        await eventually_async(lambda: nodes[2].high_watermark("t") == 5)
        truncation.truncate_fully(nodes[1].partition("t").log, 0, 0)
        await nodes.lead("t", leader=1)
        nodes[1].append("t", "x")
        await eventually_async(lambda: nodes[2].values("t") == ["x"])
        assert nodes[2].high_watermark("t") <= 1


@in_virtual_time
async def test_a_broker_that_is_no_replica_is_refused_and_so_is_an_older_incarnation(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        nodes[1].append("t", "a")
        await eventually_async(lambda: nodes[1].high_watermark("t") == 1)

        async def fetch(replica: int, replica_epoch: int, leader_epoch: int = -1) -> ErrorCode:
            wanted = m.FetchRequest.FetchPartition(
                partition=0, fetch_offset=0, partition_max_bytes=1000, current_leader_epoch=leader_epoch
            )
            topic = m.FetchRequest.FetchTopic(topic_id=topic_id("t"), partitions=[wanted])
            state = m.FetchRequest.ReplicaState(replica_id=replica, replica_epoch=replica_epoch)
            request = m.FetchRequest(replica_state=state, max_wait_ms=0, topics=[topic])
            answer = await nodes[1].ask(request, m.FetchResponse)
            return ErrorCode(answer.responses[0].partitions[0].error_code)

        assert await fetch(7, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await fetch(7, 1, leader_epoch=0) is ErrorCode.UNKNOWN_LEADER_EPOCH
        assert await fetch(2, nodes[2].broker_epoch) is ErrorCode.NONE
        assert await fetch(2, nodes[2].broker_epoch - 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@in_virtual_time
async def test_what_only_brokers_ask_is_refused_by_a_broker_alone_and_on_other_listeners(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        request = m.UpdateMetadataRequest(controller_id=9, controller_epoch=1000, broker_epoch=-1)
        answer = await nodes[1].ask(request, m.UpdateMetadataResponse)
        assert answer.error_code == ErrorCode.NONE
    async with Nodes(tmp_path / "named", 1, inter_broker_listener_name="INSIDE") as nodes:
        for asked, answers in (
            (m.UpdateMetadataRequest(controller_epoch=1000), m.UpdateMetadataResponse),
            (m.LeaderAndIsrRequest(controller_epoch=1000), m.LeaderAndIsrResponse),
            (m.StopReplicaRequest(controller_epoch=1000), m.StopReplicaResponse),
        ):
            refused = await nodes[1].ask(asked, answers)
            assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED  # type: ignore[attr-defined]


@in_virtual_time
async def test_a_consumer_reads_from_a_follower_what_is_committed_there(tmp_path: Path) -> None:
    async with Nodes(
        tmp_path, 2, replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector"
    ) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        nodes[1].append("t", "a", "b")
        await eventually_async(lambda: nodes[2].high_watermark("t") == 2)

        async def fetch(node: int, offset: int, rack: str = "") -> m.FetchResponse.PartitionData:
            wanted = m.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
            topic = m.FetchRequest.FetchTopic(topic_id=topic_id("t"), partitions=[wanted])
            request = m.FetchRequest(max_wait_ms=0, topics=[topic], rack_id=rack)
            return (await nodes[node].ask(request, m.FetchResponse)).responses[0].partitions[0]

        assert (await fetch(1, 0, "rack-2")).preferred_read_replica == 2
        for rack in ("", "rack-1", "rack-9"):
            answer = await fetch(1, 0, rack)
            assert (answer.preferred_read_replica, bool(answer.records)) == (-1, True)
        there = await fetch(2, 0, "rack-2")
        assert (there.error_code, there.preferred_read_replica, bool(there.records)) == (0, -1, True)
        assert (await fetch(2, 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await fetch(2, 2, "rack-2")).error_code == ErrorCode.NONE
        assert (await fetch(2, 3, "rack-2")).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        nodes.cuts = {(1, 2)}
        nodes[1].append("t", "c")
        await turns(10)
        assert not (await fetch(1, 2)).records  # nobody else has it


@pytest.mark.parametrize("side", ["leader", "follower"])
@in_virtual_time
async def test_a_throttled_replica_that_is_not_in_sync_is_held_back(tmp_path: Path, side: str) -> None:
    async with Nodes(tmp_path, 2, **{f"{side}_replication_throttled_rate": "2000"}) as nodes:
        named = {"leader": "leader_throttled_replicas", "follower": "follower_throttled_replicas"}[side]
        await nodes.lead("t", leader=1, replicas=(1, 2), isr=(1,), to=(1,))
        object.__setattr__(nodes.configs.get("t"), named, ("*",))
        for _ in range(6):
            nodes[1].append("t", "x" * 1500)
        await nodes.lead("t", leader=1)
        quota = nodes[1].replication.leader_quota if side == "leader" else nodes[2].replication.follower_quota
        await eventually_async(lambda: nodes[1].partition("t").state.isr == {1, 2})
        assert quota.bytes_passed >= 6 * 1500
        assert len(nodes[2].values("t")) == 6


@in_virtual_time
async def test_a_follower_does_not_take_what_does_not_match_its_checksum(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2), isr=(1,), to=(1,))
        nodes[1].append("t", "good", "bad")
        log = nodes[1].partition("t").log
        log.active.file.write(b"\xff", log.active.size - 3)
        await nodes.lead("t", leader=1)
        await eventually_async(lambda: nodes[2].replicas.find(("t", 0)) is not None)
        await turns()
        assert nodes[2].partition("t").log.log_end_offset == 0


@in_virtual_time
async def test_a_leader_whose_high_watermark_lags_does_not_say_where_the_log_ends(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        nodes[1].append("t", "a")
        await eventually_async(lambda: nodes[1].high_watermark("t") == 1)
        nodes.cuts = {(1, 2), (2, 1)}
        nodes[1].append("t", "b")
        await nodes.lead("t", leader=1)

        async def end(version: int, replica: int = -1) -> tuple[int, int]:
            asked = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
            topic = m.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked])
            request = m.ListOffsetsRequest(replica_id=replica, topics=[topic])
            answer = (await nodes[1].ask(request, m.ListOffsetsResponse, version)).topics[0].partitions[0]
            return answer.error_code, answer.offset

        assert (await end(9))[0] == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await end(4))[0] == ErrorCode.LEADER_NOT_AVAILABLE
        assert await end(9, replica=2) == (ErrorCode.NONE, 2)
        nodes.cuts = set()
        await eventually_async(lambda: nodes[1].high_watermark("t") == 2)
        assert await end(9) == (ErrorCode.NONE, 2)


@in_virtual_time
async def test_a_leader_that_speaks_an_older_fetch_is_asked_for_its_epochs_first(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=2, replicas=(1, 2))
        nodes[2].append("t", "a")
        await eventually_async(lambda: nodes[1].values("t") == ["a"])
        nodes.cuts = {(1, 2), (2, 1)}
        nodes[2].append("t", "lost")
        nodes[2].peers.newest["FetchRequest"] = 11
        await nodes.lead("t", leader=1, isr=(1,))
        nodes[1].append("t", "b")
        nodes.cuts = set()
        await eventually_async(lambda: nodes[2].values("t") == ["a", "b"])
        assert any(isinstance(each, m.OffsetForLeaderEpochRequest) for each in nodes[2].peers.asked)


@in_virtual_time
async def test_where_acknowledgements_mean_the_disk_a_follower_asks_on_only_after_its_flush(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2, headrace_log_flush_acks="true") as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        nodes[1].append("t", "a")
        await eventually_async(lambda: nodes[1].high_watermark("t") == 1)
        held: list[Work] = []
        hold_background(nodes[2].partition("t").log, held)
        nodes[1].append("t", "b")
        await eventually_async(lambda: bool(held))
        await turns()
        assert nodes[2].values("t") == ["a", "b"]
        assert nodes[1].high_watermark("t") == 1
        while held:
            work, done = held.pop()
            inline(work, done)
        await eventually_async(lambda: nodes[1].high_watermark("t") == 2)


@in_virtual_time
async def test_a_partition_that_is_let_go_is_followed_no_more(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        nodes[1].append("t", "a")
        await eventually_async(lambda: nodes[2].values("t") == ["a"])
        state = m.StopReplicaRequest.StopReplicaPartitionState(partition_index=0, leader_epoch=0)
        topic = m.StopReplicaRequest.StopReplicaTopicState(topic_name="t", partition_states=[state])
        await nodes[2].ask(
            m.StopReplicaRequest(controller_epoch=1, broker_epoch=nodes[2].broker_epoch, topic_states=[topic]),
            m.StopReplicaResponse,
        )
        assert nodes[2].replicas.find(("t", 0)) is None
        await eventually_async(lambda: not list(nodes[2].replication.fetchers))
        with pytest.raises(KafkaError):
            nodes[2].replicas.get("t", 0)


@in_virtual_time
async def test_partitions_are_spread_over_another_number_of_fetchers(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        names = [f"t{number}" for number in range(6)]
        for name in names:
            await nodes.lead(name, leader=1, replicas=(1, 2))
            nodes[1].append(name, "a")
        fetchers = nodes[2].replication.fetchers
        await eventually_async(lambda: all(nodes[2].values(name) == ["a"] for name in names))
        assert len(list(fetchers)) == 1
        for count in (3, 1):
            fetchers.spread(count)
            for name in names:
                nodes[1].append(name, str(count))
            await eventually_async(lambda: len(list(fetchers)) == count)  # noqa: B023
        await eventually_async(lambda: all(nodes[2].values(name) == ["a", "3", "1"] for name in names))


@in_virtual_time
async def test_a_broker_that_stops_does_not_follow_the_successor_of_its_leaders(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("led", leader=2, replicas=(1, 2))
        await nodes.lead("followed", leader=1, replicas=(1, 2))
        await eventually_async(lambda: bool(list(nodes[2].replication.fetchers)))
        nodes[2].replication.fetchers.stop_adding()
        await nodes.lead("led", leader=1, replicas=(1, 2), isr=(1,))
        nodes[1].append("led", "a")
        nodes[1].append("followed", "b")
        await eventually_async(lambda: nodes[2].values("followed") == ["b"])
        assert nodes[2].values("led") == []
        assert nodes[1].high_watermark("led") == 1
