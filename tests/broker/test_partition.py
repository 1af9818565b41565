"""A partition's log and replication state move together: appends, high watermark, refusals, epochs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.broker.partitions.partition import Partition
from headrace.config import TopicConfig
from headrace.errors import ErrorCode, KafkaError, NotLeaderOrFollower
from headrace.log import truncation
from headrace.log.files import LocalFiles
from headrace.log.partition_log import PartitionLog
from headrace.log.producers.refused_sequences import RefusedSequences
from headrace.records.format2.batch import Record, encode_batch, read_header
from headrace.replication.partition_state import LeaderAndIsr, PartitionState, Transition
from headrace.types import BrokerId, LeaderEpoch, TopicPartition

KEY = TopicPartition("t", 0)


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    log = PartitionLog.open(tmp_path / "t-0", KEY, TopicConfig(), files=LocalFiles(), now_ms=0)
    yield Partition(KEY, log, PartitionState(BrokerId(1), min_insync_replicas=2))
    log.close(0)


def lead(
    partition: Partition, epoch: int = 0, isr: tuple[int, ...] = (1,), replicas: tuple[int, ...] = (1,), leader: int = 1
) -> Transition:
    told = LeaderAndIsr(
        BrokerId(leader), LeaderEpoch(epoch), tuple(map(BrokerId, isr)), epoch, tuple(map(BrokerId, replicas))
    )
    return partition.apply(told, 0)


def append(partition: Partition, count: int = 1, acks: int = -1) -> int:
    batch = memoryview(encode_batch([Record(0, 0, None, b"v", ()) for _ in range(count)]))
    return partition.append(batch, read_header(batch), now_ms=0, acks=acks).base_offset


def test_a_partition_that_nobody_told_about_refuses(partition: Partition) -> None:
    with pytest.raises(NotLeaderOrFollower):
        append(partition)


def test_alone_everything_appended_is_committed(partition: Partition) -> None:
    assert lead(partition) is Transition.BECAME_LEADER
    assert [append(partition, 3), append(partition, 2)] == [0, 3]
    assert partition.high_watermark == partition.last_stable_offset == partition.log.high_watermark == 5


def test_with_followers_the_high_watermark_waits_for_them(partition: Partition) -> None:
    lead(partition, isr=(1, 2, 3), replicas=(1, 2, 3))
    append(partition, 3)
    assert partition.high_watermark == 0
    partition.state.follower_fetched(BrokerId(2), 3, 0)
    partition.state.follower_fetched(BrokerId(3), 2, 0)
    assert (partition.high_watermark, partition.log.high_watermark) == (2, 2)
    assert partition.state.follower_fetched(BrokerId(9), 3, 0) is None


def test_a_cut_log_takes_its_high_watermark_back_with_it(partition: Partition) -> None:
    lead(partition)
    append(partition, 3), append(partition, 2)
    lead(partition, epoch=1, leader=2, replicas=(1, 2))
    truncation.truncate_to(partition.log, 3, 0)
    assert (partition.high_watermark, partition.state.log_end_offset, partition.log.high_watermark) == (3, 3, 3)
    truncation.truncate_fully(partition.log, 100, 0)
    assert (partition.high_watermark, partition.state.log_end_offset, partition.log.high_watermark) == (100, 100, 100)


def test_acks_all_is_refused_before_the_append_when_the_isr_is_too_small_and_other_acks_are_not(
    partition: Partition,
) -> None:
    lead(partition, isr=(1,), replicas=(1, 2, 3))
    with pytest.raises(KafkaError) as caught:
        append(partition, acks=-1)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.log_end_offset == 0
    assert append(partition, acks=1) == 0


def test_a_leader_that_is_replaced_refuses(partition: Partition) -> None:
    lead(partition, replicas=(1, 2))
    assert lead(partition, 1, isr=(2,), replicas=(1, 2), leader=2) is Transition.BECAME_FOLLOWER
    with pytest.raises(NotLeaderOrFollower, match="broker 2"):
        append(partition, acks=1)


@pytest.mark.parametrize(
    ("asked", "code"),
    [(4, ErrorCode.FENCED_LEADER_EPOCH), (5, None), (6, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, None)],
)
def test_an_asker_of_another_leader_epoch_is_told_so(partition: Partition, asked: int, code: ErrorCode | None) -> None:
    lead(partition, 5)
    if code is None:
        partition.check_leader_epoch(asked)
        return
    with pytest.raises(KafkaError) as caught:
        partition.check_leader_epoch(asked)
    assert caught.value.code is code


def test_epochs_end_where_the_next_one_that_wrote_begins(partition: Partition) -> None:
    lead(partition, 2)
    assert partition.end_of_epoch(2) == (2, 0)
    append(partition, 3)
    lead(partition, 5)
    assert [partition.end_of_epoch(epoch) for epoch in (2, 3, 5, 6)] == [(2, 3), (2, 3), (5, 3), (-1, -1)]
    append(partition, 4)
    assert [partition.end_of_epoch(epoch) for epoch in (1, 2, 4, 5, 6)] == [(1, 0), (2, 3), (2, 3), (5, 7), (-1, -1)]
    assert partition.log.leader_epochs.entries == [(2, 0), (5, 3)]


def test_every_epoch_of_a_log_without_records_ends_where_the_leader_will_write(partition: Partition) -> None:
    """Else a consumer that waits for the first record resets its position after a change of the leader, and misses it.
    Apache Kafka 4.3.1 answers the same."""
    lead(partition, 2)
    assert [partition.end_of_epoch(epoch) for epoch in (-1, 0, 1, 2, 3)] == [(-1, -1), (0, 0), (1, 0), (2, 0), (-1, -1)]
    truncation.truncate_fully(partition.log, 40, now_ms=0)
    assert [partition.end_of_epoch(epoch) for epoch in (-1, 0, 2, 3)] == [(-1, -1), (0, 40), (2, 40), (-1, -1)]


def produce(partition: Partition, refused: RefusedSequences, sequence: int, acks: int = -1) -> ErrorCode:
    """What an idempotent producer is told, and the broker remembers."""
    batch = memoryview(
        encode_batch([Record(0, 0, None, b"v", ())], producer_id=7, producer_epoch=0, base_sequence=sequence)
    )
    try:
        partition.append(batch, read_header(batch), now_ms=0, acks=acks)
    except KafkaError as error:
        refused.note(partition.key, batch, error.code, partition.log.producers.entries, 0)
        return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize("cause", ["not leader", "too few replicas"])
def test_an_unknown_producers_later_batches_wait_for_the_one_that_was_refused(tmp_path: Path, cause: str) -> None:
    refused = RefusedSequences()
    log = PartitionLog.open(tmp_path / "t-0", KEY, TopicConfig(), files=LocalFiles(), now_ms=0)
    partition = Partition(KEY, log, PartitionState(BrokerId(1), min_insync_replicas=2), refused=refused)
    if cause == "not leader":
        lead(partition, isr=(2, 1), replicas=(1, 2), leader=2)
    else:
        lead(partition, isr=(1,), replicas=(1, 2))
    assert produce(partition, refused, 0) in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS)
    lead(partition, epoch=1, isr=(1, 2), replicas=(1, 2))
    answers = [produce(partition, refused, sequence) for sequence in (1, 2, 0, 2, 1, 2)]
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert answers == [out_of_order, out_of_order, 0, out_of_order, 0, 0]
    assert not refused.entries
    log.close(0)
