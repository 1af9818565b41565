"""Transaction markers: written to the partitions that a broker leads, answered when they are durable."""

import asyncio
from pathlib import Path

from headrace.coordinators.groups.offsets import CommittedOffset
from headrace.coordinators.groups.records import write_offset, write_offset_key
from headrace.errors import ErrorCode, KafkaError
from headrace.limits import INT16_MAX
from headrace.log.appending import AppendOrigin
from headrace.log.producers.verification import NOT_REQUIRED
from headrace.protocol import messages as m
from headrace.records.format2.batch import Record, encode_batch, read_header
from headrace.records.format2.control import read_marker
from headrace.topics import OFFSETS_TOPIC
from headrace.types import TopicPartition
from tests.broker.replica_nodes import Node, Nodes, turns
from tests.eventually import eventually_async

PRODUCER = 4242


def open_transaction(node: Node, topic: str, *, epoch: int = 0, sequence: int = 0, producer: int = PRODUCER) -> int:
    """A transactional batch at the leader, as if the coordinator had agreed to it; its offset."""
    partition = node.partition(topic)
    batch = memoryview(
        encode_batch(
            [Record(0, 0, None, b"a", ())],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
    )
    offset = partition.append(batch, read_header(batch), now_ms=0, acks=1, verification=NOT_REQUIRED).base_offset
    partition.touch_appended(node.purgatory)
    return offset


async def write(
    node: Node,
    *topics: str,
    is_commit: bool = True,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    producer: int = PRODUCER,
    version: int = 2,
    transaction_version: int = 0,
) -> dict[str, ErrorCode]:
    """WriteTxnMarkers for partition 0 of some topics; the error code of each."""
    marker = m.WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer,
        producer_epoch=epoch,
        transaction_result=is_commit,
        topics=[m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=each, partition_indexes=[0]) for each in topics],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    answer = await node.ask(m.WriteTxnMarkersRequest(markers=[marker]), m.WriteTxnMarkersResponse, version=version)
    (result,) = answer.markers
    assert result.producer_id == producer
    return {topic.name: ErrorCode(topic.partitions[0].error_code) for topic in result.topics}


def last_batch(node: Node, topic: str) -> bytes:
    """The last batch of a log."""
    log = node.partition(topic).log
    end = log.log_end_offset
    return log.read_bytes(log.read(end - 1, 1 << 20, end_offset=end, at_least_one=True))


async def test_a_marker_ends_the_transaction_and_carries_the_coordinators_epoch(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        open_transaction(nodes[1], "t")
        assert nodes[1].partition("t").last_stable_offset == 0
        assert await write(nodes[1], "t", coordinator_epoch=7) == {"t": ErrorCode.NONE}
        assert nodes[1].partition("t").last_stable_offset == 2
        marker = last_batch(nodes[1], "t")
        header = read_header(marker)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (PRODUCER, 0, -1)
        assert header.is_control and header.is_transactional
        assert read_marker(marker) == (1, 7)


async def test_an_abort_marker_is_indexed_for_readers(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        open_transaction(nodes[1], "t")
        assert await write(nodes[1], "t", is_commit=False, version=1) == {"t": ErrorCode.NONE}
        assert read_marker(last_batch(nodes[1], "t")).is_abort
        (aborted,) = nodes[1].partition("t").log.aborted_transactions(0, 2)
        assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (PRODUCER, 0, 1)


async def test_a_marker_is_answered_when_the_followers_have_it(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        await nodes.lead("alone", leader=1, replicas=(1,))
        nodes.cuts = {(1, 2), (2, 1)}
        writing = asyncio.ensure_future(write(nodes[1], "t", "alone"))
        await eventually_async(lambda: nodes[1].partition("t").log.log_end_offset == 1)
        await turns(5)
        assert not writing.done()
        nodes.cuts = set()
        assert await writing == {"t": ErrorCode.NONE, "alone": ErrorCode.NONE}
        assert nodes[1].high_watermark("t") == 1


async def test_a_marker_that_lost_its_leader_is_not_answered_as_written(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        nodes.cuts = {(1, 2), (2, 1)}
        writing = asyncio.ensure_future(write(nodes[1], "t"))
        await eventually_async(lambda: nodes[1].partition("t").log.log_end_offset == 1)
        await nodes.lead("t", leader=2)
        assert await writing == {"t": ErrorCode.NOT_LEADER_OR_FOLLOWER}


async def test_each_partition_of_a_marker_has_its_own_error(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("here", leader=1, replicas=(1, 2))
        await nodes.lead("elsewhere", leader=2, replicas=(1, 2))
        await nodes.lead("old", leader=1, replicas=(1,))
        open_transaction(nodes[1], "old", epoch=5)
        assert await write(nodes[1], "here", "elsewhere", "nowhere", "old", epoch=3) == {
            "here": ErrorCode.NONE,
            "elsewhere": ErrorCode.NOT_LEADER_OR_FOLLOWER,
            "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "old": ErrorCode.INVALID_PRODUCER_EPOCH,
        }


async def test_a_repeated_marker_is_written_and_ends_nothing(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        open_transaction(nodes[1], "t")
        open_transaction(nodes[1], "t", producer=PRODUCER + 1)
        for _ in range(2):
            assert await write(nodes[1], "t", is_commit=False, epoch=1) == {"t": ErrorCode.NONE}
        assert nodes[1].partition("t").last_stable_offset == 1
        assert len(nodes[1].partition("t").log.aborted_transactions(0, 4)) == 1


async def test_a_marker_of_transaction_version_2_needs_a_later_epoch_than_its_records(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        open_transaction(nodes[1], "t", epoch=4)
        assert await write(nodes[1], "t", epoch=4, transaction_version=2) == {"t": ErrorCode.INVALID_PRODUCER_EPOCH}
        assert await write(nodes[1], "t", epoch=5, transaction_version=2) == {"t": ErrorCode.NONE}
        assert await write(nodes[1], "t", epoch=5, transaction_version=2) == {"t": ErrorCode.NONE}


async def test_a_transaction_of_the_last_epoch_can_be_ended(tmp_path: Path) -> None:
    """No marker can have a later epoch; refused, the transaction would hang."""
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        open_transaction(nodes[1], "t", epoch=INT16_MAX)
        assert await write(nodes[1], "t", epoch=INT16_MAX, transaction_version=2) == {"t": ErrorCode.NONE}
        assert nodes[1].partition("t").last_stable_offset == 2


async def test_a_marker_of_an_older_coordinator_is_fenced(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        assert await write(nodes[1], "t", coordinator_epoch=3) == {"t": ErrorCode.NONE}
        assert await write(nodes[1], "t", coordinator_epoch=2) == {"t": ErrorCode.TRANSACTION_COORDINATOR_FENCED}


async def test_a_refused_batch_of_the_producer_does_not_hold_its_marker_back(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        refused = encode_batch(
            [Record(0, 0, None, b"a", ())],
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=2**31 - 3,
            is_transactional=True,
        )
        error = KafkaError("too few replicas", ErrorCode.NOT_ENOUGH_REPLICAS)
        nodes[1].replicas.batch_refused("t", 0, memoryview(refused), error, nodes.now_ms)
        assert nodes[1].replicas.refused_sequences.entries
        assert await write(nodes[1], "t") == {"t": ErrorCode.NONE}


async def test_a_topic_of_an_older_message_format_takes_no_marker(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1, log_message_format_version="0.10.0") as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        assert await write(nodes[1], "t") == {"t": ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}


async def test_too_few_replicas_in_sync_refuse_a_marker(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2, min_insync_replicas="2") as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2), isr=(1,))
        assert await write(nodes[1], "t") == {"t": ErrorCode.NOT_ENOUGH_REPLICAS}
        assert nodes[1].partition("t").log.log_end_offset == 0


async def test_thousands_of_partitions_leave_the_event_loop_to_others(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        keys = [TopicPartition("t", 0), *(TopicPartition("nowhere", number) for number in range(1200))]
        marker = m.WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=PRODUCER,
            producer_epoch=0,
            transaction_result=True,
            topics=[
                m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(
                    name=name, partition_indexes=[each.partition for each in keys if each.topic == name]
                )
                for name in ("nowhere", "t")
            ],
            coordinator_epoch=0,
        )
        asked = nodes[1].ask(m.WriteTxnMarkersRequest(markers=[marker]), m.WriteTxnMarkersResponse)
        task = asyncio.ensure_future(asked)
        between = 0
        while not task.done():
            between += 1
            await asyncio.sleep(0)
        (result,) = (await task).markers
        codes = {each.name: [part.error_code for part in each.partitions] for each in result.topics}
        assert codes["t"] == [ErrorCode.NONE]
        assert codes["nowhere"] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1200
        assert between >= 3


# groups


async def test_a_marker_in_the_offsets_topic_waits_for_the_groups(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead(OFFSETS_TOPIC, leader=1, replicas=(1,))
        assert await write(nodes[1], OFFSETS_TOPIC) == {OFFSETS_TOPIC: ErrorCode.NOT_LEADER_OR_FOLLOWER}
        await eventually_async(lambda: nodes[1].groups.availability(0) is ErrorCode.NONE)
        assert await write(nodes[1], OFFSETS_TOPIC) == {OFFSETS_TOPIC: ErrorCode.NONE}


async def committed(node: Node, group: str) -> int:
    """The group's offset of t-0."""
    _, (found,) = node.groups.fetch_offsets(group, [TopicPartition("t", 0)], require_stable=False)
    return found.offset


async def test_a_commit_marker_commits_the_offsets_of_all_groups_once_it_is_durable(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead(OFFSETS_TOPIC, leader=2, replicas=(1, 2))
        records = [
            Record(0, 0, write_offset_key(group, TopicPartition("t", 0)), write_offset(CommittedOffset(5, -1, "", 0)))
            for group in ("g", "h")
        ]
        batch = memoryview(
            encode_batch(records, producer_id=PRODUCER, producer_epoch=0, base_sequence=0, is_transactional=True)
        )
        nodes[2].partition(OFFSETS_TOPIC).append(
            batch, read_header(batch), now_ms=0, acks=1, verification=NOT_REQUIRED, origin=AppendOrigin.COORDINATOR
        )
        await eventually_async(lambda: nodes[1].partition(OFFSETS_TOPIC).log.log_end_offset == 2)
        await nodes.lead(OFFSETS_TOPIC, leader=1)
        await eventually_async(lambda: nodes[1].groups.availability(0) is ErrorCode.NONE)
        assert await committed(nodes[1], "g") == -1
        nodes.cuts = {(1, 2), (2, 1)}
        writing = asyncio.ensure_future(write(nodes[1], OFFSETS_TOPIC))
        await eventually_async(lambda: nodes[1].partition(OFFSETS_TOPIC).log.log_end_offset == 3)
        await turns(5)
        assert await committed(nodes[1], "g") == -1
        nodes.cuts = set()
        assert await writing == {OFFSETS_TOPIC: ErrorCode.NONE}
        assert (await committed(nodes[1], "g"), await committed(nodes[1], "h")) == (5, 5)
